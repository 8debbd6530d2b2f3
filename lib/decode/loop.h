/* The inside of the generation loop: what plain and speculative steps share. */
#ifndef BMC_LOOP_H
#define BMC_LOOP_H

#include "decode/generate.h"

/* A place in the batch and the sequence in it; the cache's sequence has the same number. */
struct slot {
    bool busy;
    struct gen_request request;
    struct ids all; /* prompt, then what was generated */
    struct emitter emitter;
    size_t told_text, told_ids; /* handed to progress() already */
    struct logprob *logprobs;
    size_t logprobs_cap;
    struct logprob *prompt_logprobs; /* NULL: not asked for */
    size_t step_first, step_from,
        step_rows;      /* rows of the prompt in this step: the first one's place there and in the
                                                prompt, and how many */
    float *last_logits; /* those that chose the last token */
    size_t row;         /* of the step just run, whose logits choose the next token; SIZE_MAX: none */
};

struct loop {
    struct session *session;
    struct sampler sampler;
    struct sampler_options sampling; /* of requests that have none of their own */
    const struct gen_callbacks *callbacks;
    const volatile sig_atomic_t *interrupted;
    struct gen_stats *stats;
    struct slot *slot;
    size_t n_slots;
    float *logits;        /* [slots][vocab] */
    size_t *logits_row;   /* [slots] */
    float *prompt_logits; /* of a few rows at a time, for prompt_logprobs; NULL: not needed yet */
    struct candidate *best;
    size_t best_cap;
    struct hash *line_hash; /* by input line */
    size_t n_lines, lines_cap;
    bool input_ended;
    bool failed; /* a snapshot could not be written: the run ends behind this step */
    struct err failure;
    struct spec *spec; /* NULL: plain decoding */
};

/* Tokens generated so far. */
size_t loop_generated(const struct slot *slot);

/* The slot's settings: its request's, or those of the run. */
const struct sampler_options *loop_sampling(const struct loop *loop, const struct slot *slot);

/* The slot's next token by the slot's settings, which loop->sampler has afterwards, with what it chose from. */
uint32_t loop_choose(struct loop *loop, const struct slot *slot, const float *logits);

/* The slot's result goes out and its place is free again. */
int loop_finish(struct loop *loop, struct slot *slot, enum gen_finish finish, const char *error,
                struct err *err) MUST_USE;

/* `id` was chosen by `logits`, finite ones: emits it, and ends the sequence (slot->busy is false then) where it
 * ends. */
int loop_take(struct loop *loop, struct slot *slot, uint32_t id, const float *logits,
              struct err *err) MUST_USE;

/* One speculative step of all slots (spec.c). */
int spec_step(struct spec *spec, struct loop *loop, struct err *err) MUST_USE;

#endif
