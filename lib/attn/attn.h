/* Attention: computes attention outputs from queries and views of the KV cache.
 *
 *   out[i][h] = softmax(scale * q[i][h] . K[h / G]^T + bias) V[h / G]      (BMC paper II-A)
 *
 * with optional soft-capping of scores and ALiBi (struct attn_shape). A query attends to the
 * committed positions of its sequence and, of the tokens of the current forward pass (a "step"), to
 * those up to itself or, for a node of a draft tree, to its ancestors. Sliding windows and
 * streaming heads limit that further (query_mask.h). Masked positions have weight exactly 0.
 *
 * Sums run over KV entries in order of position, wherever the cache stores them and however many of
 * the first ones it has dropped.
 *
 * With KV offload, only some KV heads can be read at once: attention computes a slice of them at a
 * time, and prefetches the next one meanwhile. */
#pragma once

#include "kernel/kernel.h"
#include "kv/kv.h"

/* The query rows (new tokens) of one sequence in a forward pass. */
struct attn_query {
    size_t seq;
    size_t first; /* index of its first row in q and out of attn_run() */
    size_t rows;
    /* Draft trees: of this query's rows, row i attends to those listed in ancestors[], from
     * ancestors_at[i] to before ancestors_at[i + 1], itself included. NULL: to all rows up to i. */
    const uint32_t *ancestors;
    const size_t *ancestors_at;
};

/* Milliseconds spent in the phases of attention, summed over threads. */
struct attn_times {
    double scores_ms, softmax_ms, values_ms;
};

/* Primitives that a library has created in this process, each for products of a shape that it had none
 * for, and the time that took. */
struct attn_counts {
    size_t primitives;
    double primitive_ms;
};

/* Parameters of attention in layers of the same sizes. */
struct attn_shape {
    size_t heads, kv_heads, head_dim; /* H query heads, H / G KV heads, d */
    size_t v_dim;                     /* leading elements of V that are used; 0: d */
    float scale;                      /* factor of q . k before softmax; 0: 1 / sqrt(d) */
    float softcap;                    /* scores s become softcap * tanh(s / softcap); 0: off */
    bool chosen;                      /* layers have attn_layer.chosen */
    /* ALiBi: [heads] slopes; subtracts slope * |key position - query position| from scores; NULL: off */
    const float *slopes;
    /* quantised KV entries: dequantise to f32, as is done where only K or only V is quantised; else
     * quantise queries to int8 */
    bool dequantize;
    bool bf16; /* multiply bf16 K and V by queries and probabilities that are rounded to bf16 */
};

/* Upper limits of a forward pass, by which attn_open() sizes buffers. */
struct attn_limits {
    size_t positions; /* positions in the view of a sequence */
    size_t step_rows; /* query rows */
    size_t queries;   /* sequences */
    bool dequantize;  /* only K or only V is quantised in some layers */
};

/* Arguments that are the same in all layers of a forward pass. */
struct attn_step {
    struct kv *kv;
    const struct kernels *kernels;
    const struct attn_query *query;
    size_t n_queries;
    struct attn_times *times; /* times are added here; NULL: not measured */
};

struct attn_layer {
    size_t index;  /* layer number in the KV cache */
    size_t window; /* positions in its sliding window, with the query's own; 0: no window */
    /* a query attends to positions from the last multiple of `chunk` on; at least `window`; 0: no chunks */
    size_t chunk;
    size_t ahead; /* positions after its own that it attends to, of the same pass: in encoders */
    /* [heads]: a score that softmax has beside those of the positions, for a value of 0; NULL: none */
    const float *sinks;
    size_t shape; /* number of its shape, one of those of attn_open() */
    /* The positions that query row i attends to, ascending from chosen + i * stride on: `most`, or all up to its own if
     * these are fewer. NULL: not limited to some. */
    const uint32_t *chosen;
    size_t stride, most;
};

/* The KV heads of a layer that a backend computes in one call. */
struct attn_slice {
    const struct attn_layer *layer;
    size_t head, heads; /* KV heads [head, head + heads) */
    const float *q;     /* [query rows][H * d]: queries of all heads */
    float *out;         /* [query rows][H * v_dim]: attention outputs */
};

struct attn;

struct attn_backend {
    const char *name; /* value of --attn */
    const char *summary;
    /* the option that selects the backend, if a library adds, as struct kernels has it; else NULL */
    const char *foreign_sums;
    size_t state_size; /* bytes of the backend's struct, which begins with struct attn */
    bool chooses;      /* supports attn_layer.chosen */

    /* Allocates buffers for the largest of attn->shapes. attn_open() calls close() after an error. */
    int (*open)(struct attn *attn, const struct attn_limits *limits, struct err *err);

    /* Called once per forward pass, for masks and prefix groups. NULL: nothing to prepare. */
    int (*begin)(struct attn *attn, const struct attn_step *step, struct err *err);

    /* Computes attention of the KV heads of a slice, on all threads. */
    int (*run)(struct attn *attn, const struct attn_step *step, const struct attn_slice *slice,
               struct err *err);
    void (*close)(struct attn *attn);

    struct attn_counts (*counts)(void); /* NULL: no library that creates primitives */
};

/* The version of oneDNN, which is loaded for that, as "2.6.3"; false: it cannot be loaded. */
bool onednn_version(char *text, size_t size);

/* An open backend; the first member of the backend's own state. */
struct attn {
    const struct attn_backend *backend;
    struct attn_shape *shapes; /* [n_shapes], with scale and v_dim set */
    size_t n_shapes;
    const struct attn_shape *shape;    /* that of the layer which is being computed */
    size_t gqa;                        /* G of it: query heads per KV head */
    struct retrieval_score *retrieval; /* sums retrieval scores (retrieval_score.h); or NULL */
};

/* All backends, ended by NULL; the first is the default. */
extern const struct attn_backend *const attn_backends[];

/* Returns the backend called `name`, the default for NULL. NULL and an error: unknown name. */
const struct attn_backend *attn_find(const char *name, struct err *err) MUST_USE;

struct attn_counts attn_counts(const struct attn_backend *backend);

/* Opens attention for layers of n_shapes different shapes. */
int attn_open(struct attn **attn, const struct attn_backend *backend, const struct attn_shape *shapes,
              size_t n_shapes, const struct attn_limits *limits, struct err *err) MUST_USE;
void attn_close(struct attn *attn);

/* Begins a forward pass; call it after kv_ensure() for all its sequences. */
int attn_begin(struct attn *attn, const struct attn_step *step, struct err *err) MUST_USE;

static inline size_t attn_gqa(const struct attn_shape *shape) { return shape->heads / shape->kv_heads; }

/* Computes attention of one layer, whose new KV entries are in the cache already; q is
 * [query rows][H * d], out [query rows][H * v_dim]. */
int attn_run(struct attn *attn, const struct attn_step *step, const struct attn_layer *layer,
             const float *q, float *out, struct err *err) MUST_USE;
