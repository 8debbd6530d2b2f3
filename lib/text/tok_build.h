/* Files of a Hugging Face folder -> tables. */
#ifndef BMC_TOK_BUILD_H
#define BMC_TOK_BUILD_H

#include "text/slice.h"

/* Contents of the files that describe a tokenizer; a file that does not exist is no text.
 * tokenizer_json is used when it is there, else vocab_json with merges_txt. */
struct tokenizer_source {
    const char *folder; /* for error sentences, */
    const char *name;   /* and the file that the first text is of; NULL: its usual name in the folder */
    struct slice tokenizer_json;
    struct slice vocab_json;
    struct slice merges_txt;
    struct slice tokenizer_config_json;
    struct slice special_tokens_map_json;
    bool no_start;     /* leave out what the template puts in front of texts */
    size_t vocab_rows; /* rows of the model's embedding: no id may reach it */
};

/* Appends the look-up tables to `blob`. The same source gives the same bytes. Components that are
 * not implemented are refused by their name. */
int tokenizer_build(const struct tokenizer_source *source, struct buf *blob, struct err *err) MUST_USE;

/* Appends the tables of a stand-in tokenizer with `vocab_rows` >= 256 entries, for synthetic models:
 * one token per byte value, the rest named "<synth-ID>" and never produced by encoding. */
int tokenizer_build_bytes(size_t vocab_rows, struct buf *blob, struct err *err) MUST_USE;

#endif
