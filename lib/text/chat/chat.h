/* Sampling settings that a model's maker recommends: defaults of chats. */
#pragma once

#include "base/conf.h"
#include "base/json.h"
#include "base/mem.h"
#include "format/sampling.h"
#include "text/slice.h"

/* By enum sampling_index. Zeros: none are recommended. */
struct chat_sampling {
    bool given[SAMPLING_COUNT_OF_PARAMS];
    double value[SAMPLING_COUNT_OF_PARAMS];
};

/* Sets a value; false, without a change, if it is out of range. */
bool chat_sampling_set(struct chat_sampling *sampling, size_t setting, double value);
bool chat_sampling_any(const struct chat_sampling *sampling);

/* Temperature and repetition penalty of a chat with a model that recommends none: greedy answers of small models end in loops, and
 * so do one in ten without the penalty. */
#define CHAT_TEMP           0.7
#define CHAT_REPEAT_PENALTY 1.1

/* The program's defaults with those of the model, NULL: none, in their place. */
struct sampler_options chat_sampling_defaults(const struct chat_sampling *sampling);

/* Writes the given settings as "temp 0.6, top_p 0.9". */
int chat_sampling_describe(const struct chat_sampling *sampling, struct buf *text,
                           struct err *err) MUST_USE;

enum { CHAT_MARKS = 8, CHAT_ENDS = 4, CHAT_TEMPLATES = 16, CHAT_TOKENS = 32 };

/* A name and a text: a Jinja template of a model, or one of the special tokens that it may name. */
struct chat_named {
    char *name, *text;
};

struct chat {
    char *name; /* NULL: no format, only what a model has of its own */
    /* of the format, by key: texts, lists of texts (end, mark, without) and words; variables of its
     * template */
    json_t *lines;
    /* of a model: its Jinja templates, the one for plain conversations is "default"; and the special
     * tokens that they know by names such as bos_token */
    struct chat_named jinja[CHAT_TEMPLATES], token[CHAT_TOKENS];
    size_t n_jinja, n_tokens;
    struct chat_sampling sampling; /* of a model: its defaults */
    /* of a model: texts that precede those to embed, by name; "" is the default one. NULL: none */
    json_t *prompts;
};

/* Lists the names of prompts, but "", as "a, b". */
void chat_name_prompts(const json_t *prompts, char *names, size_t size);

/* Parses the lines of a format or a model; `source` names them in errors. After an error nothing needs
 * releasing. */
int chat_parse(struct chat *chat, const char *text, size_t size, const char *source,
               struct err *err) MUST_USE;
void chat_release(struct chat *chat);

/* The text of a format's line, or NULL; the Jinja template that renders the format. */
const char *chat_text(const struct chat *chat, const char *key);
const char *chat_template_text(const struct chat *chat);

/* How well a model's chat_template matches: total bytes of the substrings `mark` if it
 * contains all of them and none of `without`, else 0. */
size_t chat_match(const struct chat *chat, const char *chat_template, size_t len);

/* Sets the special tokens of a format, unless it was stored with a model and has them: the lines "bos"
 * and "eos", and {bos} and {eos} in others. */
int chat_set_tokens(struct chat *chat, const struct buf *bos, const struct buf *eos,
                    struct err *err) MUST_USE;

/* Adds the variables of a format, whose tokens are set, with which its template renders trusted text. */
int chat_add_variables(const struct chat *chat, json_t *variables, struct err *err) MUST_USE;

/* Writes lines for chat_parse(), without those that recognise a format. */
int chat_write(const struct chat *chat, struct buf *text, struct err *err) MUST_USE;

/* Adds a Jinja template or a special token, whose texts are copied. A name that is present keeps its text. */
int chat_add_jinja(struct chat *chat, const char *name, const char *text, struct err *err) MUST_USE;
int chat_add_token(struct chat *chat, const char *name, const char *text, struct err *err) MUST_USE;

/* The text of the template or token of that name, or NULL. */
const char *chat_jinja(const struct chat *chat, const char *name);
const char *chat_token(const struct chat *chat, const char *name);
