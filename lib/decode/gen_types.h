/* The interface of the generation loop: requests, results, callbacks, statistics. */
#pragma once

#include <signal.h>

#include "base/hash.h"
#include "decode/sample/beam.h"
#include "decode/sample/logprobs.h"
#include "decode/sample/sampler.h"
#include "decode/snapshot.h"
#include "model/op_counts.h"
#include "text/constrain/constraint.h"
#include "text/tokenizer/tokenizer.h"

#define GENERATE_NO_LIMIT SIZE_MAX
#define GENERATE_NO_LINE  UINT64_MAX

/* Strings before which a text ends. */
struct stop_strings {
    char *const *text;
    size_t n;
};

/* How a turn of a chat ends, besides the model's EOS. All zero: the text is no turn. */
struct turn_end {
    const uint32_t *id;
    size_t n_ids;
    struct stop_strings stop;
};

/* Parts of an answer that begin and end at markers in its text, in which special tokens count as their spelling.
 * Borrowed. */
enum { ANSWER_TRIGGERS = 4 };
struct answer_markers {
    const char *thought_begin, *thought_end; /* NULL: there are no thoughts */
    bool in_thought;                         /* the prompt ends inside of a thought */
    /* the most in all thoughts, or GENERATE_NO_LIMIT: at the next end of a character .. */
    size_t thought_tokens;
    /* .. these tokens follow, which end with thought_end; NULL: thoughts have no limit */
    const struct ids *close;
    /* The constraint begins behind the first of these that is not in a thought. None: at once, or behind the thought
     * that the prompt ends in, in which the answer does not end then. */
    const char *trigger[ANSWER_TRIGGERS];
    size_t n_triggers;
};

/* A request to generate text. The caller owns everything it points to, and must keep it valid and,
 * except for `ids`, unchanged until the done() callback. */
struct gen_request {
    /* Index of the request in the input, from 0; GENERATE_NO_LINE: it is not counted in the hash of the run. */
    uint64_t line;
    /* Key of the sampler's random numbers; `stream` equals `line`, unless a snapshot is resumed or the seed alone
     * determines them. */
    uint64_t seed, stream;
    bool seed_drawn;                        /* results report the seed */
    const struct sampler_options *sampling; /* NULL: those given to generate() */
    struct ids *ids;                        /* the prompt; generated tokens are appended */
    const struct ids *expected; /* of a replay (step_replay.h): the tokens to be generated */
    /* Snapshot to resume: its sequence from_seq has the KV entries of the prompt's first from_rows
     * tokens; NULL: none. */
    const struct snapshot *from;
    size_t from_seq, from_rows;
    size_t n;                 /* maximum tokens to generate, or GENERATE_NO_LIMIT */
    struct stop_strings stop; /* the request's own, or the run's */
    struct turn_end turn_end; /* applies in addition to `stop` */
    bool ignore_eos;
    /* End an answer that repeats itself (FINISHED_REPETITION): its last 256 tokens or more are one phrase of at most
     * 256 tokens, 4 times or more in a row. Without effect under greedy decoding, ignore_eos or a constraint. */
    bool end_repetition;
    bool keep_special; /* the text has the spelling of special tokens, too */
    /* What the generated text must be; NULL: anything. The text begins after the prompt, also after one
     * from a snapshot. */
    struct constraint *constraint;
    /* NULL: the constraint begins at once, thoughts are text as other */
    const struct answer_markers *markers;
    /* Factors of the model's LoRA adapters (lora.h); NULL: 1 each. */
    const float *lora_factor;
    /* Leave an incomplete last UTF-8 character out of the text, as a later request continues it. */
    bool hold_partial_utf8;
    size_t logprobs;        /* alternatives to report per token; 0: no log-probabilities at all */
    size_t prompt_logprobs; /* alternatives to report per prompt token; 0: none */
    /* Once not 0, ends the request with the tokens that it has, before the next pass; NULL: never. */
    const volatile sig_atomic_t *cancelled;
    void *user;
};

enum gen_finish {
    FINISHED_LENGTH,
    FINISHED_EOS,
    FINISHED_STOP,
    FINISHED_REPETITION,
    FINISHED_CANCELLED,
    FINISHED_ERROR
};

const char *gen_finish_name(enum gen_finish finish);

/* The result of a request, valid during the callback. */
struct gen_result {
    const struct gen_request *request;
    enum gen_finish finish;
    /* with FINISHED_ERROR, else NULL; ERR_INTERRUPTED: the run was interrupted */
    const struct err *error;
    bool full;           /* with FINISHED_LENGTH: the context was full before request->n tokens */
    const uint32_t *ids; /* generated tokens; the prompt precedes them in memory */
    size_t n_ids, n_prompt;
    size_t n_cached;  /* tokens of the prompt that were not computed, as their KV entries were there */
    const char *text; /* valid UTF-8, without the stop string */
    size_t text_len;
    const struct logprob *logprobs; /* 1 + n_best per generated token: its own, then alternatives */
    size_t n_best, n_prompt_best;   /* alternatives per token, at most the vocabulary size */
    /* 1 + n_prompt_best log-probabilities per prompt token: NaN for the first token, and for those
     * after a token whose KV entry came from a snapshot. NULL: not requested. */
    const struct logprob *prompt_logprobs;
    double mirostat_mu;       /* Mirostat's state after the last token */
    const struct beam *beams; /* from beam search, best first; the first one is the result itself */
    size_t n_beams;
    /* of the logits that the last token was chosen from, else zero; the sum of those of all results with
     * the request's `line` so far, if it has one */
    struct hash logits_hash;
};

enum { GEN_END, GEN_REQUEST, GEN_LATER };

/* Watches requests by the slot that serves them, one request after the other. Not under beam search. */
struct gen_watch {
    /* A request starts; a token is chosen from these logits [vocab], be it one that only ends the text; the request
     * has ended, before done(). */
    int (*begin)(void *arg, size_t slot, const struct gen_request *request, struct err *err);
    int (*chosen)(void *arg, size_t slot, uint32_t id, const float *logits, struct err *err);
    int (*ended)(void *arg, size_t slot, const struct gen_result *result, struct err *err);
    void *arg;
};

struct gen_callbacks {
    /* The next request, called when a slot is free. Returns GEN_REQUEST with *request set, GEN_END,
     * or -1 with err. Without `wait`, which is false while sequences are in flight, it may return
     * GEN_LATER: there is no request yet. */
    int (*next)(void *arg, bool wait, const struct gen_request **request, struct err *err);
    /* New text or tokens of a sequence, for streaming, or neither: the caller may cancel it; may be NULL. Of `more`, only
     * the request, and the new text, ids and log-probabilities are set. */
    int (*progress)(void *arg, const struct gen_result *more, struct err *err);
    int (*done)(void *arg, const struct gen_result *result, struct err *err);
    /* Reports that prefill has processed `done` of `total` prompt tokens: before and after each
     * pass, and after each layer, which counts as its share of the pass's tokens; may be NULL. */
    void (*prefill)(void *arg, size_t done, size_t total);
    /* Lets the caller save a snapshot of a sequence that ended or was interrupted: called before
     * done(), while its KV entries are still in sequence `seq` of the session; may be NULL. A
     * failure ends the run after the results of the current step. */
    int (*keep)(void *arg, size_t seq, const struct gen_result *result, struct err *err);
    void *arg;
    const struct gen_watch *watch; /* NULL: none */
};

struct gen_stats {
    size_t sequences;
    size_t max_in_flight;                /* largest number of requests in flight */
    size_t finished[FINISHED_ERROR + 1]; /* sequences by reason for ending */
    size_t context_full;                 /* of FINISHED_LENGTH, those ended by a full context */
    size_t interrupted;                  /* interrupted sequences; not counted as errors */
    size_t converted, suspended; /* times that memory pressure converted, suspended a sequence */
    size_t loaded_tokens;        /* tokens whose KV entries came from a snapshot */
    double load_kv_ms;
    size_t shared_rows; /* prompt tokens whose KV entries were reused from another sequence */
    size_t saved_bytes; /* memory saved by storing such entries only once */
    /* The prefix cache on disk: prompt tokens looked up, and those found; tokens stored; damaged blocks
     * dropped; time spent waiting for other processes that computed the same prefix. */
    size_t store_lookup_tokens, store_hit_tokens, stored_tokens, store_dropped_blocks;
    double store_wait_ms;
    size_t prefill_tokens, prefill_steps;
    /* Decoding excludes the first token of each sequence, which comes from prefill. */
    size_t decode_tokens, decode_steps;
    size_t sampled_tokens;
    double prefill_ms, decode_ms, sample_ms;
    struct pass_work prefill, decode; /* of this rank; passes of draft models are not in them */
    struct hash logits_hash;          /* of the whole run: gen_run_hash() */
};

/* The hash of a run, to compare runs bit for bit: BLAKE2b over the first 64 bits of line[0..n), the
 * gen_result.logits_hash of the input lines in order, skipping lines without generated tokens. */
struct hash gen_run_hash(const struct hash *line, size_t n);
