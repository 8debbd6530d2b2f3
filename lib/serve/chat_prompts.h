/* Chat prompts: renders conversations with a chat template, and determines how answers end. */
#ifndef BMC_CHAT_PROMPTS_H
#define BMC_CHAT_PROMPTS_H

#include "decode/gen_types.h"
#include "text/chat/chat.h"

struct chat_options {
    /* name of a chat template or path of a .chat file; NULL: the model's own */
    const char *format;
    const char *models_dir; /* folder of the templates that `format` may name; or NULL */
    const char *system;     /* for conversations without one; NULL: the template's default */
    char *const *stop;      /* stop strings besides the template's */
    size_t n_stops;
};

/* An opened chat template, and how answers end under it. Before opening: {.model = .., .options =
 * ..}, which are borrowed. */
struct chat_prompts {
    const struct model *model;
    struct chat_options options;
    bool is_open;
    struct chat format;
    uint32_t end[CHAT_ENDS]; /* token ids that end an answer */
    size_t n_ends;
    /* stop strings of the options, then the template's end-of-turn strings of several tokens */
    char **stop;
    size_t n_stops;
    struct ids delimiters; /* the template's tokens; not matched inside messages */
};

/* Opens the chat template, unless it is open already. */
int chat_prompts_open(struct chat_prompts *prompts, struct err *err) MUST_USE;
void chat_prompts_close(struct chat_prompts *prompts);

/* Sets the token ids and stop strings that end the request's answer. The template must be open. */
void chat_prompts_set_ends(const struct chat_prompts *prompts, struct gen_request *request);

enum chat_prompt_flags {
    CHAT_CONTINUES = 1,     /* `ids` already holds a conversation, up to an answer */
    CHAT_PARSES_SPECIAL = 2 /* special tokens spelled in messages are parsed */
};

/* Renders `n` turns with the template and appends the prompt: its token ids to `ids`, and its text
 * to `text` unless that is NULL. */
int chat_prompts_add(const struct chat_prompts *prompts, const struct chat_turn *turn, size_t n,
                     unsigned flags, struct ids *ids, struct buf *text, struct err *err) MUST_USE;

#endif
