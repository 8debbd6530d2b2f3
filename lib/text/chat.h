/* Chats: turns of a conversation as the text that a model was trained on.
 *
 * A format is data: "key value" lines, described in bmc-chat(5). models.d/chat/NAME.chat are those that are known;
 * bmc-convert picks one by its marks and stores it in the model. What the turns say and what the format says around it
 * are kept apart, so that a special token in somebody's words stays those words. */
#ifndef BMC_CHAT_H
#define BMC_CHAT_H

#include "base/conf.h"
#include "base/mem.h"
#include "text/tokenizer.h"

/* What stands where. Each is a string, "" where nothing does. */
enum chat_part {
    CHAT_BEGIN, /* in front of the first turn */
    CHAT_SYSTEM,
    CHAT_SYSTEM_END,
    CHAT_USER,
    CHAT_USER_END,
    CHAT_ASSISTANT,
    CHAT_ASSISTANT_END,
    CHAT_ANSWER,         /* behind the last turn: how an answer begins */
    CHAT_DEFAULT_SYSTEM, /* what the system says where it is not asked to say anything */
    CHAT_PARTS
};

enum { CHAT_MARKS = 8, CHAT_ENDS = 4 };

enum chat_trim { CHAT_TRIM_NONE, CHAT_TRIM_ALL, CHAT_TRIM_ANSWERS };

/* In a turn of its own, or inside the next or the last turn of the user. */
enum chat_system { CHAT_SYSTEM_ALONE, CHAT_SYSTEM_IN_NEXT, CHAT_SYSTEM_IN_LAST };

struct chat {
    char *name;
    char *part[CHAT_PARTS];
    char *mark[CHAT_MARKS], *without[CHAT_MARKS]; /* what a template of this format has, and has not */
    char *end[CHAT_ENDS]; /* tokens that end an answer, as the vocabulary spells them */
    size_t n_marks, n_without, n_ends;
    int trim;           /* enum chat_trim: whose words lose the white space around them */
    int system_in_user; /* enum chat_system: where the system speaks */
    int system_always;  /* 1: there is a turn of the system, if an empty one */
};

/* `source` names the text in errors. On error nothing is left to release. */
int chat_parse(struct chat *chat, const char *text, size_t size, const char *source,
               struct err *err) MUST_USE;
void chat_release(struct chat *chat);

/* How well a model's chat_template is of this format: bytes of its marks, or 0 when it is not. */
size_t chat_match(const struct chat *chat, const char *chat_template, size_t len);

/* The format as text that chat_parse() reads, without the marks; {bos} and {eos} become those tokens. */
int chat_write(const struct chat *chat, const char *bos, const char *eos, struct buf *text,
               struct err *err) MUST_USE;

enum chat_role { CHAT_OF_SYSTEM, CHAT_OF_USER, CHAT_OF_ASSISTANT, CHAT_ROLES };

extern const char *const chat_roles[]; /* "system", "user", "assistant", NULL */

struct chat_turn {
    enum chat_role role;
    const char *text;
    size_t len;
};

/* A conversation as text, and which parts of it are words of its turns. */
struct chat_text {
    struct buf text;
    struct span *words;
    size_t n_words, cap_words;
};

/* Appends `n` turns, and how the answer begins. `begins`: nothing was said before, so the beginning belongs to it. `system` is
 * what the system says where the first turn is not its own; NULL: when the talk begins, what the format has it say. */
int chat_render(const struct chat *chat, const char *system, const struct chat_turn *turn, size_t n,
                bool begins, struct chat_text *out, struct err *err) MUST_USE;

/* Appends what follows an answer that has ended. */
int chat_render_end(const struct chat *chat, struct chat_text *out, struct err *err) MUST_USE;

void chat_text_release(struct chat_text *text);

#endif
