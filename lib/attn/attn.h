/* Attention: queries and cache views in, context rows out.
 *
 *   out[i][h] = softmax(scale * q[i][h] . K[h / G]^T + bias) V[h / G]      (BMC paper II-A)
 *
 * Rows are consumed by logical position, whatever the order of storage. A query at position p sees the
 * committed rows 0..n-1 and, of the step's own rows, those of its list: for plain text the rows up to
 * itself; for a node of a token tree its ancestors and itself. Everything else is masked: its weight is
 * exactly 0. */
#ifndef BMC_ATTN_H
#define BMC_ATTN_H

#include "kernel/kernel.h"
#include "kv/kv.h"

/* The queries of one sequence in a step. */
struct attn_query {
    size_t seq;
    size_t first; /* its first row in the step's buffers */
    size_t rows;
    /* For a tree: row i sees the step's rows tail[tail_at[i] .. tail_at[i + 1]), counted from the
     * sequence's first one, itself included. NULL: a chain. */
    const uint32_t *tail;
    const size_t *tail_at;
};

/* Where the time of attention goes, summed over threads: for profiles. */
struct attn_times {
    double scores_ms, softmax_ms, values_ms;
};

/* What all layers of a step share. */
struct attn_step {
    struct kv *kv;
    const struct kernels *kernels;
    const struct attn_query *query;
    size_t n_queries;
    size_t heads;             /* H */
    struct attn_times *times; /* NULL: not wanted */
};

struct attn;

struct attn_backend {
    const char *name; /* what --attn calls it */
    const char *summary;
    size_t (*state_size)(void);

    /* Buffers for up to `max_step_rows` query rows over `max_rows` positions, `max_queries` sequences.
     */
    int (*open)(struct attn *attn, size_t heads, size_t kv_heads, size_t head_dim, size_t max_rows,
                size_t max_step_rows, size_t max_queries, struct err *err);

    /* Once a step, after kv_room() of all its sequences: masks. */
    void (*begin)(struct attn *attn, const struct attn_step *step);

    /* One layer: out and q are [rows][H * d]. Uses all threads. */
    int (*run)(struct attn *attn, const struct attn_step *step, size_t layer, const float *q,
               float *out, struct err *err);
    void (*close)(struct attn *attn);
};

/* An open backend; its own state follows. */
struct attn {
    const struct attn_backend *backend;
};

extern const struct attn_backend *const attn_backends[]; /* ended by NULL; the first is the default */

/* NULL gives the default; an unknown name is an error that lists the known ones. */
const struct attn_backend *attn_find(const char *name, struct err *err) MUST_USE;

int attn_open(struct attn **attn, const struct attn_backend *backend, size_t heads, size_t kv_heads,
              size_t head_dim, size_t max_rows, size_t max_step_rows, size_t max_queries,
              struct err *err) MUST_USE;
void attn_close(struct attn *attn);

#endif
