/* The inside of the generation loop: what strategies (step.h) work on. */
#ifndef BMC_LOOP_H
#define BMC_LOOP_H

#include <signal.h>

#include "decode/emitter.h"
#include "decode/gen_types.h"
#include "decode/step.h"
#include "kv/kv_need.h"

/* Of the session's cache, and of that of the session beside it. */
struct loop_needs {
    struct kv_need own, beside;
};

/* A place in the batch and the request in it. */
struct slot {
    bool busy;
    size_t seq; /* the sequence of the cache that has its rows: not the number of the place */
    const struct gen_request *request;
    struct ids *ids; /* the request's: prompt, then what was generated */
    size_t n_prompt;
    size_t n_best, n_prompt_best; /* log-probabilities beside a token's own */
    struct emitter emitter;
    size_t told_text, told_ids; /* handed to progress() already */
    struct logprob *logprobs;
    size_t logprobs_cap;
    struct logprob *prompt_logprobs; /* NULL: not asked for */
    size_t step_first, step_from,
        step_rows;      /* rows of the prompt in this step: the first one's place there and in the
                                                prompt, and how many */
    float *last_logits; /* those that chose the last token */
    size_t
        dropped; /* ids behind those that are kept whose rows were given up for others: see loop_make_room() */
    size_t row; /* of the step just run, whose logits choose the next token; SIZE_MAX: none */
    const struct beam *beams; /* of a strategy that has several texts, best first */
    size_t n_beams;
    struct ids before; /* of rows that the place still has, while it is free */
    size_t since;      /* when they came to stay: how many had before them */
    struct loop_needs
        need; /* under a budget of memory: what the place may take, or what stayed in it takes at most */
    bool silent; /* no token follows the prompt that is complete: -n 0, or the context is full */
};

/* Up to `stats` the caller's, the rest loop_open()'s. */
struct loop {
    struct session *session;
    const struct sampler_options *sampling; /* of requests that have none of their own */
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
    size_t n_stayed;                /* times that rows came to stay in a place */
    const struct gen_request *held; /* that waits for memory, or NULL */
    bool input_ended;
    bool failed; /* a step failed, or a snapshot could not be written: the run ends behind it */
    bool torn;   /* a step failed: what the strategy knows of its sequences may be half of it */
    struct err failure;
};

/* ---- the loop: loop.c ---- */

/* loop_close() follows on error, too. */
int loop_open(struct loop *loop, struct err *err) MUST_USE;
void loop_close(struct loop *loop);

/* Until there are no more requests, or the run is interrupted. */
int loop_run(struct loop *loop, struct err *err) MUST_USE;

/* The run's hash: of the 64-bit hashes, in input order, of the sequences that have a token. */
struct hash loop_hash(const struct loop *loop);

/* ---- what steps are made of: loop_step.c ---- */

/* What becomes of the logits that a slot has got. */
typedef int loop_use(struct loop *loop, struct slot *slot, const float *logits, struct err *err);

/* Takes the token that the sampler chooses. */
loop_use loop_sample;

/* Runs the step that was put together, of which all rows stay, and hands each slot the logits of its row, if it has one;
 * those that are not finite end it instead. */
int loop_step(struct loop *loop, int threads, loop_use *use, double *step_ms, struct err *err) MUST_USE;

/* The second half of it: loop->logits has those of the slots that have a row, in their order. */
int loop_hand_out(struct loop *loop, loop_use *use, struct err *err) MUST_USE;

/* Prompt rows of all slots that have any left, up to a chunk. */
int loop_prefill(struct loop *loop, struct err *err) MUST_USE;

/* ---- prompts that begin alike: loop_share.c ---- */

/* The first of the sequences that a place has. */
size_t loop_first_seq(const struct loop *loop, const struct slot *slot);

/* A request has ended well: its rows may stay for others that begin like it. */
void loop_remember(struct loop *loop, struct slot *slot);

/* The place is free: its sequences are dropped, but for rows that stay. */
void loop_leave(struct loop *loop, struct slot *slot);

/* A request has come, and its ids: of the rows that are left there it keeps those that it would compute again. */
void loop_reuse(struct loop *loop, struct slot *slot);

/* Before the first rows of a prompt: those that others have are taken from them. *ready is false when others are about to
 * compute them. */
int loop_share(struct loop *loop, struct slot *slot, bool *ready, struct err *err) MUST_USE;

/* Rows that stayed in a free place go. */
void loop_forget(struct loop *loop, struct slot *slot);

/* ---- a budget of memory: loop_admit.c ---- */

/* True when the request may take the free place: what it may need is set aside then. Rows that stay behind others go where that
 * makes room for it. One that does not even fit alone comes in, too: it ends at once, and its result says so, or the cache does
 * when it is full, since a text may end before it has all its rows. */
bool loop_admit(struct loop *loop, struct slot *slot, const struct gen_request *request);

/* Bytes that a request may need when they are beyond the budget; 0: they are not. */
size_t loop_too_large(const struct loop *loop, const struct gen_request *request);

/* Bytes that its prompt must have in memory when they are beyond the cache's own limit; 0: they are not. *need: of all
 * of it. */
size_t loop_beyond_limit(const struct loop *loop, const struct gen_request *request,
                         struct kv_need *need);

/* ---- a full context: loop_again.c ---- */

/* Ids that have a row, or had one. */
size_t loop_rows(const struct loop *loop, const struct slot *slot);

/* Before a step: full contexts begin anew, if the session is one of those where they do. */
int loop_make_room(struct loop *loop, struct err *err) MUST_USE;
int loop_make_room_for(struct loop *loop, struct slot *slot, struct err *err) MUST_USE;

/* ---- the life of a slot: loop_slot.c ---- */

/* Tokens generated so far. */
size_t loop_generated(const struct slot *slot);

/* Tokens that can still follow those of the slot: what the policy has rows for. */
size_t loop_left(const struct loop *loop, const struct slot *slot);

/* The slot's settings: its request's, or those of the run. */
const struct sampler_options *loop_sampling(const struct loop *loop, const struct slot *slot);

/* The request takes the free place; what is impossible ends at once, with a result that says so. */
int loop_begin(struct loop *loop, struct slot *slot, const struct gen_request *request,
               struct err *err) MUST_USE;

/* True for ids that end the request's text. */
bool loop_ends(const struct loop *loop, const struct gen_request *request, uint32_t id);

/* The slot's next token by the slot's settings, which loop->sampler has afterwards, with what it chose from. */
uint32_t loop_choose(struct loop *loop, const struct slot *slot, const float *logits);

/* `id` was chosen by `logits`, finite ones: emits it, and ends the sequence (slot->busy is false then) where it
 * ends. */
int loop_take(struct loop *loop, struct slot *slot, uint32_t id, const float *logits,
              struct err *err) MUST_USE;

/* The slot's result goes out and its place is free again; its request may be gone. */
int loop_finish(struct loop *loop, struct slot *slot, enum gen_finish finish, const char *error,
                struct err *err) MUST_USE;

#endif
