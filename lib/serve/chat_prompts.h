/* Chat prompts: renders conversations with a chat template, and determines how answers end. */
#ifndef BMC_CHAT_PROMPTS_H
#define BMC_CHAT_PROMPTS_H

#include "decode/gen_types.h"
#include "text/chat/chat.h"

struct chat_options {
    /* name of a chat template or path of a .chat file; NULL: the model's own */
    const char *format;
    const char *models_dir; /* folder of named templates; NULL without `format` */
    const char *system;     /* system prompt for conversations without one; or NULL */
    char *const *stop;      /* stop strings besides the template's */
    size_t n_stops;
};

/* {.model = .., .options = ..} is a closed one; model and options are borrowed. */
struct chat_prompts {
    const struct model *model;
    struct chat_options options;
    bool is_open;
    struct chat format;
    uint32_t end[CHAT_ENDS]; /* ids that end an answer */
    size_t n_ends;
    char **stop; /* stop strings of the options, then ends of answers that are not single tokens */
    size_t n_stops;
    struct ids delimiters; /* tokens of the template that messages may not contain */
};

/* Opens the chat template, unless it is open already. */
int chat_prompts_open(struct chat_prompts *prompts, struct err *err) MUST_USE;
void chat_prompts_close(struct chat_prompts *prompts);

/* Sets the ids and stop strings that end the request's answer. The template must be open. */
void chat_prompts_set_ends(const struct chat_prompts *prompts, struct gen_request *request);

enum chat_prompt_flags {
    CHAT_CONTINUES = 1,     /* the ids so far end with an answer */
    CHAT_PARSES_SPECIAL = 2 /* special tokens spelled in messages are parsed */
};

/* Appends the prompt for `n` turns: its ids, and its text unless `text` is NULL. */
int chat_prompts_add(const struct chat_prompts *prompts, const struct chat_turn *turn, size_t n,
                     unsigned flags, struct ids *ids, struct buf *text, struct err *err) MUST_USE;

#endif
