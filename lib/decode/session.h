/* A session: a model with a KV cache for a batch of sequences. Tokens go in, logits come out. */
#pragma once

#include "cpu/cpu.h"
#include "decode/leader.h"
#include "format/kvfile/kvfile.h"
#include "model/forward.h"

/* Defaults of options that the programs and the public library have; macros, so that help texts show them. */
#define DEFAULT_POLICY      "bmc"
#define DEFAULT_CONTEXT     4096 /* at most the model's */
#define DEFAULT_CHUNK       512
#define DEFAULT_KEPT_STATES 8

/* The largest number of sequences that options accept. */
#define MOST_SEQUENCES 65536

struct session_options {
    struct kv_spec kv;
    struct cache_types kv_types;   /* copied by session_open() */
    const struct backend *backend; /* what runs forward passes; NULL: the first of `backends` */
    /* Layers that a device computes, the last ones, of which the output layer is one; 0: all. The CPU computes the others and,
     * with `fallback`, those that the device cannot (split_layers()). */
    size_t gpu_layers;
    bool fallback;
    struct cpu_options cpu; /* own options of the CPU's backend */
    size_t context;         /* N: context length of each sequence, in tokens */
    size_t batch;           /* B: number of sequences */
    size_t chunk;           /* maximum tokens in a prefill pass */
    size_t rows;            /* maximum tokens in other passes; raised to `batch` if lower */
    size_t memory_bytes;    /* limit on the cache's memory, enforced by admission control; 0: none */
    bool split;             /* one attention call per sequence (BASS paper 3.2, BASS-SPLIT) */
    bool recompute;         /* context shift with recomputation when the context is full */
    size_t keep;            /* tokens at the beginning that a context shift keeps, at least */
    int threads, threads_prefill;
    struct leader *leader; /* command stream, on rank 0 of a parallel model; else NULL */
    /* Of models with recurrent state: states kept for prefix caching, at regular positions; and passes
     * that can be undone, for drafters. */
    size_t kept_states, recent_states;
    size_t prefix_cache_bytes; /* maximum size of KV entries and states kept for prefix caching */
    struct prefix_store *prefix_store; /* prefix cache on disk, borrowed; NULL: none */
    /* Distance of the recurrent states that it stores, in tokens, and bytes of its folder; 0: by cost if there is a prefix
     * cache on disk, session_stored_from(); any size. */
    size_t stored_every, stored_bytes;
    /* reactions to memory pressure (decode/pressure.h), borrowed; NULL: none */
    struct pressure *pressure;
};

struct session;
struct prefix_store;

/* Allocates a session. The model is borrowed, the options are copied. On error *session is NULL. */
int session_open(struct session **session, const struct model *model,
                 const struct session_options *options, struct err *err) MUST_USE;
void session_close(struct session *session); /* NULL is accepted */

/* ---- properties ---- */

const struct model *session_model(const struct session *session);
size_t session_vocab(const struct session *session);

/* The options in effect: `chunk` is lower than requested where the cache limits a pass, `stored_every` is
 * the distance chosen. */
const struct session_options *session_options(const struct session *session);

/* What decided the distance of stored states, of the following the one with the largest distance (session.c): "kv"
 * (bytes of KV entries), "computing" (multiply-adds of tokens), "folder" (its bytes), "pass" (of its tokens, options.chunk)
 * or "least"; or "option"; NULL: none are stored. */
const char *session_stored_from(const struct session *session);

/* The KV cache, for statistics and memory accounting; change it by the functions below only. */
struct kv *session_kv(const struct session *session);

/* The largest number of tokens in a forward pass. */
size_t session_max_tokens(const struct session *session);

/* True if the same tokens at the same positions get the same KV entries in both sequences, which
 * needs the same adapters and equal rotary frequencies: these may depend on the length given to
 * session_begin(). */
bool session_same_entries(const struct session *session, size_t a, size_t b);

/* Layers that a device computes, and the output layer; and which parts the CPU computes of a model that is split, [layers +
 * SPLIT_PARTS], or NULL. */
size_t session_device_layers(const struct session *session);
const bool *session_on_host(const struct session *session);

/* Time that this rank has waited for other ranks, in ms. */
double session_wait_ms(const struct session *session);

/* The session's struct forward, for callers that observe forward passes by setting its `times`,
 * `layer_done`, or by its functions. NULL removes an observer. */
struct forward *session_pass(struct session *session);

/* ---- sequences ---- */

/* Tokens committed to a sequence, including those whose KV entries the cache has evicted. */
size_t session_length(const struct session *session, size_t seq);

/* Tokens that can still be committed to a sequence; SIZE_MAX if sequences are not bounded.
 * Sequences are bounded by the context length, except in a rolling cache; and even there if the
 * model has learned positions or options.recompute is set. */
size_t session_remaining(const struct session *session, size_t seq);
bool session_is_bounded(const struct session *session);

/* Number of leading tokens that stay where a sequence is cut to fit the context: options.keep, and at
 * least those that the tokenizer put in front (BOS), without which many models lose the thread. Room
 * for another token is left. */
size_t session_kept_tokens(const struct session *session, const uint32_t *id, size_t n);

/* Starts a sequence that has `tokens` tokens so far, the prompt, and will have at most min(length, context):
 * rotary frequencies and the first allocation of the cache may depend on them. KV entries that the
 * sequence retains are dropped if they were computed with other frequencies. */
void session_begin(struct session *session, size_t seq, size_t tokens, size_t length);

/* Dynamic and LongRoPE scaling: rotary frequencies change once a sequence is longer than the model's original
 * context. session_scaled(): the sequence uses the scaled frequencies. session_unscaled(): tokens that can be added
 * before they change; at 0, begin the sequence again with all its tokens. SIZE_MAX: they do not change. */
bool session_scaled(const struct session *session, size_t seq);
size_t session_unscaled(const struct session *session, size_t seq);

/* Sets the factors of the model's LoRA adapters for a sequence (lora.h), NULL: 1 each. Drops its KV entries
 * if they were computed with others. */
void session_adapt(struct session *session, size_t seq, const float *lora_factor);

/* ---- the batch of the next forward pass ---- */

/* Tokens in the batch; and how many more fit, if all are of the same sequence. */
size_t batch_tokens(const struct session *session);
size_t batch_space(const struct session *session);

/* Adds the next `n` tokens of a sequence, n <= batch_space(), at most once per sequence and pass.
 * Returns the row of the first token: its index in the batch. */
size_t batch_add(struct session *session, size_t seq, const uint32_t *token, size_t n);

/* batch_add() for a token tree: token i has position session_length() + depth[i] and attends to the
 * committed entries and to the tree's tokens ancestors[ancestors_at[i] .. ancestors_at[i + 1]),
 * which are the ancestors of i and i itself. Both arrays must stay valid until the pass has run. */
size_t batch_add_tree(struct session *session, size_t seq, const uint32_t *token, const size_t *depth,
                      size_t n, const uint32_t *ancestors, const size_t *ancestors_at);

/* ---- forward passes ---- */

/* Runs a forward pass over the batch; the next batch_add() starts a new batch. The new KV entries
 * are pending until session_accept() is called for each of their sequences. */
int session_forward(struct session *session, int threads, struct err *err) MUST_USE;

/* Before a pass: only rows >= first of the batch need logits and final hidden states, which saves most of the
 * last layer's work for the others. */
void session_skip_outputs(struct session *session, size_t first);

/* session_forward() for a batch in the caller's arrays. */
int session_forward_step(struct session *session, const struct step *step, int threads,
                         struct err *err) MUST_USE;

/* Commits those pending entries of a sequence whose indices are in row[0..n), ascending, counted
 * from the sequence's first token in the batch; drops the others. */
void session_accept(struct session *session, size_t seq, const size_t *row, size_t n);

/* Commits the first n pending entries of a sequence; drops the others. */
void session_commit(struct session *session, size_t seq, size_t n);

/* Runs a forward pass over the batch and commits all its KV entries. */
int session_run(struct session *session, int threads, struct err *err) MUST_USE;

/* Computes logits[n][vocab] after n tokens of the last pass: row[i] is the index of token i in its
 * batch, see batch_add(). */
int session_logits(struct session *session, const size_t *row, size_t n, float *logits,
                   struct err *err) MUST_USE;

/* Fails with the reason why `whose` session ("the model") gives no finite `values` ("logits"). */
int session_refuse_output(const struct session *session, const char *whose, const char *values,
                          struct err *err);

/* True if further passes may run between submitting a logits request and collecting it: under
 * pipeline parallelism later stages compute the logits meanwhile. */
bool session_is_async(const struct session *session);

/* session_logits() in two halves: session_submit() requests the logits and sets *request to the
 * number of the request, session_collect() waits for them. */
int session_submit(struct session *session, const size_t *row, size_t n, size_t *request,
                   struct err *err) MUST_USE;
int session_collect(struct session *session, size_t request, size_t n, float *logits,
                    struct err *err) MUST_USE;

/* ---- hidden states, for drafters that read them ---- */

/* Makes every following pass keep hidden states of all its tokens: the residual stream that enters
 * the given layers (HIDDEN_FINAL: the output of the final norm; the number of layers: what enters
 * that norm). Fails under pipeline parallelism, where other ranks have them. */
int session_tap(struct session *session, const size_t *layer, size_t n, struct err *err) MUST_USE;

/* Reads the hidden states [n][hidden] of a row of the last pass. */
void session_hidden(const struct session *session, size_t row, float *state);

/* Of a draft head's session: sets the hidden state that row `row` of the next pass reads; `own`, the same for all
 * rows of a pass, tells the head's own (hidden elements) from the target's (config_feature_width()). */
void session_set_feature(struct session *session, size_t row, bool own, const float *state);

/* ---- changing sequences ---- */

/* session_fork(): the empty sequence `to` gets the first `rows` KV entries of `from`, copied or
 * shared. session_reorder(): beam i, in sequence seq[i], continues parent[i]; updates seq[i]. */
int session_fork(struct session *session, size_t to, size_t from, size_t rows,
                 struct err *err) MUST_USE;
int session_reorder(struct session *session, size_t *seq, const size_t *parent, size_t n,
                    struct err *err) MUST_USE;

/* The last position up to `rows` at which a sequence can be truncated or forked: `rows`, except in models
 * with recurrent state, which keep few states. session_mark() makes that of a position kept which the
 * sequence has not passed yet. */
size_t session_rewind(const struct session *session, size_t seq, size_t rows);
void session_mark(struct session *session, size_t seq, size_t position);

/* Truncates a sequence to its first `rows` tokens, see kv_truncate(); session_clear() keeps none
 * and releases the memory. */
void session_truncate(struct session *session, size_t seq, size_t rows);
void session_clear(struct session *session, size_t seq);

/* Appends copies of KV entries [first, first + rows) in the caller's memory, see kv_extend(). Not if
 * the model is split over ranks. */
int session_extend(struct session *session, size_t seq, const struct kv_layer_rows *layer, size_t first,
                   size_t rows, size_t stored, size_t expected, struct err *err) MUST_USE;

/* True if some KV entries of the sequence may come from a snapshot: it may have been made with other
 * kernels, another precision or another cache type, so that their bits may differ from computed ones. */
bool session_has_foreign(const struct session *session, size_t seq);

/* Takes ownership of a mapped snapshot file, adopted by the cache's memory at `at`, after kv_attach() of its KV entries to a sequence. The
 * file is unmapped once the sequence uses none of them in place: at once if they were copied. */
void session_hold_mapping(struct session *session, size_t seq, struct kvfile_rows mapping,
                          struct device_addr at);
