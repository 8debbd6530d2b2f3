/* Formats results of requests as lines of JSON. Out of memory is an error: no member is omitted. */
#ifndef BMC_RESULT_H
#define BMC_RESULT_H

#include "base/json.h"
#include "decode/gen_types.h"

/* Appends a line: `id`, JSON or NULL for null, then the members of the object. */
int result_put_line(const char *id, const json_t *object, struct buf *line, struct err *err) MUST_USE;

/* Appends the line of a result. `id` is that of its request, as JSON; NULL: null. On error nothing
 * is appended. */
int result_line(const struct tokenizer *tok, const char *id, const struct gen_result *result,
                struct buf *line, struct err *err) MUST_USE;

/* Appends the text of the i-th beam. */
int result_beam_text(const struct tokenizer *tok, const struct gen_result *result, size_t i,
                     struct buf *text, struct err *err) MUST_USE;

/* Value of the member "error" of a line that failed: "line N: why", or only "interrupted". `number`
 * counts from 0. NULL: out of memory. */
json_t *line_error(uint64_t number, const char *why) MUST_USE;

/* Appends the line of a request that failed without generating a token. */
int failure_line(const char *id, uint64_t number, const char *why, struct buf *line,
                 struct err *err) MUST_USE;

#endif
