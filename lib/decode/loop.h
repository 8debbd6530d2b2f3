/* The state of the generation loop, for its own files and for decoding strategies (step.h). */
#pragma once

#include <signal.h>

#include "decode/sample/token_mask.h"
#include "decode/text_streamer.h"
#include "decode/gen_types.h"
#include "decode/prefix_store.h"
#include "decode/pressure.h"
#include "decode/pressure_log.h"
#include "decode/step.h"
#include "kv/kv_footprint.h"

/* Memory reserved in the target model's KV cache (`target`) and in the draft model's. */
struct loop_footprints {
    struct kv_footprint target, draft;
};

/* What may follow in an answer: anything; in a thought, anything for as long as its budget lasts; then the tokens that
 * close it; or what the constraint allows. */
enum phase { PHASE_TEXT, PHASE_THOUGHT, PHASE_CLOSING, PHASE_CONSTRAINED };

enum { PHASE_MARKERS = 2 + ANSWER_TRIGGERS };

struct answer_phase {
    enum phase now;
    size_t matched
        [PHASE_MARKERS]; /* bytes of each marker, as loop_phase.c counts them, that the text ends with */
    size_t n_thought, n_closed; /* tokens of thoughts, and of those that close one */
    /* of each marker that a constraint follows: tokens that must not cross its end; the constraint's */
    struct {
        const struct crossing *token;
        size_t n;
    } crossings[PHASE_MARKERS];
};

enum pressure_step { STEP_OFFLOAD, STEP_CONVERT, STEP_REFUSE, N_STEPS };

/* State of pressure.h. */
struct pressure {
    struct pressure_options options;
    enum pressure_step step[N_STEPS];
    size_t n_steps;
    struct pressure_log log;
    bool converts;  /* sequences can be converted: STEP_CONVERT */
    double smaller; /* bytes of a converted sequence, as a part of those before */
    bool suspends;  /* requests may have to wait: STEP_REFUSE */
    size_t n_begun; /* requests so far */
    size_t limit;   /* bytes that the file of the limit had when it was read last */
    /* The latest measurement: bytes left, negative if the limit is exceeded, while the cache had `used`. */
    long long room;
    size_t used, margin, strain;
    double measured_ms, calm_ms; /* when it was; when the system was not strained any more */
    double waits_until_ms;       /* the last request, at most; 0: it need not wait */
};

/* A slot of the batch, and the request that it serves while `busy`. */
struct slot {
    bool busy;
    /* Waits for memory, and has no KV entries: not busy, but its request goes on later, from its prompt or not. */
    bool suspended, resumes_prompt;
    size_t number; /* of the request, in the order in which they start; under memory pressure */
    /* Tokens, as loop_processed() counts them, at which its sequence will be converted, and was; SIZE_MAX: not. */
    size_t convert_at, converted_at;
    size_t seq; /* KV cache sequence of the request, which is not the slot's index */
    const struct gen_request *request;
    struct ids *ids; /* the request's tokens: the prompt, then generated ones */
    size_t n_prompt;
    size_t n_best, n_prompt_best; /* alternatives to report per generated and per prompt token */
    struct text_streamer text_streamer;
    size_t streamed_text, streamed_ids; /* bytes and tokens already passed to progress() */
    struct logprob *logprobs;
    size_t logprobs_cap;
    struct logprob *prompt_logprobs; /* NULL: not requested */
    /* The part of the prompt in this prefill pass: index of its first token in the batch, index of
     * that token in the prompt, number of tokens. */
    size_t chunk_row, chunk_from, chunk_len;
    size_t n_cached;    /* tokens of the prompt before its first chunk: gen_result.n_cached */
    float *last_logits; /* logits that the last token was chosen from */
    struct hash hash;   /* gen_result.logits_hash, once the request has ended */
    size_t n_discarded; /* tokens that context shifts have discarded: context_recompute() */
    size_t row; /* index in the batch of the token whose logits give the next one; SIZE_MAX: none */
    const struct beam *beams; /* from beam search, best first */
    size_t n_beams;
    struct ids cached;  /* of a free slot: tokens whose KV entries it retains for later requests */
    size_t retained_at; /* loop->n_retained when they were retained: the lowest is evicted first */
    struct prefix_chain chain; /* of the request's blocks in the prefix cache on disk */
    bool looked_up;            /* the prompt was looked up there */
    struct hash claim;         /* its block that this process has claimed to compute, if `claims` */
    bool claims;
    /* KV cache memory reserved under a memory limit: for the request, or for retained entries. */
    struct loop_footprints footprint;
    double mirostat_mu; /* state of Mirostat, see sampler.h */
    struct answer_phase phase;
    struct constraint_cursor constrained; /* after the generated tokens, once the constraint applies */
    struct ids ends;                      /* of a constrained request: tokens that end it */
    bool prefill_only; /* no token is generated after the prompt: -n 0, or the context is full */
};

/* State of a generate() call, which sets the members up to `stats`; the loop sets the others. */
struct loop {
    struct session *session;
    const struct sampler_options *sampling; /* for requests without their own */
    const struct step_strategy *strategy;
    const struct gen_callbacks *callbacks;
    const volatile sig_atomic_t *interrupted;
    struct gen_stats *stats;
    struct sampler sampler;
    struct token_mask mask; /* scratch; the sampler's `allowed` points into it */
    struct logprobs scratch;
    struct slot *slot;
    size_t n_slots;
    float *logits;          /* [slots][vocab]: logits of the last pass, one vector per logits_row */
    size_t *logits_row;     /* [slots]: slot.row of the slots that need logits */
    struct hash *line_hash; /* [n_lines]: gen_result.logits_hash by input line */
    size_t n_lines, lines_cap;
    size_t n_retained;                 /* requests so far whose KV entries were retained */
    const struct gen_request *waiting; /* waits for admission; or NULL */
    /* While another process computes the block `awaited` of the next request: since when, and when it was
     * looked for last, by clock_ms(); 0: no request waits. */
    struct hash awaited;
    double awaits_since_ms, awaited_at_ms;
    bool input_ended;
    bool failed;      /* a step failed, or a snapshot could not be written: the run ends after it */
    bool step_failed; /* a step failed: the strategy's state may be inconsistent */
    struct err failure;
};

/* ---- the loop: loop.c ---- */

void loop_close(struct loop *loop);

/* ---- forward passes: loop_step.c ---- */

/* A callback that gets the logits after the slot's last token, for example to sample from them. */
typedef int loop_logits_fn(struct loop *loop, struct slot *slot, const float *logits, struct err *err);

/* The callback that samples the next token from the logits and appends it to the request. */
loop_logits_fn loop_append_sampled;

/* The second half of loop_step(): calls `use` for each slot whose `row` is set. loop->logits must
 * hold their logits, in order of slots. */
int loop_dispatch_logits(struct loop *loop, loop_logits_fn *use, struct err *err) MUST_USE;

/* Runs one prefill pass over at most session_options.chunk prompt tokens of all slots together. */
int loop_prefill(struct loop *loop, struct err *err) MUST_USE;

/* ---- prefix caching: prefix_cache.c ---- */

/* The first of the strategy->width KV cache sequences that belong to the slot. */
size_t loop_first_seq(const struct loop *loop, const struct slot *slot);

/* At the end of a request: marks its KV entries to be retained for later requests, if they fit. */
void prefix_cache_retain(struct loop *loop, struct slot *slot);

/* After prefix_cache_retain(): clears the slot's cache sequences, except for retained entries. */
void prefix_cache_release(struct loop *loop, struct slot *slot);

/* At the start of a request: keeps those KV entries retained in its slot that match the prompt, and
 * drops the others. */
void prefix_cache_reuse(struct loop *loop, struct slot *slot);

/* Before a prompt's first chunk: copies or shares the KV entries of the longest matching prefix in
 * another slot. *ready is false if it is better to wait until that slot has computed them. */
int prefix_cache_use(struct loop *loop, struct slot *slot, bool *ready, struct err *err) MUST_USE;

/* Leading tokens of the slot's prompt whose KV entries may be reused; the last ones are always computed, for their
 * logits or hidden states. */
size_t prefix_cache_limit(const struct loop *loop, const struct slot *slot);

/* Lets a model with recurrent state keep the states at which the slot's prompt may be needed again: by
 * another request, after loading a snapshot, or when the best beam is known. */
void prefix_cache_mark(const struct loop *loop, const struct slot *slot);

/* Drops the KV entries that a free slot retains for prefix caching. */
void prefix_cache_evict(struct loop *loop, struct slot *slot);

/* ---- prefix caching on disk: loop_prefix_store.c; without effect unless the session has a store ---- */

/* Before a request starts in the slot: true if it is better to wait, for at most a minute, until another
 * process has computed the next block of its prompt. Otherwise claims that block for the slot. */
bool prefix_store_await(struct loop *loop, struct slot *slot, const struct gen_request *request);

/* At the start of a request. */
void prefix_store_start(struct loop *loop, struct slot *slot);

/* Before a prompt's first chunk, after prefix_cache_use(): loads KV entries of the prompt. */
int prefix_store_use(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* Stores the slot's new KV entries, and recurrent states that are due; `ended`: when the request has ended. After a pass
 * over prompts, prefix_store_advance() also claims the prompt's next block, before others can find it unclaimed. */
void prefix_store_add(struct loop *loop, struct slot *slot, bool ended);
/* After a decoding step: stores the states of answers that are due. */
void prefix_store_step(struct loop *loop);
void prefix_store_advance(struct loop *loop, struct slot *slot);

/* When the slot is freed: gives its claim up. */
void prefix_store_unclaim(struct loop *loop, struct slot *slot);

/* ---- admission control: admission.c ---- */

/* True if the request may start in the free slot; its memory is then reserved, and retained entries
 * are evicted as needed. A request that does not fit even alone is admitted as well: loop_begin()
 * ends it with an error, or it runs until it ends or the cache is full. */
bool admission_try(struct loop *loop, struct slot *slot, const struct gen_request *request);

/* Bytes of KV cache that the request may need, if above session_options.memory_bytes; else 0. */
size_t admission_over_budget(const struct loop *loop, const struct gen_request *request);

/* Bytes of memory that the request's prompt needs at least, if they exceed the limit of a KV
 * cache with offload (ram=); otherwise 0. *need is set to the footprint of the whole request. */
size_t admission_over_limit(const struct loop *loop, const struct gen_request *request,
                            struct kv_footprint *need);

/* ---- memory pressure: pressure.c, loop_convert.c; but for pressure_relieve(), without effect if there are no
 * session_options.pressure ---- */

static inline struct pressure *pressure_of(const struct loop *loop)
{
    return session_options(loop->session)->pressure;
}

/* Number of the slot's tokens that are in the KV cache or were discarded by context shifts. */
size_t loop_processed(const struct loop *loop, const struct slot *slot);

/* Between steps: reacts to memory that is short, and resumes requests. */
int pressure_relieve(struct loop *loop, struct err *err) MUST_USE;

/* True if there is memory for the request to start, or if no other one is in flight. */
bool pressure_admits(struct loop *loop, const struct gen_request *request);

/* At the start of a request; when its sequence, of `processed` tokens, is computed again with other positions or rotary
 * frequencies. */
void pressure_begin(struct loop *loop, struct slot *slot);
void pressure_restart(struct loop *loop, struct slot *slot, size_t processed);

/* Most tokens that the slot's next pass may have, so that its sequence can be converted where it is to be. */
size_t pressure_left(const struct loop *loop, const struct slot *slot);

/* Converts the slot's sequence if it is to be converted at its present length. */
int pressure_convert(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* ---- sequences that are computed again: context_recompute.c ---- */

/* Before a step, of all slots or of one: computes sequences again that now need other rotary frequencies
 * (session_unscaled()); and, under session_options.recompute, shifts full contexts, by recomputing the
 * kept tokens and the newer half of the others at positions from 0. */
int context_recompute(struct loop *loop, struct err *err) MUST_USE;
int context_recompute_slot(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* Computes the sequence of a slot that was suspended again, as it was. */
int loop_compute_again(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* Tokens that the slot's sequence may have in the end. */
size_t loop_planned(const struct loop *loop, const struct slot *slot);

/* Prefills the next n tokens of a cache sequence, in chunks. */
int loop_feed(struct loop *loop, size_t seq, const uint32_t *id, size_t n, struct err *err) MUST_USE;

/* ---- phases of answers, and constraints: loop_phase.c ---- */

/* At the start of a request; at its end, or that of the run. */
int loop_phase_begin(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;
void loop_phase_end(struct slot *slot);

/* The constraint that applies to the slot's next token; NULL: none. */
struct constraint *loop_constraint(const struct slot *slot);

/* Before sampling: sets loop->sampler.allowed to the tokens that may follow the slot's. Fails if there
 * are none; the request should then end with the error. */
int loop_constrain(struct loop *loop, const struct slot *slot, struct err *err) MUST_USE;

/* After a token of the text; *complete: no token may follow. */
int loop_phase_advance(struct loop *loop, struct slot *slot, uint32_t id, bool *complete,
                       struct err *err) MUST_USE;

/* ---- the life of a slot: loop_slot.c ---- */

size_t loop_in_flight(const struct loop *loop); /* number of requests in flight */

/* Tokens generated so far, and tokens that can still be generated before the context is full. */
size_t loop_generated(const struct slot *slot);
size_t loop_remaining(const struct loop *loop, const struct slot *slot);

/* The sampler settings of the slot's request, or, if it has none, those given to generate(). */
const struct sampler_options *loop_sampling(const struct loop *loop, const struct slot *slot);

/* Starts a request in a free slot. One that cannot be served ends at once with an error result. */
int loop_begin(struct loop *loop, struct slot *slot, const struct gen_request *request,
               struct err *err) MUST_USE;

/* True if the id ends the sequence: EOS or an end token of the request; false with ignore_eos. */
bool loop_is_end_token(const struct loop *loop, const struct gen_request *request, uint32_t id);

/* Samples the slot's next token with its request's sampler settings; loop->sampler then holds these
 * settings and the candidate tokens. loop_constrain() must have been called. */
uint32_t loop_sample_token(struct loop *loop, struct slot *slot, const float *logits);

/* Appends a token that was chosen from finite `logits`, and streams it. If it ends the request,
 * slot->busy is false afterwards. */
int loop_append(struct loop *loop, struct slot *slot, uint32_t id, const float *logits,
                struct err *err) MUST_USE;

/* Ends the slot's request, which is wrong itself: a failure without another code becomes ERR_INVALID. */
int loop_refuse(struct loop *loop, struct slot *slot, struct err *why, struct err *err) MUST_USE;

/* Ends the slot's request with the reason why its logits are not finite. */
int loop_finish_damaged(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* True if the request's caller has cancelled it. */
bool loop_is_cancelled(const struct gen_request *request);

/* Calls progress() without new text, so that it can cancel a request whose text comes later. */
int loop_ask(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* Ends the slot's request: delivers its result and frees the slot, whose `request` is then NULL. */
int loop_finish(struct loop *loop, struct slot *slot, enum gen_finish finish, const struct err *error,
                struct err *err) MUST_USE;
