/* Chat formats that came with the programs: MODELS_DIR/chat. */
#ifndef BMC_CHATS_H
#define BMC_CHATS_H

#include "model/config.h"
#include "text/chat.h"

enum { CHAT_NONE, CHAT_FOUND };

/* The format of that name, or that of the .chat file at a path (with a slash in it). */
int chat_open(struct chat *chat, const char *models_dir, const char *name, struct err *err) MUST_USE;

/* The format whose marks a model's chat_template has; of several the one with most of them. CHAT_FOUND, CHAT_NONE, or
 * -1. */
int chat_find(struct chat *chat, const char *models_dir, const char *chat_template, size_t len,
              struct err *err) MUST_USE;

/* Appends what texts of a model begin with and what ends them, as text: its tokenizer's start token and its first end of
 * text; nothing where there is none. */
int chat_usual_tokens(const struct tokenizer *tok, const struct config *config, struct buf *bos,
                      struct buf *eos, struct err *err) MUST_USE;

/* {bos} and {eos} in the format become those texts. */
int chat_set_tokens(struct chat *chat, const char *bos, const char *eos, struct err *err) MUST_USE;

/* Names of the formats, divided by commas, for sentences. */
int chat_names(const char *models_dir, struct buf *names, struct err *err) MUST_USE;

#endif
