/* Text <-> token ids.
 *
 * bmc-convert builds a tokenizer once from the files of a Hugging Face folder into one block of
 * ready look-up tables; every other program uses those tables in place, inside the mapped model
 * file. The room knows nothing of models or of files.
 *
 * Chain of an encode: added tokens are cut out -> normalizer -> pre-tokenizer -> BPE -> template. */
#ifndef BMC_TOKENIZER_H
#define BMC_TOKENIZER_H

#include "base/err.h"
#include "base/mem.h"

struct tokenizer;

/* A list of token ids that grows. Zero-initialised is empty. */
struct ids {
    uint32_t *id;
    size_t len;
    size_t cap;
};

int ids_add(struct ids *ids, uint32_t id, struct err *err) MUST_USE;
void ids_release(struct ids *ids);

/* Adds the ids of a text: whole numbers separated by blanks or commas, with or without brackets. */
int ids_parse(struct ids *ids, const char *text, struct err *err) MUST_USE;

/* Contents of the files that describe a tokenizer; a file that does not exist is {NULL, 0}.
 * tokenizer_json is used when it is there, else vocab_json with merges_txt. */
struct text_file {
    const char *data;
    size_t size;
};

struct tokenizer_source {
    const char *folder; /* for error sentences */
    struct text_file tokenizer_json;
    struct text_file vocab_json;
    struct text_file merges_txt;
    struct text_file tokenizer_config_json;
    struct text_file special_tokens_map_json;
    bool no_start;     /* leave out what the template puts in front of texts */
    size_t vocab_rows; /* rows of the model's embedding: no id may reach it */
};

/* Appends the look-up tables to `blob`. The same source gives the same bytes. Components that are
 * not implemented are refused by their name. */
int tokenizer_build(const struct tokenizer_source *source, struct buf *blob, struct err *err) MUST_USE;

/* Appends the tables of a stand-in tokenizer with `vocab_rows` >= 256 entries, for synthetic models:
 * one token per byte value, the rest named "<synth-ID>" and never produced by encoding. */
int tokenizer_build_bytes(size_t vocab_rows, struct buf *blob, struct err *err) MUST_USE;

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

/* Ids to text, one at a time. Whole characters only: bytes of an unfinished character are held back
 * until it is finished, or until detok_finish(), and bytes that can never become one turn into U+FFFD.
 * Special tokens add nothing unless `keep_special`. */
struct detok {
    const struct tokenizer *tok;
    bool keep_special;
    bool started; /* a token came before: leading-space rules no longer apply */
    unsigned char held[4];
    size_t held_len;
};

void detok_init(struct detok *detok, const struct tokenizer *tok, bool keep_special);
int detok_add(struct detok *detok, uint32_t id, struct buf *out, struct err *err) MUST_USE;
int detok_finish(struct detok *detok, struct buf *out, struct err *err) MUST_USE;

#endif
