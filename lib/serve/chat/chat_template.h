/* Renders conversations with a model's Jinja template, as apply_chat_template() of transformers does. */
#ifndef BMC_CHAT_TEMPLATE_H
#define BMC_CHAT_TEMPLATE_H

#include "serve/chat/template_probe.h"
#include "text/slice.h"

/* A conversation, borrowed; what is NULL is not given. */
struct conversation {
    const json_t *messages;  /* list of objects */
    const json_t *tools;     /* list of objects */
    const json_t *documents; /* list of objects */
    const json_t *variables; /* object: further variables of the template */
    bool no_answer;          /* without generation prompt */
    bool open_end;           /* the last message is to be continued: the prompt ends inside of it */
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

#endif
