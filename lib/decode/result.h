/* A result as one line of JSON, the answer to a request (request.h). A value that memory was short for is an error,
 * never left out. */
#ifndef BMC_RESULT_H
#define BMC_RESULT_H

#include "base/json.h"
#include "decode/gen_types.h"

/* Appends the line of a result: its request's id, as JSON (NULL: null), and what came out. On error nothing is
 * appended. */
int result_line(const struct tokenizer *tok, const char *id, const struct gen_result *result,
                struct buf *line, struct err *err) MUST_USE;

/* Appends the text of the i-th of a result's beams. */
int result_beam_text(const struct tokenizer *tok, const struct gen_result *result, size_t i,
                     struct buf *text, struct err *err) MUST_USE;

/* What is said of a line that failed, whose `number` counts from 0: a fault is that line's, an interruption the run's. NULL: no memory. */
json_t *line_error(uint64_t number, const char *why) MUST_USE;

/* Appends the line of a request of which nothing came out but what line_error() says. */
int failure_line(const char *id, uint64_t number, const char *why, struct buf *line,
                 struct err *err) MUST_USE;

#endif
