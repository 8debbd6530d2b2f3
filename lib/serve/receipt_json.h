/* The members of receipts that come before the answer: what it was generated from. */
#pragma once

#include "serve/receipt.h"
#include "serve/request_line.h"

enum { RECEIPT_LINK_BYTES = 4 }; /* of a link, that "links" shows; "chain" has all of the last one */

/* Appends a receipt's text, as it is hashed and signed. */
int receipt_text(const json_t *receipt, struct buf *text, struct err *err) MUST_USE;

/* A list of token ids; NULL: error. */
json_t *receipt_ids(const struct ids *ids, struct err *err);

/* Members that name model, settings and request. NULL: error. */
json_t *receipt_head(const struct serve *serve, const struct gen_request *request, struct err *err);

/* Reads a receipt into the request to replay: line->choice->gen, whose tokens are to be line->expected. For
 * line_queue.prepare(). */
int receipt_read(struct line_queue *queue, struct request_line *line, const struct serve_input *input,
                 struct err *err) MUST_USE;
