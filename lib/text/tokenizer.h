/* Text <-> token ids.
 *
 * bmc-convert builds a tokenizer once from the files of a Hugging Face folder into one block of
 * ready look-up tables; every other program uses those tables in place, inside the mapped model
 * file. The room knows nothing of models or of files.
 *
 * Chain of an encode: added tokens are cut out -> normalizer -> pre-tokenizer -> model -> template.
 *
 * The files of the room, the lowest first; each includes and uses only those that stand before it:
 *
 *   utf8 letters slice ids pattern        characters, bytes, lists, regular expressions
 *   tok_tables                            the block of look-up tables: what all others read
 *   added charsmap tok_steps              its added tokens, characters and steps, searched
 *   tok_unknown merging                   what models share
 *   bpe spm unigram tok_model             models, and their table
 *   norm_chars norm_spm norm              normalizers, and their table
 *   pretok detok                          pre-tokenizers, decoders; links do not know each other
 *   tokenizer                             the chains
 *   tok_sorted tok_draft                  the block, written
 *   tok_added                             its added tokens, which the chain's own normalizer spells
 *   parts_* tok_parts tok_pieces          components and pieces that the files of a model's folder name
 *   tok_build                             those files
 *   chat                                  conversations as text */
#ifndef BMC_TOKENIZER_H
#define BMC_TOKENIZER_H

#include "text/ids.h"
#include "text/slice.h"

struct tokenizer;

/* Opens tables in place: `blob` (8-byte aligned) must outlive the tokenizer. Everything that the other
 * functions rely on is checked, here or where it is used, so that hostile tables can cause an error or
 * wrong ids but nothing else; ids are always below tokenizer_vocab().
 * Costs microseconds: the large tables are not read, and patterns are compiled when first needed (safe
 * from several threads). */
int tokenizer_open(struct tokenizer **tok, const void *blob, size_t size, struct err *err) MUST_USE;
void tokenizer_free(struct tokenizer *tok);

/* All ids are below this; there may be holes, and the model's embedding may have more rows. */
size_t tokenizer_vocab(const struct tokenizer *tok);

/* Appends the ids of `len` bytes of UTF-8 text, at most 1 GiB, to `ids`; invalid UTF-8 is an error that
 * names the byte; an error leaves `ids` as it was.
 * `with_template` adds the start and end tokens that the model's own files ask for. */
int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t len, bool with_template,
                     struct ids *ids, struct err *err) MUST_USE;

/* The same, but a special token that is spelled in the text is text like any other. */
int tokenizer_encode_plain(const struct tokenizer *tok, const char *text, size_t len,
                           bool with_template, struct ids *ids, struct err *err) MUST_USE;

/* tokenizer_encode() without the template, of a text of which `words`, ascending, are somebody's words: there special tokens, and
 * those whose ids are among `marks`, are text like any other. */
int tokenizer_encode_around(const struct tokenizer *tok, const char *text, size_t len,
                            const struct span *words, size_t n_words, const struct ids *marks,
                            struct ids *ids, struct err *err) MUST_USE;

/* Appends the ids of the added tokens that stand in a text. */
int tokenizer_marks(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                    struct err *err) MUST_USE;

/* True when encoding with the template adds tokens of its own, as OPT's "</s>" in front. */
bool tokenizer_has_template(const struct tokenizer *tok);

/* The id whose vocabulary entry is exactly `content` (as the files spell it), or -1. */
int64_t tokenizer_find(const struct tokenizer *tok, const char *content, size_t len);

bool tokenizer_is_special(const struct tokenizer *tok, uint32_t id);

/* Appends one token's own bytes, as they stand in running text (" upon"); the bytes need not be valid
 * UTF-8 by themselves. An id outside the vocabulary adds nothing. */
int tokenizer_piece(const struct tokenizer *tok, uint32_t id, struct buf *out,
                    struct err *err) MUST_USE;

/* The same for people and JSON: always valid UTF-8, bytes that are not written as <0xE2>. */
int tokenizer_piece_printable(const struct tokenizer *tok, uint32_t id, struct buf *out,
                              struct err *err) MUST_USE;

#endif
