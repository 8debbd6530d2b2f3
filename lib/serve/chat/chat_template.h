/* Renders conversations with a model's Jinja template, as apply_chat_template() of transformers does. */
#pragma once

#include "base/json.h"
#include "text/jinja/jinja.h"
#include "text/slice.h"

/* A conversation, borrowed; what is NULL is not given. */
struct conversation {
    const json_t *messages;  /* list of objects */
    const char *user;        /* without messages: one user message of */
    size_t user_len;         /* user_len bytes */
    const json_t *tools;     /* list of objects */
    const json_t *documents; /* list of objects */
    const json_t *variables; /* object: further variables of the template */
    bool no_answer;          /* without generation prompt */
    bool open_end;           /* the last message is to be continued: the prompt ends inside of it */
};

/* The forms of arguments of tool calls that a template takes; any: both, or unknown. */
enum call_arguments { ARGUMENTS_OBJECT = 1, ARGUMENTS_STRING, ARGUMENTS_ANY };

/* Messages that differ in what templates do with a content that is null. */
enum null_content {
    NULL_OF_CALLS,
    NULL_OF_ANSWER,
    NULL_OF_TOOL,
    NULL_OF_USER,
    NULL_OF_SYSTEM,
    NULL_CONTENTS
};

struct template_traits {
    enum call_arguments arguments;
    bool drops_calls;               /* it neither names tool calls nor writes them */
    bool takes_null[NULL_CONTENTS]; /* it copes with null as content; else "" replaces it */
};

struct chat_template {
    struct jinja_template *plain, *with_tools; /* the latter: for conversations with tools, or NULL */
    struct template_traits traits[2];          /* of `plain`, of `with_tools` */
    json_t *tokens;                            /* trusted variables: bos_token and the like */
    bool reads_parts;                          /* it reads contents that are lists of parts itself */
    bool system_anywhere;                      /* it renders system messages wherever they are */
    struct tm now;
};

/* Opens a template from its text; `tools`: the one for conversations with tools, or NULL. `tokens` are
 * trusted variables, whose reference is taken over; NULL: out of memory. After an error
 * chat_template_close() must be called. */
int chat_template_open(struct chat_template *t, const char *text, const char *tools, const char *name,
                       json_t *tokens, struct err *err) MUST_USE;
void chat_template_close(struct chat_template *t);

/* The template that a conversation is rendered with, and its traits. */
const struct jinja_template *chat_template_of(const struct chat_template *t,
                                              const struct conversation *conversation,
                                              const struct template_traits **traits);

/* Appends the prompt of a conversation to `out`. */
int chat_template_render(const struct chat_template *t, const struct conversation *conversation,
                         struct marked_text *out, struct err *err) MUST_USE;

/* Appends what follows an answer that has been generated: its end, the conversation's messages, and
 * the beginning of the next answer. A system message at the start of the conversation is taken as one
 * that has been said before, unless the template renders them anywhere. */
int chat_template_continue(const struct chat_template *t, const struct conversation *conversation,
                           struct marked_text *out, struct err *err) MUST_USE;

/* Appends what follows the last answer of a conversation: text that ends an answer. */
int chat_template_end(const struct chat_template *t, struct buf *text, struct err *err) MUST_USE;

/* A copy of a list of messages in which contents are strings: the texts of their parts, separated by
 * newlines. The caller releases it. NULL: a part is no text, or out of memory. */
json_t *messages_join_parts(const json_t *messages, struct err *err);

/* True if a content is a list with a part of another type than text. */
bool messages_have_other_parts(const json_t *messages);
