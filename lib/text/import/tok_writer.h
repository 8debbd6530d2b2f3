/* Tokenizer tables under construction, and writing them as one block. */
#pragma once

#include "base/mem.h"
#include "text/ids.h"
#include "text/slice.h"
#include "text/tokenizer/tok_tables.h"

struct tok_writer_token {
    size_t spelling; /* offset in spellings */
    uint32_t len;
    uint32_t added; /* 1 + index into `added`; 0: not an added token */
    uint8_t flags;  /* 0: unused id */
    bool joined;    /* left, right or result of a merge */
};

/* Tables under construction; empty if zero-initialised except `where`, `err` and `vocab_rows`.
 *
 * Functions that add to them do nothing after the first error, which is kept in *err; callers look at `failed`
 * at the end, and before they use what they added. */
struct tok_writer {
    struct err *err;
    bool failed;
    const char *where; /* file name for errors */
    size_t vocab_rows;
    enum tok_kind kind;
    uint32_t flags; /* enum tok_option */
    uint32_t unk;
    struct buf spellings;
    struct tok_writer_token *token;
    size_t ids, token_cap;
    struct tok_writer_merge *merge;
    size_t merges, merge_cap;
    struct tok_writer_added *added;
    size_t added_count, added_cap;
    struct buf texts; /* strings of steps and added tokens */
    struct tok_step step[LIST_COUNT][TOK_MAX_STEPS];
    uint32_t steps[LIST_COUNT];
    struct ids prefix, suffix;
    double *score; /* [ids], only of models with scores */
    size_t score_cap;
    double unk_score;
    struct buf charsmap;
    bool isolate_chinese; /* BERT's pre-tokenizer makes a word of each Chinese character */
};

void tok_writer_release(struct tok_writer *writer);

/* Fails with this message, unless there is an error already. */
void tok_writer_fail(struct tok_writer *writer, const char *format, ...) PRINTF_LIKE(2, 3);

/* Calls a function that reports to writer->err, unless there is an error; true: there is one now. */
#define TOK_TRY(writer, call) ((writer)->failed = (writer)->failed || (call) < 0)

/* Sets the spelling of an id, or adds flags if it has that spelling already. */
void tok_writer_set_token(struct tok_writer *writer, int64_t id, const char *spelling, size_t len,
                          uint8_t flags);

/* Appends a step with operands `a` and `b`, which may be NULL, to a list of steps. */
void tok_writer_add_step(struct tok_writer *writer, enum tok_list list, enum tok_step_kind kind,
                         uint32_t option, const struct slice *a, const struct slice *b);

/* Adds a merge; those of the lowest rank are done first, of equal ones the leftmost. */
void tok_writer_add_merge(struct tok_writer *writer, uint32_t left, uint32_t right, uint32_t result,
                          size_t rank);

/* Sets the score of an existing id. */
void tok_writer_set_score(struct tok_writer *writer, size_t id, double score);

/* Sets SentencePiece's precompiled normalizer, given in base64. */
void tok_writer_set_charsmap(struct tok_writer *writer, struct slice base64);

/* Appends the finished tables to `blob`: -1 if anything failed. Reorders merges and added tokens. */
int tok_writer_write(struct tok_writer *writer, struct buf *blob) MUST_USE;

/* Adds an added token; a later entry with the same id replaces its flags (enum tok_added_flag). */
void tok_writer_add_added(struct tok_writer *writer, int64_t id, const char *content, size_t len,
                          uint32_t flags, bool normalized, bool special);

/* Adds a user-defined token of SentencePiece, which is matched in normalised text, with U+2581
 * for spaces. */
void tok_writer_add_user_defined(struct tok_writer *writer, int64_t id, const char *content,
                                 size_t len);

/* Normalises the added tokens that are matched in normalised text. Call after all normalizers
 * and added tokens are known. */
void tok_writer_normalize_added(struct tok_writer *writer);
