/* bmc-gen --chat -i and bmc-spec --chat -i: a conversation at a terminal.
 *
 * All answers of a conversation are requests of one generate() call with one slot: while the user types,
 * the slot retains its KV entries, and the next prompt reuses those of the longest common prefix. Files,
 * lowest first: line_editor, sandbox_filter, sandbox, repl_tools, repl_turn, repl_commands, repl_session, repl. */
#pragma once

#include "chat/line_editor.h"
#include "chat/repl_tools.h"
#include "gen/gen.h"
#include "serve/chat/dialogue.h"

/* What a turn cost. */
struct turn_counts {
    size_t prompt, reused, loaded, prefilled, generated;
    double decode_ms;
    size_t decoded;
};

struct repl {
    struct gen *gen;
    struct line_editor *editor;
    struct dialogue dialogue;
    struct gen_stats stats;     /* of the whole run */
    struct gen_request request; /* the one in flight, or the last one */
    struct gen_answer answer;   /* of that */
    struct repl_tools tools;    /* of --run-tools */
    struct gen_stats before;    /* `stats` when the request began */
    size_t n_requests;
    struct turn_counts last;
    struct buf attached;       /* text of /file, for the next message */
    struct snapshot *snapshot; /* that the conversation continues, as long as it is needed; or NULL */
    bool owns_snapshot;        /* opened by /load, or that of a session */
    char folder[4096];         /* of --session */
    int folder_fd;             /* -1: there is none */
    size_t n_answers_before;   /* of the session, in earlier runs */
    bool changed;              /* the KV cache is that of the conversation before a command */
    bool answering;            /* text of the answer has been printed */
    char last_byte;            /* the last byte printed of the answer */
    struct cli_progress progress;
    char label[48];
    double prefill_from_ms; /* clock when prefill began; 0: not yet */
};

/* Set by Ctrl-C: ends an answer, or the line that is being typed. */
extern volatile sig_atomic_t repl_stop;

/* Prints a sentence on standard error. */
void repl_say(const char *format, ...) PRINTF_LIKE(1, 2);

/* Prints text of the model. */
int repl_print(struct repl *repl, const char *text, size_t len, struct err *err) MUST_USE;

/* Prints the tokens of the last turn; and of the whole conversation (/stats). */
void repl_print_turn(const struct repl *repl, const struct gen_result *result);
void repl_print_stats(struct repl *repl);

/* Sets repl->request to a request for the next answer. -1: the prompt cannot be made, or is too long. */
int repl_begin_turn(struct repl *repl, struct err *err) MUST_USE;

/* Takes over the result of the request: its message and statistics. */
int repl_end_turn(struct repl *repl, const struct gen_result *result, struct err *err) MUST_USE;

/* Makes the conversation continue sequence 0 of a snapshot, whose messages are unknown. */
int repl_continue(struct repl *repl, struct snapshot *snapshot, bool owns, struct err *err) MUST_USE;

/* Forgets the conversation, but for a system message. */
int repl_reset(struct repl *repl, struct err *err) MUST_USE;

/* Saves the KV cache as a snapshot: that of sequence `seq`. */
int repl_save_kv(struct repl *repl, const char *path, size_t seq, struct err *err) MUST_USE;

/* Reads a saved conversation, an object with a valid list "messages", which the caller releases. NULL: it is none. */
json_t *repl_read_messages(const char *path, struct err *err);

/* Sets `rest` to what completes the line, for line_editor_open(). */
int repl_complete(void *repl, const char *line, struct buf *rest, struct err *err) MUST_USE;

enum command_outcome { COMMAND_DONE, COMMAND_ANSWER, COMMAND_QUIT };

/* Runs a command, a line that begins with a slash. COMMAND_ANSWER: the conversation is to be answered.
 * -1: it failed; the conversation is as before. */
int repl_command(struct repl *repl, const char *line, struct err *err) MUST_USE;

/* The job: runs the conversation until the user ends it. */
int repl_run(struct gen *gen, struct err *err) MUST_USE;
