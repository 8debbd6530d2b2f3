/* What programs share that serve requests; serve_lines() serves them. */
#pragma once

#include "decode/generate.h"
#include "decode/sample/dry.h"
#include "serve/chat/chat_prompts.h"
#include "serve/request.h"
#include "text/constrain/constraint.h"

/* Settings that the user gave: they override those of a snapshot, which override the defaults. */
struct given_settings {
    struct sampler_options sampling; /* sampling_not_given() but for those */
    bool seed;                       /* true: given */
};

/* Defaults of requests, and how to read prompts; pointers are borrowed. */
struct serve_options {
    struct gen_request request; /* without `ids` */
    bool chat;                  /* prompts are user messages of a chat */
    bool parse_special;         /* parse special tokens spelled in prompts */
    bool parse_special_in_chat; /* parse special tokens spelled in messages */
    bool lenient;               /* ignore unknown JSON fields of requests */
    bool openai;                /* answers have OpenAI's form; a seed alone makes the random numbers */
    /* Requests are those of clients, not lines of an input: errors name no line, the run has no hash, and a seed is
     * drawn for requests without one, unless the run has one. */
    bool service;
    size_t most_tokens;              /* that a request may ask for; GENERATE_NO_LIMIT */
    struct answer_options answer;    /* reasoning and tool calls */
    struct given_settings given;     /* sampling settings and seed that the user gave */
    const json_t *tools;             /* of conversations that have none; or NULL */
    struct sampler_options sampling; /* sampling settings of the run */
    /* defaults that given settings and those of snapshots override: of texts; of chats; of requests of chats that give a temperature */
    struct sampler_options defaults, chat_defaults, chat_at_temp;
};

/* State common to all requests of a run. */
struct serve {
    struct serve_options options;
    const struct model *model;
    struct session *session;
    const struct step_strategy *strategy; /* NULL: plain decoding */
    struct constraint_cache *constraints; /* those of requests */
    struct dry_breakers breakers;         /* of requests without their own */
    struct chat_prompts chat;             /* opened by the first request that needs it */
    struct chat_notes notes;              /* of the chat template */
    const struct snapshot *snapshot;      /* sequences that requests resume; NULL: none */
    const volatile sig_atomic_t *interrupted;
    /* Called when sequence `seq` of the session ends, to save it; `id`: the request's id as JSON
     * text, or NULL. The callback may be NULL. */
    int (*save)(void *arg, size_t seq, const struct gen_result *result, const char *id,
                struct err *err);
    void *save_arg;
    const struct gen_watch *watch; /* of all requests; NULL: none */
    /* Tokens of entries that the session's sequences have, see generate_cached(); NULL: none */
    struct ids *cached;
    const char *name; /* of the model, for requests that give it none; NULL: its path */
    int64_t created;  /* when answers in OpenAI's form were made: seconds since 1970 */
};

/* Opens what requests share, with the program's defaults; the caller sets session, chat.options and what else it has. Once
 * opened the struct must not move. `say` gets notes about templates and constraints. After an error serve_close() must
 * be called. */
int serve_open(struct serve *serve, const struct model *model,
               void (*say)(void *arg, const char *sentence), void *arg, struct err *err) MUST_USE;
void serve_close(struct serve *serve);

/* Returns a request with the run's defaults; it borrows `ids`, the prompt. If `serve` is for chat,
 * its chat template must be open. */
struct gen_request serve_request(const struct serve *serve, struct ids *ids);

/* The conversation of a request's `messages` and its variables of the chat template, borrowed. */
struct conversation serve_conversation(const struct request *request);

/* The seed of ids of calls in an answer: they differ between prompts, seeds and choices. */
uint64_t serve_call_seed(const struct gen_request *request, size_t choice);

/* Appends the token ids of a text; `with_template`: with BOS and EOS as the model's tokenizer adds
 * them; `parse_special`: special tokens spelled in it are parsed. */
int serve_encode(const struct model *model, const char *text, size_t len, bool with_template,
                 bool parse_special, struct ids *ids, struct err *err) MUST_USE;

/* What a face has read, JSON lines or the library: a request as a line of JSON, or the settings of one, with its
 * prompt beside them. */
struct serve_input {
    const char *json; /* valid until the next one; NULL: the line is too long */
    size_t len;
    uint64_t number;             /* index of the input line, from 0 */
    bool cancels;                /* no request: that of this number is cancelled */
    const struct prompt *prompt; /* NULL: in the line */
    const char *url; /* OpenAI's, for which the request is; NULL: the line says so, or any */
    const char *id;  /* in place of the line's own; NULL: that one */
    /* gen_request.cancelled; NULL: lines that cancel others set it */
    const volatile sig_atomic_t *cancelled;
};

struct serve_result {
    uint64_t number; /* index of the input line */
    bool failed;
    struct hash logits_hash;                /* zero if no token was generated */
    int status;                             /* of HTTP */
    size_t n_prompt, n_cached, n_generated; /* tokens */
};

/* Which result is passed on as it is. */
struct serve_choice {
    uint64_t number;  /* index of the input line */
    size_t choice;    /* which of its choices; SIZE_MAX: all that have not ended, which have failed */
    size_t n_choices; /* 0: the request cannot be read */
};

/* A face of serve_lines(): where requests come from and results go. */
struct serve_io {
    /* Reads the next request: GEN_REQUEST, GEN_END, GEN_LATER (only without `wait`), or -1. */
    int (*next)(void *arg, bool wait, struct serve_input *input, struct err *err);
    /* Writes an event of a request that is not complete, at once; takes ownership of `text`. */
    int (*event)(void *arg, uint64_t number, struct buf *text, struct err *err);
    bool can_cancel;          /* requests may cancel others */
    foreign_members *ignored; /* gets those that requests have; NULL: nobody asks */
    /* Writes a result; takes ownership of `text`, the result line. */
    int (*put)(void *arg, const struct serve_result *result, struct buf *text, struct err *err);
    void *arg;
    /* In place of put(), unless NULL: takes a result, or NULL and the reason if it failed before its first
     * token. */
    int (*take)(void *arg, const struct serve_choice *which, const struct gen_result *result,
                const struct err *error, struct err *err);
    /* In place of event(), unless NULL: takes the new text and tokens of a choice. A value above 0 cancels the
     * request. */
    int (*progress)(void *arg, const struct serve_choice *which, const char *text, size_t len,
                    const uint32_t *ids, size_t n_ids, struct err *err);
    void (*prefill)(void *arg, size_t done, size_t total); /* gen_callbacks.prefill; may be NULL */
};

/* Serves the requests read through `io` until the input ends, by continuous batching: each gets one result. The session must
 * be open. Requests are read as slots of the batch become free, and some ahead. An invalid one affects only its own
 * result; if the run fails, all requests that were read still get a result. */
int serve_lines(struct serve *serve, const struct serve_io *io, struct gen_stats *stats,
                struct err *err) MUST_USE;

/* ---- sequences of snapshots ---- */

/* Sets the sampling settings to resume sequence `index` of a snapshot; without one, of a new sequence. The
 * snapshot's settings replace `defaults`, and given ones replace both. sampling->dry_text is NULL, or the
 * snapshot's, which the caller frees. */
int resume_sampling(const struct given_settings *given, const struct sampler_options *defaults,
                    const struct snapshot *snapshot, size_t index, struct sampler_options *sampling,
                    struct err *err) MUST_USE;

/* Seed to resume sequence `index` of a snapshot: the sequence's own, or `seed` if the user gave it
 * or there is no snapshot. */
uint64_t resume_seed(const struct given_settings *given, uint64_t seed, const struct snapshot *snapshot,
                     size_t index);

/* Makes the request resume a sequence of the snapshot; adds the sequence's tokens to its prompt. */
int resume_sequence(const struct snapshot *snapshot, size_t index, uint64_t seed,
                    struct gen_request *request, struct err *err) MUST_USE;

/* Prompt caching: makes the request reuse KV entries of the longest prefix that its prompt shares
 * with a sequence of the snapshot. False: no shared prefix. */
bool resume_prefix(const struct session *session, const struct snapshot *snapshot,
                   struct gen_request *request);

/* Index of the sequence that a request resumes: the one with id `from`; without `from`, the one
 * with the request's own id, else the only one without an id. Ids are JSON, or NULL. SIZE_MAX with
 * an error: there is none. */
size_t resume_find(const struct snapshot *snapshot, const char *from, const char *id, struct err *err);
