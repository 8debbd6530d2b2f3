/* Attention: queries and cache views in, context rows out.
 *
 *   out[i][h] = softmax(scale * q[i][h] . K[h / G]^T + bias) V[h / G]      (BMC paper II-A)
 *
 * where scores may be capped, and the bias may fall with the distance (struct attn_shape).
 *
 * Rows are consumed by logical position, whatever the order of storage, and however many of the first ones the cache has
 * dropped. A query at position p sees the committed rows before it and, of the step's own rows, those of its list: for plain text the rows up to
 * itself; for a node of a token tree its ancestors and itself; in a layer with a window only the last of
 * these, and of a sparse head (kv_sparse.h) only the first and the last of these. Everything else is masked: its weight is exactly 0.
 *
 * Where the cache shows only some KV heads at once, a layer is done in parts: each is announced to the cache
 * while the one before is computed. Rows that sequences share (kv_shared_rows()) may be read once for all. */
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

/* What attention computes, the same in all layers and steps. */
struct attn_shape {
    size_t heads, kv_heads, head_dim; /* H, H / G, d */
    float scale;                      /* of the scores; 0: the usual 1 / sqrt(d) */
    float softcap;                    /* scores s become softcap * tanh(s / softcap); 0: they stay */
    const float *slopes; /* [heads], borrowed: slope * (position of K - position of Q) joins
                                         the score (ALiBi); NULL: nothing does */
    bool
        widen; /* rows of few bits are multiplied in f32; else queries are rounded to int8 for them, once */
};

/* What steps may ask for at most. */
struct attn_limits {
    size_t positions; /* rows of a view */
    size_t step_rows; /* query rows of a step */
    size_t queries;   /* sequences of a step */
};

/* What all layers of a step share. */
struct attn_step {
    struct kv *kv;
    const struct kernels *kernels;
    const struct attn_query *query;
    size_t n_queries;
    struct attn_times *times; /* NULL: not wanted */
};

/* What differs from layer to layer. */
struct attn_layer {
    size_t index;  /* in the cache */
    size_t window; /* a query sees so many positions, itself the last; 0: all */
};

/* What a backend does of a layer in one go. */
struct attn_part {
    const struct attn_layer *layer;
    size_t head, heads; /* KV heads [head, head + heads) */
    const float *q;     /* [rows][H * d], of all heads */
    float *out;         /* the same */
};

struct attn;

struct attn_backend {
    const char *name; /* what --attn calls it */
    const char *summary;
    size_t state_size; /* of what follows struct attn */

    /* Buffers; attn->shape is set. */
    int (*open)(struct attn *attn, const struct attn_limits *limits, struct err *err);

    /* Once a step: masks, what sequences share. NULL where nothing is to be prepared. */
    int (*begin)(struct attn *attn, const struct attn_step *step, struct err *err);

    /* Uses all threads. */
    int (*run)(struct attn *attn, const struct attn_step *step, const struct attn_part *part,
               struct err *err);
    void (*close)(struct attn *attn);
};

/* An open backend; its own state follows. */
struct attn {
    const struct attn_backend *backend;
    struct attn_shape shape; /* with its scale */
    size_t group;            /* G: query heads of a KV head */
    struct attn_reach
        *reach; /* attn_reach.h: how far heads look is added up there; NULL: nobody asks */
};

extern const struct attn_backend *const attn_backends[]; /* ended by NULL; the first is the default */

/* NULL gives the default; an unknown name is an error that lists the known ones. */
const struct attn_backend *attn_find(const char *name, struct err *err) MUST_USE;

int attn_open(struct attn **attn, const struct attn_backend *backend, const struct attn_shape *shape,
              const struct attn_limits *limits, struct err *err) MUST_USE;
void attn_close(struct attn *attn);

/* Once a step, after kv_room() of all its sequences, before attn_run() of its layers. */
int attn_begin(struct attn *attn, const struct attn_step *step, struct err *err) MUST_USE;

/* One layer: out and q are [rows][H * d]; the layer's new rows are in the cache. */
int attn_run(struct attn *attn, const struct attn_step *step, const struct attn_layer *layer,
             const float *q, float *out, struct err *err) MUST_USE;

#endif
