/* A request: the one form behind lines of JSON, OpenAI's objects, and the library's structures, whose settings are JSON, too.
 * Parsing needs no model, so that fuzzing can try any bytes.
 *
 * The table of JSON fields ("members") in request.c drives parsing, suggestions for unknown fields
 * and the test of the man page. To add a field, add it there and to the table of bmc-jsonl(5). */
#pragma once

#include "base/json.h"
#include "decode/gen_types.h"
#include "serve/answer_plan.h"
#include "serve/foreign_members.h"
#include "text/constrain/constraint.h"
#include "text/ids.h"

/* A seed that jansson's integers cannot hold, as they are signed. */
enum { REQUEST_BIG_SEED = -2 };

/* A prompt given separately from the settings of a request: a text, or token ids; borrowed. */
struct prompt {
    const char *text; /* NULL: token ids */
    size_t len;
    const uint32_t *ids;
    size_t n_ids;
};

struct request {
    json_t *line; /* the line, which owns all values */
    /* the object with the members: the line or the body of one of OpenAI's batches; NULL below: not given */
    json_t *root;
    const json_t *id, *from; /* request id; id of the sequence to resume: any JSON */
    size_t n_prompts;        /* how often a prompt is given, one of these: */
    struct prompt prompt;    /* its text */
    /* OpenAI's list of several prompts, texts or lists of ids, of which `prompt` is the first */
    const json_t *prompts;
    const json_t *ids, *prompt_ids; /* a list of token ids; the same as "prompt" */
    const json_t *messages;         /* turns of a conversation: list of objects */
    /* further variables of the chat template: lists of objects, a boolean, an object */
    const json_t *tools, *documents, *add_generation_prompt, *template_variables;
    bool no_tools;                        /* the model is not to call any */
    const json_t *continue_final_message; /* boolean */
    const json_t *parallel_tool_calls;    /* boolean */
    struct answer_options answer;         /* reasoning and tool calls; the caller sets the defaults */
    const json_t *lora;          /* adapters in use: a name, or a list of names, numbers and objects */
    const json_t *cancel;        /* id of the requests to cancel: any JSON */
    const json_t *parse_special; /* boolean: parse special tokens spelled in the prompt */
    struct gen_request gen;      /* generation settings; the caller sets gen.ids */
    struct sampler_options sampling;
    enum constraint_kind constraint; /* CONSTRAINT_NONE: not given */
    struct buf constraint_text;      /* as for constraint_source_parse() */
    bool constraint_given;           /* false: the run's applies */
    size_t n_choices;                /* answers to generate: 1, unless the request says more */
    bool skip_special;               /* the opposite of gen.keep_special */
    foreign_members ignored;         /* those that it has */
    bool lenient;                    /* ignore unknown members of objects in it, too */
    bool is_chat;                    /* had messages, which have been dropped */
    bool batch;                      /* the line is one of a batch of OpenAI's */
    bool openai;                     /* has members that only OpenAI's requests have: n is n_choices */
    bool stream;                     /* report text as it is generated, */
    bool include_usage;              /* and the numbers of tokens at the end, in OpenAI's form */
    bool openai_logprobs;            /* report gen.logprobs in OpenAI's form, */
    size_t top_logprobs;             /* with that many alternatives */
    uint64_t big_seed;               /* stands for REQUEST_BIG_SEED, unless 0 */
    char **stop;                     /* owned storage of gen.stop, or NULL */
    char **breaker; /* owned block: texts of dry_sequence_breakers, if breakers_given */
    size_t n_breakers;
    bool breakers_given;
    struct logit_bias *bias; /* owned storage of sampling.bias, or NULL */
};

enum {
    REQUEST_LENIENT = 1, /* unknown members are ignored */
    REQUEST_OPENAI = 2   /* it is one of OpenAI's, whatever members it has */
};

/* Parses a line: an object of known fields, each under only one of its names. After an error `id` is set if found, and
 * request_close() must be called. */
int request_open(struct request *request, const char *line, size_t len, unsigned flags,
                 struct err *err) MUST_USE;

/* The first part of request_open(): parses a line, and finds what it is about, itself or the body of a line of a batch. */
int request_parse(struct request *request, const char *line, size_t len, unsigned flags,
                  struct err *err) MUST_USE;

/* Fails unless the request is one for this URL of OpenAI's. */
int request_check_url(const struct request *request, const char *url, struct err *err) MUST_USE;

/* Fails if a request to cancel others has members that it has no use for, unless `lenient`. */
int request_check_cancel(const struct request *request, bool lenient, struct err *err) MUST_USE;

/* Overrides the defaults, which the caller has set in `gen` and `sampling`, by the request's
 * fields. Afterwards gen.sampling points into the struct, which must not move. */
int request_apply(struct request *request, struct err *err) MUST_USE;

/* Sets a prompt that is given separately; a prompt in the settings is then an error. */
void request_set_prompt(struct request *request, const struct prompt *prompt);

/* Appends the prompt that the request gives as token ids to `ids`. */
int request_ids(const struct request *request, struct ids *ids, struct err *err) MUST_USE;

/* Formats a request id as JSON text, with all digits of numbers. The caller frees it; NULL:
 * error. */
char *request_format_id(const json_t *id, struct err *err) MUST_USE;

/* Frees the prompt, once it has become token ids. */
void request_drop_prompt(struct request *request);

void request_close(struct request *request);

/* Whether to parse special tokens spelled in the prompt; `otherwise`: the request does not say. */
static inline bool request_parses_special(const struct request *request, bool otherwise)
{
    return request->parse_special ? json_is_true(request->parse_special) : otherwise;
}

/* Helpers for input lines that are not generation requests: parse a line into an object, which the
 * caller releases (NULL on error); append the token ids in the JSON array `value`. */
int request_line(const char *line, size_t len, json_t **root, struct err *err) MUST_USE;
int request_ids_of(const json_t *value, struct ids *ids, struct err *err) MUST_USE;

/* Sets the error for an unknown field `key`: suggests the most similar of `names`. */
int request_unknown(const char *key, const char *const *names, size_t n, struct err *err) MUST_USE;

/* For the test of the man page: names and expected value of the n-th field of requests. False:
 * there are no more. */
struct member_doc {
    const char *const *names; /* canonical name, aliases, NULL */
    char expected[80];
};
bool request_member(size_t n, struct member_doc *doc);
