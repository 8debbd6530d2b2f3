/* Conversations that are kept under a name (--session) and go on where they ended: a folder of the user for each, with
 * the messages, the tokens and a snapshot of the KV cache. */
#pragma once

#include "chat/repl.h"

/* Opens the conversation `name` and goes on with it, if there is one. Fails if another process has it open, or if it is
 * with another model or chat template. */
int repl_session_open(struct repl *repl, const char *name, struct err *err) MUST_USE;

/* Saves the messages, as after each answer; and the KV cache of sequence `seq`, at the end. What fails is said. Nothing
 * is done without --session. */
void repl_session_save(struct repl *repl);
void repl_session_save_kv(struct repl *repl, size_t seq);
void repl_session_close(struct repl *repl);

/* --list-sessions and --remove-session. */
int repl_list_sessions(struct err *err) MUST_USE;
int repl_remove_session(const char *name, struct err *err) MUST_USE;
