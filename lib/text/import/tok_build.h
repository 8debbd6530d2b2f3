/* Converts Hugging Face tokenizer files to tokenizer tables. */
#pragma once

#include "base/json.h"
#include "text/import/tok_writer.h"
#include "text/slice.h"

/* Contents of tokenizer files; {NULL, 0} if a file does not exist. tokenizer_json is preferred over
 * vocab_json with merges_txt. */
struct tokenizer_source {
    const char *folder; /* for errors */
    /* name of the first file in errors; NULL: its usual name in the folder */
    const char *name;
    struct slice tokenizer_json, vocab_json, merges_txt;
    struct slice added_tokens_json; /* used where no other file has added tokens */
    struct slice tokenizer_config_json, special_tokens_map_json;
    bool no_bos;       /* omit the template's prefix (BOS) */
    size_t vocab_rows; /* rows of the embedding; ids must be below */
};

/* Appends the tokenizer tables to `blob`, deterministically. Unsupported components are errors. */
int tokenizer_build(const struct tokenizer_source *source, struct buf *blob, struct err *err) MUST_USE;

/* Appends the tables of a stand-in tokenizer for synthetic models: `vocab_rows` >= 256 tokens,
 * one per byte, the others named "<synth-ID>" and never produced by encoding. */
int tokenizer_build_bytes(size_t vocab_rows, struct buf *blob, struct err *err) MUST_USE;
