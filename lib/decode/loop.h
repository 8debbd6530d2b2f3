/* The state of the generation loop, for its own files and for decoding strategies (step.h). */
#ifndef BMC_LOOP_H
#define BMC_LOOP_H

#include <signal.h>

#include "decode/text_streamer.h"
#include "decode/gen_types.h"
#include "decode/strategy/step.h"
#include "kv/kv_footprint.h"

/* Memory reserved in the session's cache and in the draft model's. */
struct loop_footprints {
    struct kv_footprint own, draft;
};

/* A slot of the batch and the request in it. */
struct slot {
    bool busy;
    size_t seq; /* cache sequence with the request's KV entries: not the slot's index */
    const struct gen_request *request;
    struct ids *ids; /* the request's: the prompt, then generated tokens */
    size_t n_prompt;
    size_t n_best, n_prompt_best; /* alternatives reported beside each token's log-probability */
    struct text_streamer text_streamer;
    size_t streamed_text, streamed_ids; /* already passed to progress() */
    struct logprob *logprobs;
    size_t logprobs_cap;
    struct logprob *prompt_logprobs; /* NULL: not requested */
    /* Of the prompt's chunk in this pass: first row in the batch, first token, number of tokens. */
    size_t chunk_row, chunk_from, chunk_len;
    float *last_logits;       /* logits that the last token was chosen from */
    size_t n_discarded;       /* tokens that context shifts have discarded: context_recompute() */
    size_t row;               /* row of the last pass that the next token comes from; SIZE_MAX: none */
    const struct beam *beams; /* from beam search, best first */
    size_t n_beams;
    struct ids cached;  /* while the slot is free: tokens whose KV entries it retains */
    size_t retained_at; /* age of the retained entries: loop->n_retained at that time */
    /* Memory reserved under a memory limit: for the request, or for the retained entries. */
    struct loop_footprints footprint;
    bool prefill_only; /* no token follows the prompt: -n 0, or the context is full */
};

/* generate() sets the members up to `stats`, the others follow from them. */
struct loop {
    struct session *session;
    const struct sampler_options *sampling; /* for requests without their own */
    const struct step_strategy *strategy;
    const struct gen_callbacks *callbacks;
    const volatile sig_atomic_t *interrupted;
    struct gen_stats *stats;
    struct sampler sampler;
    struct logprobs scratch;
    struct slot *slot;
    size_t n_slots;
    float *logits;          /* [slots][vocab] */
    size_t *logits_row;     /* [slots] */
    struct hash *line_hash; /* by input line */
    size_t n_lines, lines_cap;
    size_t n_retained;                 /* requests so far whose KV entries were retained */
    const struct gen_request *waiting; /* waits for admission; or NULL */
    bool input_ended;
    bool failed;      /* a step failed, or a snapshot could not be written: the run ends after it */
    bool step_failed; /* a step failed: the strategy's state may be inconsistent */
    struct err failure;
};

/* ---- the loop: loop.c ---- */

void loop_close(struct loop *loop);

size_t loop_in_flight(const struct loop *loop); /* number of requests */

/* ---- forward passes: loop_step.c ---- */

/* Uses the logits of a slot's row, for example to choose the next token. */
typedef int loop_logits_fn(struct loop *loop, struct slot *slot, const float *logits, struct err *err);

/* Samples a token and appends it. */
loop_logits_fn loop_append_sampled;

/* Runs the batch, commits all entries and calls `use` for each slot with a row. A slot whose logits
 * are not finite ends with an error instead. Adds the time of the pass to *step_ms. */
int loop_step(struct loop *loop, int threads, loop_logits_fn *use, double *step_ms,
              struct err *err) MUST_USE;

/* The second half of loop_step(), given the logits of slots with a row, in order of slots. */
int loop_dispatch_logits(struct loop *loop, loop_logits_fn *use, struct err *err) MUST_USE;

/* One prefill pass: up to a chunk of the prompts of all slots. */
int loop_prefill(struct loop *loop, struct err *err) MUST_USE;

/* ---- prefix caching: prefix_cache.c ---- */

/* The first of the slot's cache sequences. */
size_t loop_first_seq(const struct loop *loop, const struct slot *slot);

/* At the end of a request: retains its KV entries for reuse, if they fit. */
void prefix_cache_retain(struct loop *loop, struct slot *slot);

/* Frees the slot: clears its sequences except for retained entries. */
void prefix_cache_release(struct loop *loop, struct slot *slot);

/* At the start of a request: keeps those retained entries of the slot that match its prompt. */
void prefix_cache_reuse(struct loop *loop, struct slot *slot);

/* Before a prompt's first chunk: forks the longest matching prefix from another slot. *ready is
 * false if it is better to wait until another slot has computed the prefix. */
int prefix_cache_use(struct loop *loop, struct slot *slot, bool *ready, struct err *err) MUST_USE;

/* Drops the entries that a free slot retains. */
void prefix_cache_evict(struct loop *loop, struct slot *slot);

/* ---- admission control: admission.c ---- */

/* True if the request may start in the free slot; its memory is then reserved, and retained entries
 * are evicted as needed. A request that does not fit even alone is admitted as well: loop_begin()
 * ends it with an error, or the cache does when it is full, as generation may end earlier. */
bool admission_try(struct loop *loop, struct slot *slot, const struct gen_request *request);

/* Bytes that the request may need, if they exceed the memory limit; otherwise 0. */
size_t admission_over_budget(const struct loop *loop, const struct gen_request *request);

/* Bytes that the request's prompt needs at least, if they exceed the cache's own limit; otherwise
 * 0. *need is set to the footprint of the whole request. */
size_t admission_over_limit(const struct loop *loop, const struct gen_request *request,
                            struct kv_footprint *need);

/* ---- context shift with recomputation: context_recompute.c ---- */

/* Tokens of the slot that have been computed, including discarded ones. */
size_t loop_processed(const struct loop *loop, const struct slot *slot);

/* Before a step, under session_options.recompute: shifts full contexts. Recomputes the first `keep`
 * tokens and the newer half of the others at positions from 0. */
int context_recompute(struct loop *loop, struct err *err) MUST_USE;
int context_recompute_slot(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* ---- the life of a slot: loop_slot.c ---- */

/* Tokens generated so far, and tokens that can still be generated before the context is full. */
size_t loop_generated(const struct slot *slot);
size_t loop_remaining(const struct loop *loop, const struct slot *slot);

/* The sampler settings of the slot's request, or of the run. */
const struct sampler_options *loop_sampling(const struct loop *loop, const struct slot *slot);

/* Starts a request in a free slot. One that cannot be served ends at once with an error result. */
int loop_begin(struct loop *loop, struct slot *slot, const struct gen_request *request,
               struct err *err) MUST_USE;

/* True for EOS and the request's own end tokens. */
bool loop_is_end_token(const struct loop *loop, const struct gen_request *request, uint32_t id);

/* Samples with the slot's settings; loop->sampler then holds them and the candidates. */
uint32_t loop_sample_token(struct loop *loop, const struct slot *slot, const float *logits);

/* Appends a token that was chosen from finite `logits`, and streams it. Where it ends the request,
 * slot->busy is false afterwards. */
int loop_append(struct loop *loop, struct slot *slot, uint32_t id, const float *logits,
                struct err *err) MUST_USE;

/* Delivers the slot's result and frees the slot; slot->request is invalid afterwards. */
int loop_finish(struct loop *loop, struct slot *slot, enum gen_finish finish, const char *error,
                struct err *err) MUST_USE;

#endif
