/* What programs share that serve requests; serve_lines() serves them. */
#ifndef BMC_SERVE_H
#define BMC_SERVE_H

#include "decode/generate.h"
#include "serve/chat/chat_prompts.h"
#include "decode/sample/dry.h"
#include "text/constrain/constraint_cache.h"
#include "serve/request/request.h"
#include "serve/resume.h"

/* Defaults of requests, and how to read prompts; pointers are borrowed. */
struct serve_options {
    size_t n; /* maximum tokens to generate, or GENERATE_NO_LIMIT */
    struct stop_strings stop;
    size_t logprobs;
    bool ignore_eos;
    /* leave out an incomplete last UTF-8 character, since sequences are saved and go on with the next
     * byte; not of answers to messages */
    bool hold_partial_utf8;
    bool chat;                       /* prompts are user messages of a chat */
    bool parse_special;              /* parse special tokens spelled in prompts */
    bool parse_special_in_chat;      /* parse special tokens spelled in messages */
    bool keep_special;               /* texts have special tokens, too */
    bool lenient;                    /* ignore unknown JSON fields of requests */
    struct given_settings given;     /* sampling settings and seed that the user gave */
    struct sampler_options sampling; /* sampling settings of the run */
    /* defaults that given settings and those of snapshots override: of texts, and of chats */
    struct sampler_options defaults, chat_defaults;
    uint64_t seed;
    struct constraint *constraint; /* of requests without their own; NULL: none */
};

/* State common to all requests of a run. */
struct serve {
    struct serve_options options;
    const struct model *model;
    struct session *session;
    const struct step_strategy *strategy; /* NULL: plain decoding */
    struct constraint_cache *constraints; /* those of requests */
    struct dry_breakers *breakers;        /* of requests without their own */
    struct chat_prompts *chat;            /* opened by the first request that needs it */
    const struct snapshot *snapshot;      /* sequences that requests resume; NULL: none */
    const volatile sig_atomic_t *interrupted;
    /* Called when sequence `seq` of the session ends, to save it; `id`: the request's id as JSON
     * text, or NULL. The callback may be NULL. */
    int (*save)(void *arg, size_t seq, const struct gen_result *result, const char *id,
                struct err *err);
    void *save_arg;
    /* Tokens of entries that the session's sequences have, see generate_cached(); NULL: none */
    struct ids *cached;
    int64_t created;          /* when answers in OpenAI's form were made: seconds since 1970 */
    foreign_members *ignored; /* gets those that requests have; NULL: nobody asks */
};

/* Returns a request with the run's defaults; it borrows `ids`, the prompt. If `serve` is for chat,
 * its chat template must be open. */
struct gen_request serve_request(const struct serve *serve, struct ids *ids);

/* The conversation of a request's `messages` and its variables of the chat template, borrowed. */
struct conversation serve_conversation(const struct request *request);

/* Appends the token ids of a text; `with_template`: with BOS and EOS as the model's tokenizer adds
 * them; `parse_special`: special tokens spelled in it are parsed. */
int serve_encode(const struct model *model, const char *text, size_t len, bool with_template,
                 bool parse_special, struct ids *ids, struct err *err) MUST_USE;

struct jsonl_line {
    const char *text; /* valid until the next line; NULL: the line is too long */
    size_t len;
    uint64_t number; /* index of the input line, from 0 */
    bool cancels;    /* no request: the text is the id, as JSON text, of those to cancel */
};

struct jsonl_result {
    uint64_t number; /* index of the input line */
    bool failed;
    struct hash logits_hash; /* zero if no token was generated */
};

/* A result that is passed on as it is. */
struct jsonl_taken {
    uint64_t number;  /* index of the input line */
    size_t choice;    /* which of its choices; SIZE_MAX: all that have not ended, which have failed */
    size_t n_choices; /* 0: the line cannot be read */
};

/* Where serve_lines() reads requests and writes results. */
struct jsonl_io {
    /* Reads the next request line: GEN_REQUEST, GEN_END, GEN_LATER (only without `wait`), or -1. */
    int (*next)(void *arg, bool wait, struct jsonl_line *line, struct err *err);
    /* Writes an event of a request that is not complete, at once; takes ownership of `text`. */
    int (*event)(void *arg, struct buf *text, struct err *err);
    bool can_cancel; /* requests may cancel others */
    /* Writes a result; takes ownership of `text`, the result line. */
    int (*put)(void *arg, const struct jsonl_result *result, struct buf *text, struct err *err);
    void *arg;
    /* In place of put(), unless NULL: takes a result, or NULL and the reason if it failed before its first
     * token. */
    int (*take)(void *arg, const struct jsonl_taken *which, const struct gen_result *result,
                const struct err *error, struct err *err);
    /* In place of event(), unless NULL: takes the new text and tokens of a choice of line `number`. A value
     * above 0 cancels the request. */
    int (*progress)(void *arg, uint64_t number, size_t choice, const char *text, size_t len,
                    const uint32_t *ids, size_t n_ids, struct err *err);
    void (*prefill)(void *arg, size_t done, size_t total); /* gen_callbacks.prefill; may be NULL */
};

#endif
