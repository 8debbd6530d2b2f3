/* Alternatives that are plain texts, with common beginnings read once. */
#ifndef BMC_EXPR_TEXTS_H
#define BMC_EXPR_TEXTS_H

#include "text/grammar/expr.h"

/* Zeros at first. Errors are kept in the grammar. */
struct expr_texts {
    struct buf bytes; /* all texts, one after the other */
    size_t *end;      /* [n] */
    size_t n, cap;
};

/* Adds what was appended to texts->bytes since the last text. */
void expr_texts_end(struct grammar *grammar, struct expr_texts *texts);

/* One of the texts; releases them. */
expr_id expr_texts(struct grammar *grammar, struct expr_texts *texts);

#endif
