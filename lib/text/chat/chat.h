/* Chat templates: renders the turns of a conversation as the text format that a model was trained
 * on.
 *
 * A template is data: "key value" lines, specified in bmc-chat(5). models.d/chat/NAME.chat are the
 * supported ones; bmc-convert detects a model's format by its marks (typical substrings) and
 * stores it in the model file, together with the model's own Jinja template. Content of turns is tracked separately from delimiters, so that a
 * special token typed by a user stays plain text. */
#ifndef BMC_CHAT_H
#define BMC_CHAT_H

#include "base/conf.h"
#include "base/mem.h"
#include "text/chat/chat_sampling.h"
#include "text/marked_text.h"
#include "text/tokenizer/tokenizer.h"

/* The strings of a template, which chat_render() puts around turns; "" if unused. */
enum chat_part {
    CHAT_BEGIN, /* before the first turn */
    CHAT_SYSTEM,
    CHAT_SYSTEM_END,
    CHAT_USER,
    CHAT_USER_END,
    CHAT_ASSISTANT,
    CHAT_ASSISTANT_END,
    CHAT_ANSWER,         /* generation prompt: beginning of the answer */
    CHAT_DEFAULT_SYSTEM, /* default system prompt */
    CHAT_PARTS
};

enum { CHAT_MARKS = 8, CHAT_ENDS = 4, CHAT_TEMPLATES = 16, CHAT_TOKENS = 32 };

enum chat_trim { CHAT_TRIM_NONE, CHAT_TRIM_ALL, CHAT_TRIM_ANSWERS };

/* Position of the system prompt: a turn of its own, or inside the next or the last user turn. */
enum chat_system { CHAT_SYSTEM_ALONE, CHAT_SYSTEM_IN_NEXT, CHAT_SYSTEM_IN_LAST };

/* A name and a text: a Jinja template of a model, or one of the special tokens that it may name. */
struct chat_named {
    char *name, *text;
};

struct chat {
    char *name; /* NULL: no format, only what a model has of its own */
    char *part[CHAT_PARTS];
    /* substrings that the model's chat_template contains, or must not contain, to be recognised */
    char *mark[CHAT_MARKS], *without[CHAT_MARKS];
    char *end[CHAT_ENDS]; /* end-of-turn tokens, as spelled in the vocabulary */
    size_t n_marks, n_without, n_ends;
    /* enum chat_trim: turns whose content is stripped of surrounding white space */
    int trim;
    int system_in_user; /* enum chat_system */
    int system_always;  /* 1: always write a system turn, even if empty */
    /* of a model: its Jinja templates, the one for plain conversations is "default"; and the special
     * tokens that they know by names such as bos_token */
    struct chat_named jinja[CHAT_TEMPLATES], token[CHAT_TOKENS];
    size_t n_jinja, n_tokens;
    struct chat_sampling sampling; /* of a model: its defaults */
};

/* Parses a template; `source` names it in errors. After an error nothing needs releasing. */
int chat_parse(struct chat *chat, const char *text, size_t size, const char *source,
               struct err *err) MUST_USE;
void chat_release(struct chat *chat);

/* How well a model's chat_template matches: total bytes of the substrings `mark` if it
 * contains all of them and none of `without`, else 0. */
size_t chat_match(const struct chat *chat, const char *chat_template, size_t len);

/* Writes the template as text for chat_parse(), without the substrings that recognise it and with
 * {bos} and {eos} replaced. */
int chat_write(const struct chat *chat, const char *bos, const char *eos, struct buf *text,
               struct err *err) MUST_USE;

/* Adds a Jinja template or a special token, whose texts are copied. A name that is present keeps its text. */
int chat_add_jinja(struct chat *chat, const char *name, const char *text, struct err *err) MUST_USE;
int chat_add_token(struct chat *chat, const char *name, const char *text, struct err *err) MUST_USE;

/* The text of the template or token of that name, or NULL. */
const char *chat_jinja(const struct chat *chat, const char *name);
const char *chat_token(const struct chat *chat, const char *name);

enum chat_role { CHAT_ROLE_SYSTEM, CHAT_ROLE_USER, CHAT_ROLE_ASSISTANT, CHAT_ROLES };

extern const char *const chat_roles[]; /* "system", "user", "assistant", NULL */

struct chat_turn {
    enum chat_role role;
    const char *text;
    size_t len;
};

/* How a conversation is rendered. */
enum {
    CHAT_BEGINS = 1,  /* its turns start the conversation */
    CHAT_OPEN_END = 2 /* the last turn is an answer that is to be continued: the text ends behind it */
};

/* Appends `n` turns, of which the last is the user's or an answer to it, and the generation prompt, as a
 * Jinja template does.
 * `system`: system prompt if the first turn is not a system turn; NULL: the template's default at
 * the start of a conversation. */
int chat_render(const struct chat *chat, const char *system, const struct chat_turn *turn, size_t n,
                unsigned how, struct marked_text *out, struct err *err) MUST_USE;

/* Appends the delimiter after a finished answer. */
int chat_render_end(const struct chat *chat, struct marked_text *out, struct err *err) MUST_USE;

#endif
