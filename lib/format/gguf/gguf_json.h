/* Values of GGUF metadata as JSON. */
#ifndef BMC_GGUF_JSON_H
#define BMC_GGUF_JSON_H

#include "base/json.h"
#include "format/gguf/gguf.h"

/* The shortest decimal that rounds to this f32: 1e-05 instead of 9.99999974e-06. */
double gguf_shortest(double number);

/* The value of an element, which the caller releases; null if it is no finite number. NULL: out of
 * memory. */
json_t *gguf_json(const struct gguf_element *element);

#endif
