/* The tokenizer: converts text to token ids and back.
 *
 * bmc-convert builds the tables of a tokenizer from Hugging Face or GGUF files; all other programs
 * use them in place in the mapped model file. This module knows nothing of models or files.
 *
 * Encoding: added tokens are split off -> normalizer -> pre-tokenizer -> model -> template.
 *
 * Files, lowest layer first; each uses only those before it:
 *
 *    utf8 slice ids pattern   characters, texts, lists, regular expressions
 *    tok_tables added         the tables; added tokens
 *    tok_model                models: BPE, SentencePiece's BPE, Unigram
 *    tok_steps detok          normalizers and pre-tokenizers; decoders
 *    tokenizer                the whole pipeline
 *    tok_writer               writing the tables
 *    tok_components           components of model files
 *    tok_build                vocabularies and model files */
#pragma once

#include "text/ids.h"
#include "text/slice.h"

struct tokenizer;

/* Opens tables in place: `blob` must be 8-byte aligned and outlive the tokenizer. Input is
 * untrusted: damaged tables can cause errors or wrong ids, nothing else; ids are always below
 * tokenizer_vocab(). Takes microseconds: large tables are not read, and patterns are compiled on
 * first use (thread-safe). */
int tokenizer_open(struct tokenizer **tok, const void *blob, size_t size, struct err *err) MUST_USE;
void tokenizer_free(struct tokenizer *tok);

/* All ids are smaller; there may be gaps, and the embedding may have more rows. */
size_t tokenizer_vocab(const struct tokenizer *tok);

/* Appends the ids of `len` bytes of UTF-8, at most 1 GiB. Invalid UTF-8 is an error; after
 * errors `ids` is unchanged. `with_template` adds BOS and EOS as the model's own tokenizer does. */
int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t len, bool with_template,
                     struct ids *ids, struct err *err) MUST_USE;

/* tokenizer_encode() without matching special tokens: their spelling is plain text. */
int tokenizer_encode_plain(const struct tokenizer *tok, const char *text, size_t len,
                           bool with_template, struct ids *ids, struct err *err) MUST_USE;

/* Appends the ids of a pair of texts as the model's own tokenizer joins them: the first with its template, `gap` further
 * separators (the template's last token), and the second, whose first token's index in `ids` becomes *second, with what
 * the template has behind a text. Special tokens in both are plain text. */
int tokenizer_encode_pair(const struct tokenizer *tok, struct slice first, struct slice second,
                          size_t gap, struct ids *ids, size_t *second_at, struct err *err) MUST_USE;

/* tokenizer_encode() of a rendered conversation, without template: inside the ascending ranges
 * `content`, special tokens and the ids in `delimiters` are not matched. */
int tokenizer_encode_chat(const struct tokenizer *tok, const char *text, size_t len,
                          const struct span *content, size_t n_content, const struct ids *delimiters,
                          struct ids *ids, struct err *err) MUST_USE;

/* Appends the ids of all added tokens in a text. */
int tokenizer_find_added(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                         struct err *err) MUST_USE;

/* True if tokenizer_encode() adds BOS, EOS or other tokens when `with_template`. */
bool tokenizer_has_template(const struct tokenizer *tok);

/* Number of leading tokens of a sequence that are those which tokenizer_encode() puts in front of texts,
 * as BOS; 0 if it begins with others. */
size_t tokenizer_leading(const struct tokenizer *tok, const uint32_t *id, size_t n);

/* The id of a token, spelled as in tokenizer.json or other tokenizer files, or -1. */
int64_t tokenizer_find(const struct tokenizer *tok, const char *content, size_t len);

bool tokenizer_is_special(const struct tokenizer *tok, uint32_t id);

/* Appends one token's bytes as in running text (" upon"), possibly invalid UTF-8; nothing for
 * unknown ids. */
int tokenizer_piece(const struct tokenizer *tok, uint32_t id, struct buf *out,
                    struct err *err) MUST_USE;

/* tokenizer_piece() for display and JSON: valid UTF-8, with other bytes as <0xE2>. */
int tokenizer_piece_printable(const struct tokenizer *tok, uint32_t id, struct buf *out,
                              struct err *err) MUST_USE;
