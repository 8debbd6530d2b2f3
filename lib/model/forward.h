/* The decoder's forward pass: tokens in, logits out. */
#ifndef BMC_FORWARD_H
#define BMC_FORWARD_H

#include "attn/attn.h"
#include "kernel/gemm.h"
#include "model/chain.h"
#include "model/part.h"

/* One step: rows of any number of sequences, each sequence's rows together and in order. */
struct step {
    size_t rows;
    const uint32_t *token;          /* [rows] */
    const size_t *position;         /* [rows] */
    const struct attn_query *query; /* one per sequence; kv_room() has been made for its rows */
    size_t n_queries;
};

/* Where a step's time goes, for profiles: milliseconds by part. */
enum forward_part { PART_ATTENTION, PART_PROJECTION, PART_MLP, PART_HEAD, PART_OTHER, FORWARD_PARTS };

struct forward_times {
    double ms[FORWARD_PARTS];
    double lap_ms; /* when the last part ended */
};

struct forward {
    const struct model *model;
    const struct kernels *kernels;
    struct gemm *gemm;
    struct attn *attn;
    struct kv *kv;
    struct config own; /* the model's, with the heads that this rank has */
    struct part part;
    struct chain chain;
    size_t max_rows;
    /* Called after each layer with how many of how many are done, for progress; NULL: not wanted. */
    void (*layer_done)(void *arg, size_t done, size_t layers);
    void *layer_arg;
    bool split;                    /* one attention call per sequence, in place of one for all */
    struct forward_times *times;   /* NULL: not wanted */
    struct attn_times *attn_times; /* NULL: not wanted */
    float *frequency;              /* [sequences][rope_dim / 2] */
    float *cosine, *sine;          /* [max_rows][rope_dim / 2] */
    float *slopes;                 /* [heads], ALiBi only */
    /* Activations, [max_rows][width]. */
    float *x;    /* hidden: the residual stream */
    float *h;    /* hidden: what a half reads */
    float *side; /* hidden: what the MLP reads beside attention, or what a half gives before its norm */
    float *q, *k, *v; /* H * d, KV heads * d; of this rank's heads */
    float *attended;  /* H * d, what attention gives of this rank's heads: `context` where it has all */
    float *context;   /* H * d */
    float *up;        /* ffn */
    float *embedded;  /* embed, where it differs from hidden */
};

/* Buffers for steps of up to `max_rows` rows over the cache `kv`, which is borrowed. */
int forward_open(struct forward *forward, const struct model *model, const struct kernels *kernels,
                 enum precision precision, const struct attn_backend *backend, struct kv *kv,
                 size_t max_rows, struct err *err) MUST_USE;
void forward_close(struct forward *forward);

/* Sequence `seq` begins, and becomes `length` tokens long at most: rotary positions may depend on it. Without this call
 * the cache's rows count. */
void forward_begin(struct forward *forward, size_t seq, size_t length);

/* Whether the same tokens at the same places give two sequences the same rows. */
bool forward_same_rows(const struct forward *forward, size_t a, size_t b);

/* Runs the layers: afterwards forward_logits() may be asked for any of the rows, and the caller commits
 * the cache's rows. */
int forward_step(struct forward *forward, const struct step *step, struct err *err) MUST_USE;

/* logits[n][vocab] of the step's rows row[0..n). */
int forward_logits(struct forward *forward, const size_t *row, size_t n, float *logits,
                   struct err *err) MUST_USE;

/* Time that this rank has waited for others. */
static inline double forward_waited_ms(const struct forward *forward)
{
    return forward->part.wait_ms + forward->chain.wait_ms;
}

/* The same in two: other steps may be run between. Only rank 0 of a model that is split by layers asks for what it takes later. */
size_t forward_ask(struct forward *forward);
int forward_take(struct forward *forward, size_t question, size_t n, float *logits,
                 struct err *err) MUST_USE;

#endif
