/* Tables in the making: filled while the files of a tokenizer are read, then written as one block. */
#ifndef BMC_TOK_DRAFT_H
#define BMC_TOK_DRAFT_H

#include "text/ids.h"
#include "text/slice.h"
#include "text/tok_tables.h"

struct tok_draft_token {
    size_t spelling; /* in draft.spellings */
    uint32_t len;
    uint32_t added; /* its place in draft.added, counted from 1; 0: none */
    uint8_t flags;  /* 0: no such id */
    bool joined;    /* merges take or make it */
};

struct tok_draft_merge {
    uint32_t left;
    struct tok_merge merge;
};

struct tok_draft_added {
    uint32_t id;
    uint32_t flags;
    bool normalized;
    uint32_t text; /* in draft.texts: what is looked for */
    uint32_t len;
};

/* Zero-initialised but for `where` and `vocab_rows` is empty. */
struct tok_draft {
    const char *where; /* the file, for error sentences */
    size_t vocab_rows;
    enum tok_kind kind;
    uint32_t flags; /* enum tok_option */
    uint32_t unk;
    struct buf spellings;
    struct tok_draft_token *token;
    size_t ids;
    size_t token_cap;
    struct tok_draft_merge *merge;
    size_t merges;
    size_t merge_cap;
    struct tok_draft_added *added;
    size_t added_count;
    size_t added_cap;
    struct buf texts; /* of steps and added tokens */
    struct tok_step step[LIST_COUNT][TOK_MAX_STEPS];
    uint32_t steps[LIST_COUNT];
    struct ids prefix;
    struct ids suffix;
    double *score; /* by id, of models that have scores */
    size_t score_cap;
    double unk_score;
    struct buf charsmap;
};

void tok_draft_release(struct tok_draft *draft);

/* Gives an id its spelling, or more flags if it has that spelling already. */
int tok_draft_set_token(struct tok_draft *draft, int64_t id, const char *spelling, size_t len,
                        uint8_t flags, struct err *err) MUST_USE;

/* Keeps a string and tells where in draft.texts. */
int tok_draft_keep_text(struct tok_draft *draft, const char *text, size_t len, uint32_t *at,
                        struct err *err) MUST_USE;

/* Appends a step; `a` and `b` may be NULL. */
int tok_draft_add_step(struct tok_draft *draft, enum tok_list list, enum tok_step_kind kind,
                       uint32_t option, const struct slice *a, const struct slice *b,
                       struct err *err) MUST_USE;

int tok_draft_add_merge(struct tok_draft *draft, uint32_t left, uint32_t right, uint32_t result,
                        struct err *err) MUST_USE;

/* The score of an id that is there. */
int tok_draft_set_score(struct tok_draft *draft, size_t id, double score, struct err *err) MUST_USE;

/* SentencePiece's precompiled normalizer, in base64. */
int tok_draft_set_charsmap(struct tok_draft *draft, struct slice base64, struct err *err) MUST_USE;

/* Appends the finished block to `blob`. Sorts merges and added tokens of the draft. */
int tok_draft_write(struct tok_draft *draft, struct buf *blob, struct err *err) MUST_USE;

#endif
