/* The interface of cache policies. Users of a cache include kv.h only. */
#pragma once

#include <stdatomic.h>

#include "kv/kv.h"

/* How caches of a policy grow: the policy's parameters in --kv, and r, the rows that an allocation
 * adds. */
struct kv_growth {
    /* Parses `parameter`, the part of --kv after the colon; `text` is the whole value, for
     * messages. NULL: the policy has no parameters. */
    int (*parse)(struct kv_spec *spec, const char *text, const char *parameter, struct err *err);

    /* Returns r; sets kv->setup.T_from unless the policy fixes T. NULL: r is `fixed`, at most N. */
    size_t (*rows)(struct kv *kv, const struct kv_spec *spec);
    size_t fixed;

    const char *r_prefix; /* kv_spec_format() writes it before r: "r="; NULL: omits r */
    bool in_steps;        /* allocates in steps: see kv_rows_before_growth() */
    bool ahead;           /* does growth in advance (kv_prepare.h) unless grow=now is given */
};

/* A parameter of a comma-separated list, as in "S=64". take() stores its value in the spec; false
 * if the value is invalid. */
struct kv_param {
    const char *name; /* "S=", including the = */
    bool (*take)(struct kv_spec *spec, const char *value);
};

/* Parses a list of at most 8 different parameters; `expected` is the message if that fails. */
int kv_parse_params(struct kv_spec *spec, const char *text, const char *parameter,
                    const struct kv_param *params, size_t n_params, const char *expected,
                    struct err *err) MUST_USE;

/* Ways to grow (kv_growth.c), in the order of the names: one row per growth event (T = N), all at
 * once (T = 1), r from T=, r= or the tuner and grow=, blocks of 16 or 32 rows, r = 16 unless an option
 * is given, a rolling window with slack. */
extern const struct kv_growth kv_grow_every_row, kv_grow_once, kv_grow_in_steps, kv_grow_in_blocks,
    kv_grow_in_segments, kv_grow_window;

/* Which of a sequence's rows attention computes: only those with a token, all allocated ones, or
 * always a full window, with padding before the first token. */
enum kv_attend { KV_ATTEND_VALID, KV_ATTEND_PADDED, KV_ATTEND_WINDOW };

/* A policy is a constant table; add it to kv_policies.c. Functions that return int give 0, or -1
 * with `err` filled and the sequence unchanged. Pointers marked optional may be NULL.
 *
 * Row 0 is the first one of the sequence; heads have the numbers of struct kv.head. */
struct kv_policy {
    const char *name;
    const struct kv_growth *growth;
    enum kv_attend attend; /* under --attend padded */
    bool lockstep;         /* supports kv_spec.lockstep */
    bool shares_prefix;    /* forked sequences share the memory of their common prefix */
    bool by_layer;         /* each layer has blocks of its own, which can be in a memory of its own */
    bool rolling;          /* drops its oldest rows, see kv->setup.window: never full */

    /* Called by kv_open(); kv->spec, kv->setup and kv->attend are set. Allocates kv->store. A
     * rolling policy sets setup.window, step_rows, view_rows and kv->untrimmed_limit; one that
     * offloads sets kv->offload. */
    int (*open)(struct kv *kv, struct err *err);

    /* Called by kv_close(), also after a failed open(); all sequences are empty. kv->store is freed
     * afterwards. Optional. */
    void (*close)(struct kv *kv);

    /* Allocates memory for `rows` new rows of a sequence, at most kv_left(). */
    int (*ensure)(struct kv *kv, size_t seq, size_t rows, struct err *err);

    /* Address of an allocated row of a head; none if a rolling cache does not keep it in this
     * layer. */
    struct device_addr (*row_at)(const struct kv *kv, size_t seq, size_t head, size_t row);

    /* Writes rows [n + first, n + first + rows) of one layer, allocated by ensure(), from f32
     * [rows][kv_heads * head_dim] with `stride` elements between rows; `queries` as of kv_append(). Usually
     * kv_rows_append(). */
    void (*append)(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows,
                   struct device_addr k, struct device_addr v, size_t stride,
                   const struct kv_queries *queries);

    /* Implements kv_view(): fills the spans and `offset` of a view of heads [head, head + heads) of
     * the sequence's first `valid` rows, and `padded`, `sink` and `recent` if they are not 0.
     * Called by several threads at a time. Under policies with shares_prefix, two sequences with
     * the same address at one position have the same addresses at all earlier ones. */
    int (*view)(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *view, struct err *err);

    /* Keeps a sequence's first `rows` rows and moves rows extra[0..n_extra), ascending and >= rows,
     * behind them; drops the others. Frees the storage when nothing is kept. */
    void (*accept)(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra);

    /* Gives sequence `to`, which is empty, the first `rows` rows of `from`, copied or shared. */
    int (*fork)(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err);

    /* Optional: frees the memory behind a sequence's committed rows, as far as a sequence that was never longer would
     * not have it; not for attached rows, and between forward passes. Where memory is short, it frees less.
     * NULL: accept() leaves no more. */
    void (*shrink)(struct kv *kv, size_t seq);

    /* Optional: starts `seq`, which is empty, with `rows` rows in the caller's memory, `stored` per
     * head, as kv_attach() describes. The front end sets and raises `cap` within that memory, and
     * calls ensure() for rows beyond `stored`. The memory is the first span of views; a policy
     * that copies it clears kv->seq[seq].attached. NULL: the front end appends the rows. */
    int (*attach)(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                  size_t stored, struct err *err);

    /* Optional: computes how many bytes a sequence of `rows` rows takes, offloaded ones included, in a
     * cache of this shape, the cache's own or that of the largest shard.
     * NULL: those of its rows rounded up to the next growth event and to whole tiles. */
    size_t (*bytes)(const struct kv *kv, const struct kv_shape *shape, size_t rows);

    /* Optional: implements kv_prefetch(). Heads in memory or already being read are not read again;
     * rows appended later are found by view(), which also reports errors. */
    void (*prefetch)(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads);

    /* Optional: reorders beams without copies, for kv_reorder(): sequence to[i] gets the entries of
     * seq[parent[i]], unless both are the same. Returns 1 if these sequences cannot be aliased:
     * kv_reorder() then forks them. */
    int (*alias)(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to, size_t n,
                 struct err *err);
};

extern const struct kv_policy *const kv_policies[]; /* ends with NULL */

/* In place of any of them, where no layer has KV entries. */
extern const struct kv_policy kv_policy_none;

struct kv_seq {
    size_t first;   /* position of the first row */
    size_t n;       /* committed rows */
    size_t pending; /* rows of the current forward pass */
    size_t cap;     /* allocated rows, <= N; set by the policy */
    bool attached;  /* some rows are in the caller's memory: kv_attach() */
    size_t stored;  /* rows per head in that attached memory */
    size_t clean;   /* leading rows of attached memory that are initialised: tokens, then zeros */
    void *store;    /* the policy's data of the sequence */
};

/* K or V of a KV head of one layer, as it is stored: all heads of K of layer 0, those of its V, unless V is part
 * of K, those of layer 1, and so on. */
struct kv_head {
    size_t layer,
        matrix; /* matrices are numbered in the same order: K and V of layer 0, of layer 1 .. */
    enum dtype type;
    size_t bytes;  /* of a row */
    size_t before; /* bytes of a row in all heads before */
};

struct kv {
    const struct kv_policy *policy;
    const struct backend_memory *memory;
    struct kv_spec spec;
    struct kv_setup setup;
    struct kv_shape largest; /* setup.shape, or that of the largest shard */
    struct kv_head *head;    /* [n_heads + 1]; the last has the end of all others */
    size_t n_heads, n_matrices;
    size_t *first_head;     /* [layers + 1]: of each layer */
    size_t *matrix_head;    /* [n_matrices + 1]: the first of each matrix */
    size_t untrimmed_limit; /* no layer drops rows of sequences up to this length */
    struct offload_limits offload;
    enum kv_attend attend;
    struct kv_seq *seq;        /* [n_seqs] */
    struct state_store *state; /* recurrent state; NULL: the model has none */
    size_t state_bytes;        /* of stats.resident_bytes */
    size_t freed;              /* bytes freed since the heap was trimmed */
    /* Sequences that kv_convert() has moved, in_smaller[n_seqs], are in the cache `smaller`, whose memory counts as that of its
     * `owner`. NULL: kv_open_smaller() was not called. */
    struct kv *smaller, *owner;
    bool *in_smaller;
    struct kv_stats stats;
    atomic_bool overflowed;       /* kv_overflowed() */
    atomic_size_t converted_rows; /* rows written from f32, counted per head, K and V each */
    void *store;                  /* the policy's data */
    /* [n_heads] kv_spec.scales; NULL: each entry has a scale of its own */
    struct kv_extent *range;
};

/* The cache that holds a sequence. */
static inline struct kv *kv_home(struct kv *kv, size_t seq)
{
    return kv->smaller && kv->in_smaller[seq] ? kv->smaller : kv;
}

static inline const struct kv_sizes *kv_layer_sizes(const struct kv *kv, size_t layer)
{
    return kv_sizes_of(&kv->setup.shape, layer);
}

/* Number of a head of K, and of V: the same where V is part of K. */
static inline size_t kv_k_head(const struct kv *kv, size_t layer, size_t head)
{
    return kv->first_head[layer] + head;
}
static inline size_t kv_v_head(const struct kv *kv, size_t layer, size_t head)
{
    return kv->first_head[layer + 1] - kv_layer_sizes(kv, layer)->kv_heads + head;
}

/* Bytes of a row of K (KV_K) or of V (KV_V) in one head of a layer; and in all layers and heads. */
static inline size_t kv_row_bytes(const struct kv *kv, size_t layer, size_t matrix)
{
    return kv_sizes_row_bytes(kv_layer_sizes(kv, layer), matrix);
}
static inline size_t kv_token_bytes(const struct kv *kv) { return kv->head[kv->n_heads].before; }
