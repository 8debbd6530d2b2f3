/* Which heads of a model look far, measured on a text; and a list of those that look farthest. */
#ifndef BMC_REACH_H
#define BMC_REACH_H

#include "prof/report.h"

struct reach_options {
    size_t sink, recent; /* rows that every head sees */
    double sparsity;     /* the part of all heads that becomes sparse */
};

enum { REACH_QUERIES = 64 }; /* at the text's end, that are measured */

struct reach_head {
    size_t layer, head;
    double beyond; /* mean share of a query's weights that goes beyond the rows that every head sees */
    bool sparse;
};

/* head[layers * KV heads], layer by layer. The text has more tokens than a sparse head sees. */
int reach_measure(struct reach_head *head, const struct reach_options *options, const struct run *run,
                  const struct model *model, const uint32_t *id, size_t n, struct err *err) MUST_USE;

/* The list, as kv/kv_sparse.h has it. */
int reach_list(const struct reach_head *head, const struct reach_options *options,
               const struct model *model, struct buf *text, struct err *err) MUST_USE;

#endif
