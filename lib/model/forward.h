/* The decoder's forward pass: token ids in, logits out. layer_ops.c shows which operations it consists of. */
#pragma once

#include "attn/attn.h"
#include "backend/backend.h"
#include "model/experts/experts.h"
#include "model/observer.h"
#include "model/op_counts.h"
#include "model/ops.h"
#include "model/parallel/pipeline.h"
#include "model/parallel/shard.h"

/* The batch of one forward pass: rows, one per token, of any number of sequences. The rows of a
 * sequence are contiguous, in order of positions. */
struct step {
    size_t rows;
    const uint32_t *token;  /* [rows] */
    const size_t *position; /* [rows] */
    /* one per sequence; the caller has called kv_ensure() for each */
    const struct attn_query *query;
    size_t n_queries;
};

/* Hidden states that each step keeps for all of its rows, for a drafter that reads them. */
struct hidden_tap {
    size_t n;                   /* per row; 0: none */
    size_t layer[MAX_FEATURES]; /* the residual stream that enters a layer, or HIDDEN_FINAL */
    struct device_addr state;   /* [max_rows][n][hidden], of the last step */
};

/* In hidden_tap.layer: the output of the final norm, or of the last layer if there is none. */
#define HIDDEN_FINAL SIZE_MAX

/* What a backend has of a forward pass: buffers, of which one backend at a time has the contents. */
struct forward_side {
    const struct backend *backend; /* NULL: the model is not split */
    struct backend_pass *pass;
    struct device_addr arena, buffer[BUFFER_ARENA];
};

struct forward {
    const struct model *model;
    const struct backend *backend; /* of the operation that runs; of a split model it changes */
    struct backend_pass *pass;
    struct kv *kv;
    struct op_list list;
    struct device_addr arena;
    size_t arena_bytes;
    struct device_addr buffer[BUFFERS];
    const struct backend *device; /* `backend` at first */
    struct forward_side other;    /* of the backend that `backend` is not */
    const bool *on_host;          /* [layers + SPLIT_PARTS]; NULL: the model is not split */
    bool host_runs;               /* `backend` is the CPU's, `other` the device's */
    size_t last_rows;             /* of the last step */
    uint64_t boundary_bytes;      /* hidden states copied from one to the other */
    struct experts experts;
    struct shard shard;
    struct pipeline pipeline;
    size_t max_rows;
    /* Called after each layer, to show progress: `done` of `layers` are finished. NULL: none. */
    void (*layer_done)(void *arg, size_t done, size_t layers);
    void *layer_arg;
    bool attn_per_sequence;  /* one attention call per sequence instead of one for all */
    struct op_counts counts; /* of the list */
    struct pass_work *work;  /* where passes are added up and timed; NULL: they are not */
    size_t rope_tables;      /* 1, or 2: then LAYER_ROPE_LOCAL's follows */
    size_t rope_pairs[2];    /* rotary pairs of each table */
    size_t rope_half;        /* the larger of both */
    float *frequency;        /* [sequences][rope_tables][rope_half] */
    float *cosine, *sine;    /* [rope_tables][max_rows * rope_half]: [rows][pairs] of the table */
    float *temperature;      /* [max_rows] factor of Q */
    float *slopes;           /* [heads] ALiBi slopes */
    struct attn_shape *attn; /* [n_attn]: the different shapes of attention */
    size_t n_attn;
    float *passed; /* [max_rows][hidden]: x, from and to other ranks of a pipeline; or NULL */
    struct forward_relay *relay; /* keys and values for other ranks, forward_relay.h; NULL: none */
    struct lora_uses lora;
    struct adopted adopted; /* weights of the list, and of `lora` */
    struct observer observer;
    bool own_features; /* forward_set_feature() */
    struct hidden_tap tap;
    size_t first_output; /* of the next step: the last layer's output is needed from this row on */
};

/* Parts of a split model: its layers, then what follows them, and what precedes them. */
enum { SPLIT_HEAD, SPLIT_EMBED, SPLIT_PARTS };

/* Makes the list of operations, whose weights become memory of the backend, and allocates buffers for forward passes of
 * up to `max_rows` rows. `own` has the backend's own options. `model` and `kv`, whose memory is the backend's, are
 * borrowed, and so is `on_host`: the parts of a split model that the CPU computes; NULL: none. */
int forward_open(struct forward *forward, const struct model *model, const struct backend *backend,
                 const void *own, struct kv *kv, const bool *on_host, size_t max_rows,
                 struct err *err) MUST_USE;
void forward_close(struct forward *forward);

/* Exchanges the sides of a split model, without what their buffers hold. */
void forward_swap(struct forward *forward);

/* The list of a model's operations, for walks that add up what passes do: there are no cache and no buffers, and weights
 * need no data. */
int forward_list(struct op_list *list, const struct model *model, struct err *err) MUST_USE;
void forward_list_close(struct op_list *list);

/* Counts the operations of a model, for which no session is open. Needs no data of weights, see weights_shape(). */
int model_counts(struct op_counts *counts, const struct model *model,
                 const struct cache_types *kv_types, struct err *err) MUST_USE;

/* Makes every following step keep hidden states; an error if it cannot be allocated. */
int forward_tap(struct forward *forward, const size_t *layer, size_t n, struct err *err) MUST_USE;
void forward_tap_close(const struct forward *forward, struct hidden_tap *tap);

/* Reads hidden states [n][hidden] of a row of the last step. */
void forward_hidden(const struct forward *forward, size_t row, float *state);

/* Draft heads: sets the hidden states that row `row` of the next step reads, those of the target,
 * config_feature_width(), or with `own`, for all rows of a step, the head's own, hidden. */
void forward_set_feature(struct forward *forward, size_t row, bool own, const float *state);

/* Sets the rotary frequencies of sequence `seq`, which will grow to at most `length` tokens: some
 * RoPE scalings depend on it. Without this call `length` is the capacity of the cache. */
void forward_begin(struct forward *forward, size_t seq, size_t length);

/* True if both sequences have the same rotary frequencies, as sequences that share KV entries
 * must. */
bool forward_same_rope(const struct forward *forward, size_t a, size_t b);

/* Runs this rank's layers and appends K and V to the cache; the caller commits them afterwards.
 * forward_logits() then computes logits of any of the rows. After an error the cache's uncommitted
 * entries are undefined. */
int forward_step(struct forward *forward, const struct step *step, struct err *err) MUST_USE;

/* Before forward_step(): only rows from `first` on need logits and final hidden states. The last layer then stores
 * the keys and values of the rows before, but does not compute their output. In a single process without adapters;
 * else it has no effect. */
static inline void forward_skip_outputs(struct forward *forward, size_t first)
{
    const bool alone = !forward->shard.ranks && !forward->pipeline.ranks && !forward->lora.loras;
    forward->first_output = alone ? first : 0;
}

/* Computes logits[n][vocab] of the rows row[0..n) of the last forward_step(). */
int forward_logits(struct forward *forward, const size_t *row, size_t n, float *logits,
                   struct err *err) MUST_USE;

/* Computes the logits[n] of some tokens, below the vocabulary, for a row of the last forward_step(): those that
 * forward_logits() computes, of which only the needed blocks of the LM head are read. Fails in a process of several. */
int forward_token_logits(struct forward *forward, size_t row, const uint32_t *token, size_t n,
                         float *logits, struct err *err) MUST_USE;

/* Computes y[config_pooled_width()], what the model's dense layers after pooling, which it has, make of a pooled hidden
 * state x[hidden]. Hidden states of the last step are no longer valid afterwards, but those of a tap are. */
int forward_pooled(struct forward *forward, const float *x, float *y, struct err *err) MUST_USE;

/* forward_logits() in two halves, so that other steps can run in between: for rank 0 of a pipeline,
 * which receives logits from the last rank. forward_submit() returns the request's number. */
size_t forward_submit(struct forward *forward);
int forward_collect(struct forward *forward, size_t request, size_t n, float *logits,
                    struct err *err) MUST_USE;

/* Observes the inputs of all products of forward passes; NULL: no more. */
void forward_observe(struct forward *forward, observe_inputs *observe, void *arg);

/* Sums retrieval scores of heads, in a model whose layers have the same number of KV heads; NULL: no more. */
void forward_set_retrieval(struct forward *forward, struct retrieval_score *score);

/* Time that this rank has spent waiting for other ranks. */
static inline double forward_waited_ms(const struct forward *forward)
{
    return forward->shard.wait_ms + forward->pipeline.wait_ms;
}
