/* Added tokens of a tokenizer under construction. */
#ifndef BMC_TOK_ADDED_H
#define BMC_TOK_ADDED_H

#include "text/import/tok_writer.h"

/* Adds an added token; a later entry with the same id replaces its flags (enum tok_added_flag). */
int tok_writer_add_added(struct tok_writer *writer, int64_t id, const char *content, size_t len,
                         uint32_t flags, bool normalized, bool special, struct err *err) MUST_USE;

/* Adds a user-defined token of SentencePiece, which is matched in normalised text, with U+2581
 * for spaces. */
int tok_writer_add_user_defined(struct tok_writer *writer, int64_t id, const char *content, size_t len,
                                struct err *err) MUST_USE;

/* Normalises the added tokens that are matched in normalised text. Call after all normalizers
 * and added tokens are known. */
int tok_writer_normalize_added(struct tok_writer *writer, struct err *err) MUST_USE;

#endif
