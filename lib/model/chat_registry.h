/* The installed chat formats, MODELS_DIR/chat/NAME.jinja. */
#pragma once

#include "model/config.h"
#include "text/chat/chat.h"
#include "text/tokenizer/tokenizer.h"

enum { CHAT_NONE, CHAT_FOUND };

/* Opens a format by name, or a .chat file by path (a name with a slash). */
int chat_open(struct chat *chat, const char *models_dir, const char *name, struct err *err) MUST_USE;

/* Whether a name is the path of a Jinja template: it ends with ".jinja" or ".j2". */
bool chat_is_jinja_path(const char *name);

/* Finds the format whose `mark` lines all occur in a model's chat_template; of several, the one
 * with the longest marks in total. Returns CHAT_FOUND, CHAT_NONE, or -1. */
int chat_find(struct chat *chat, const char *models_dir, const char *chat_template, size_t len,
              struct err *err) MUST_USE;

/* Appends the text of the model's BOS token to `bos`, and of its first EOS token to `eos`; nothing
 * if the model has no such token. */
int chat_default_tokens(const struct tokenizer *tok, const struct config *config, struct buf *bos,
                        struct buf *eos, struct err *err) MUST_USE;
