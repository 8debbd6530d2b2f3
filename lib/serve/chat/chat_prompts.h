/* Chat prompts: renders conversations with a model's template or a chat format, and determines how
 * answers end. */
#pragma once

#include "decode/gen_types.h"
#include "serve/chat/chat_template.h"
#include "text/chat/chat.h"
#include "text/tools/tool_format.h"

/* Receives a sentence about each kind of thing that templates ignore, once. */
struct chat_notes {
    void (*say)(void *arg, const char *sentence);
    void *arg;
    unsigned said; /* bits of kinds */
};

struct chat_options {
    /* name of a chat format or of one of the model's templates, path of a Jinja template or of a .chat
     * file; NULL: the model's own template, else its format */
    const char *format;
    /* folder of the formats that `format` may name, and of those of tool calls; or NULL */
    const char *models_dir;
    const char *system;       /* for conversations without one; NULL: the template's default */
    const json_t *variables;  /* of the template, for conversations that set none; NULL: none */
    struct chat_notes *notes; /* NULL: notes are dropped */
    struct tm now;            /* for templates that write the date */
};

/* An opened chat template, and how answers end under it. Before opening: {.model = .., .options =
 * ..}, which are borrowed. */
struct chat_prompts {
    const struct model *model;
    struct chat_options options;
    bool is_open;
    struct chat format; /* its name is NULL if there is only a template */
    bool by_format;     /* `jinja` is the template of `format`, not one of the model's */
    struct chat_template jinja;
    uint32_t end[CHAT_ENDS + 1]; /* token ids that end an answer */
    size_t n_ends;
    char *stop[CHAT_ENDS]; /* end-of-turn strings of several tokens */
    size_t n_stops;
    struct ids delimiters; /* the template's tokens; not matched inside messages */
    /* how tool calls and reasoning are written: the template's format, else "hermes"; its name is NULL if models_dir has
     * none */
    struct tool_format tools;
};

/* Opens the chat template, unless it is open already. */
int chat_prompts_open(struct chat_prompts *prompts, struct err *err) MUST_USE;
void chat_prompts_close(struct chat_prompts *prompts);

/* The format of tool calls and reasoning in answers, of an open template; NULL: none is known. */
const struct tool_format *chat_prompts_tools(const struct chat_prompts *prompts);

/* How an answer ends; borrowed. The template must be open. */
struct turn_end chat_prompts_turn_end(const struct chat_prompts *prompts);

enum chat_prompt_flags {
    CHAT_CONTINUES = 1,      /* the conversation goes on after an answer */
    CHAT_PARSES_SPECIAL = 2, /* special tokens spelled in messages are parsed */
    CHAT_KEEPS_PARTS = 4     /* contents with parts that are no text go to the template as they are */
};

/* Renders a conversation: appends its text to `out`. */
int chat_prompts_render(const struct chat_prompts *prompts, const struct conversation *conversation,
                        unsigned flags, struct marked_text *out, struct err *err) MUST_USE;

/* Appends the token ids of a rendered text with the given ranges of content. */
int chat_prompts_encode(const struct chat_prompts *prompts, const char *text, size_t len,
                        const struct span *content, size_t n_content, unsigned flags, struct ids *ids,
                        struct err *err) MUST_USE;

/* Renders a conversation and appends the prompt: its token ids to `ids`, which with CHAT_CONTINUES
 * hold a conversation up to an answer, and its text to `text` unless that is NULL. */
int chat_prompts_add(const struct chat_prompts *prompts, const struct conversation *conversation,
                     unsigned flags, struct ids *ids, struct buf *text, struct err *err) MUST_USE;

/* A message; the caller releases it. NULL: not valid UTF-8, or out of memory. */
json_t *chat_message(const char *role, const char *text, size_t len, struct err *err);
