/* What is asked of the generation loop, and what it tells: requests, results, callbacks, statistics. */
#ifndef BMC_GEN_TYPES_H
#define BMC_GEN_TYPES_H

#include <string.h>

#include "base/hash.h"
#include "decode/beam.h"
#include "decode/logprobs.h"
#include "decode/sampler.h"
#include "decode/snapshot.h"
#include "text/tokenizer.h"

#define GENERATE_NO_LIMIT SIZE_MAX

/* What is asked for. The caller owns everything; it stays until the request's result was taken, and nothing but its ids
 * changes. */
struct gen_request {
    uint64_t line; /* its number in the input, from 0: the order of results */
    uint64_t seed,
        stream; /* key of the random numbers; the stream is the line, unless a snapshot gave another */
    const struct sampler_options *sampling; /* NULL: those of the run */
    struct ids
        *ids; /* the prompt; what is generated is appended, so that all of the text stands once */
    const struct snapshot *from; /* has the rows of the prompt's first from_rows tokens; NULL: none */
    size_t from_seq, from_rows;
    size_t n; /* tokens at most, or GENERATE_NO_LIMIT */
    char *const *stop;
    size_t n_stops;
    const uint32_t *end; /* ids that end the text as the model's own do */
    size_t n_ends;
    bool ignore_eos;
    bool
        to_go_on; /* it is saved, and its text continued: the character that it ends within is left for then */
    size_t logprobs;        /* best ids to report per token; 0: none, not even the chosen one's */
    size_t prompt_logprobs; /* the same of the prompt's tokens */
    void *user;
};

enum gen_finish { FINISHED_LENGTH, FINISHED_EOS, FINISHED_STOP, FINISHED_ERROR };

const char *gen_finish_name(enum gen_finish finish);

/* What came out; valid during the callback. */
struct gen_result {
    const struct gen_request *request;
    enum gen_finish finish;
    const char *error; /* with FINISHED_ERROR */
    bool full; /* with FINISHED_LENGTH: fewer tokens than asked for, since the context is full */
    const uint32_t *ids; /* right behind the prompt's: ids - n_prompt is the whole sequence */
    size_t n_ids, n_prompt;
    const char *text; /* valid UTF-8, without the stop string */
    size_t text_len;
    const struct logprob *logprobs; /* per id: the chosen one, then the n_best best */
    size_t n_best, n_prompt_best;   /* as many as were asked for, or the whole vocabulary */
    /* Per prompt token, in the same way; NaN for the first one, which has no predecessor, and for those whose
     * predecessor's row came from a snapshot. NULL: not asked for. */
    const struct logprob *prompt_logprobs;
    const struct beam
        *beams; /* of beam search: texts, best first, of which the first one is the result's own */
    size_t n_beams;
    struct hash logits_hash; /* of the logits that chose the last token; zero without one */
};

/* The error of what ended because the run was interrupted: no fault of its own. */
#define GEN_INTERRUPTED "interrupted"
static inline bool gen_interrupted(const char *error)
{
    return error && strcmp(error, GEN_INTERRUPTED) == 0;
}

enum { GEN_END, GEN_REQUEST, GEN_LATER };

struct gen_callbacks {
    /* The next request: GEN_REQUEST and *request set, GEN_END, or -1 with err. Called when a place is free. When
     * sequences are under way `wait` is false: GEN_LATER then says that none has come yet. */
    int (*next)(void *arg, bool wait, const struct gen_request **request, struct err *err);
    /* More text of a sequence may be shown, or more ids are there; may be NULL. */
    int (*progress)(void *arg, const struct gen_request *request, const char *text, size_t len,
                    const uint32_t *ids, size_t n_ids, struct err *err);
    int (*done)(void *arg, const struct gen_result *result, struct err *err);
    /* Prompt rows computed so far, and of how many: before the first step, after every layer of a step (a step's rows count by
     * the share of its layers) and after it; may be NULL. */
    void (*prefill)(void *arg, size_t done, size_t total);
    /* A sequence has ended, or was interrupted, and its rows are still there as sequence `seq` of the session: for
     * snapshots. Called before done(); may be NULL. After a failure the results of the same step still go out, and
     * sequences under way end with what they have. */
    int (*keep)(void *arg, size_t seq, const struct gen_result *result, struct err *err);
    void *arg;
};

struct gen_stats {
    size_t sequences;
    size_t at_once; /* requests under way at a time, at most */
    size_t finished[FINISHED_ERROR + 1],
        context_full;     /* sequences by their end; of `length`, those cut by the context */
    size_t interrupted;   /* sequences; errors as results, but not counted as such */
    size_t loaded_tokens; /* whose rows a snapshot gave */
    double load_kv_ms;
    size_t shared_rows,
        saved_bytes; /* of prompts: those that another sequence had; what lies once of them */
    size_t prefill_tokens, prefill_steps;
    size_t decode_tokens, decode_steps; /* tokens that decode steps gave; the first one is prefill's */
    size_t sampled_tokens;
    double prefill_ms, decode_ms, sample_ms;
    /* BLAKE2b of the 64-bit hashes, in input order, of the sequences that have a token; a sequence's hash is of the
     * f32 logits that chose its last one. */
    struct hash logits_hash;
};

/* A run's hash, of those of its lines. */
struct hash gen_run_hash(const struct hash *line, size_t n);

#endif
