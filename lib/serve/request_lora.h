/* The LoRA adapters of a request: member "lora". */
#ifndef BMC_REQUEST_LORA_H
#define BMC_REQUEST_LORA_H

#include "base/json.h"
#include "model/lora/lora.h"

/* Sets *factor[loras->n] from a list that member_set_adapters() accepts: adapters that it does not name get
 * 0, one that it names twice the sum. The caller frees *factor, even on error. `loras` may be NULL. */
int request_lora(const json_t *list, const struct loras *loras, float **factor,
                 struct err *err) MUST_USE;

#endif
