/* A conversation of several turns: its messages, and prompts that keep the token ids of earlier turns,
 * so that their KV entries can be used again. */
#pragma once

#include "serve/chat/chat_prompts.h"
#include "text/tools/tool_answer.h"

/* The end of an answer: its offset in the rendered text, and the number of ids up to there. */
struct answer_end {
    size_t text, ids;
};

/* Before use: {.prompts = .., .flags = ..}; `prompts` is borrowed and open. */
struct dialogue {
    const struct chat_prompts *prompts;
    unsigned flags;      /* CHAT_PARSES_SPECIAL or 0 */
    const json_t *tools; /* that the model may call; NULL: none */
    json_t *messages;    /* list of objects; NULL: none yet */
    size_t n_left_out;   /* messages that prompts leave out: the first ones, after a system message */
    struct ids base;     /* tokens before the first message, of a snapshot whose messages are unknown */
    struct ids ids;      /* the last prompt; generated tokens are appended by generate() */
    struct buf text;     /* text of `ids` without `base`, as rendered */
    struct answer_end *end; /* answers whose generated ids may be kept, ascending */
    size_t n_ends, cap_ends;
};

void dialogue_release(struct dialogue *dialogue);

/* Forgets all messages and ids, and those of a snapshot. */
void dialogue_clear(struct dialogue *dialogue);

/* Appends a message. On error nothing changes. */
int dialogue_say(struct dialogue *dialogue, const char *role, const char *text, size_t len,
                 struct err *err) MUST_USE;

/* The calls of the last message, which wait for results; NULL: it has none. */
const json_t *dialogue_calls(const struct dialogue *dialogue);

/* Appends the result of a call, in which bytes that are not UTF-8 are replaced. */
int dialogue_say_result(struct dialogue *dialogue, const json_t *call, const char *text, size_t len,
                        struct err *err) MUST_USE;

/* Replaces the system message at the start; an empty one is removed. */
int dialogue_set_system(struct dialogue *dialogue, const char *text, size_t len,
                        struct err *err) MUST_USE;
const char *dialogue_system(const struct dialogue *dialogue); /* NULL: there is none */

/* Replaces all messages by those of a list, which must be valid: dialogue_check(). */
void dialogue_set_messages(struct dialogue *dialogue, json_t *messages);

/* Checks a list of messages: objects with the strings "role" and "content". */
int dialogue_check(const json_t *messages, struct err *err) MUST_USE;

/* Adds the members of a saved conversation to an object: messages, and the ids and rendered text of the last prompt and
 * answer, with which a restored conversation goes on as if it had not ended. */
int dialogue_save(const struct dialogue *dialogue, json_t *object, struct err *err) MUST_USE;

/* Sets the conversation to a saved one; without ids the next prompt is tokenized anew. Fails if the object is none, and
 * then the conversation is empty. */
int dialogue_restore(struct dialogue *dialogue, const json_t *object, struct err *err) MUST_USE;

/* Number of messages by the user. */
size_t dialogue_questions(const struct dialogue *dialogue);

/* Removes the last messages up to, and with `question`, including the user's last. False: there is
 * none. */
bool dialogue_drop_answer(struct dialogue *dialogue, bool question);

/* Sets `ids` to the prompt of the conversation. Ids of earlier answers are kept where the template
 * writes the same text; otherwise, as where it drops thoughts, the text is tokenized again. */
int dialogue_prompt(struct dialogue *dialogue, struct err *err) MUST_USE;

/* Leaves out the oldest question and what follows up to the next one. False: only one is left. */
bool dialogue_leave_out(struct dialogue *dialogue);

/* After an answer was generated behind dialogue_prompt(): appends its message. `parts`: those of its text, whose calls the
 * message has, too; or NULL. */
int dialogue_answer(struct dialogue *dialogue, const struct gen_result *result,
                    const struct tool_answer *parts, struct err *err) MUST_USE;
