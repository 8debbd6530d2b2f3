/* Normalizers: what becomes of a text before it is split. */
#ifndef BMC_NORM_H
#define BMC_NORM_H

#include "text/pattern.h"
#include "text/tok_tables.h"

/* Room that is used again for text after text. Zero-initialised is empty. */
struct norm {
    struct matcher matcher;
    struct buf text[2]; /* steps write these in turn */
};

void norm_release(struct norm *norm);

/* Runs the normalizers. The result stays valid until the next call. */
int norm_run(struct norm *norm, const struct tokenizer *tok, const char *text, size_t len,
             const char **normal, size_t *normal_len, struct err *err) MUST_USE;

#endif
