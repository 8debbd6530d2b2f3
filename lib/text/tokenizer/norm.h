/* Normalizers of text, before it is split into pre-tokens. */
#ifndef BMC_NORM_H
#define BMC_NORM_H

#include "text/pattern.h"
#include "text/tokenizer/tok_tables.h"

/* Scratch memory of norm_run(), reused for all texts; to be initialised with zeros. */
struct normalizer {
    struct matcher matcher;
    struct buf text[2]; /* double buffer: a step reads one and writes the other */
};

void norm_release(struct normalizer *norm);

/* Runs the tokenizer's normalizers on `text`. The result, *normal, is valid until the next call. */
int norm_run(struct normalizer *norm, const struct tokenizer *tok, const char *text, size_t len,
             const char **normal, size_t *normal_len, struct err *err) MUST_USE;

#endif
