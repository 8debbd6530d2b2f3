/* An index of token sequences that finds where the last tokens of a sequence occurred before, for
 * suffix decoding.
 *
 * Tokens of all sequences are stored in one ring of blocks; hash chains lead from the last 8, 4 and 2
 * tokens at a position to the positions before it with the same hash, newest first. Adding a token
 * takes constant time, memory is allocated once, and the oldest blocks are overwritten. */
#pragma once

#include "base/err.h"

enum {
    SUFFIX_MIN = 2,          /* tokens of the shortest match that is found */
    SUFFIX_DEPTH = 32,       /* tokens of the longest match; longer ones count as this long */
    SUFFIX_OCCURRENCES = 32, /* most occurrences found at once, and most steps along a hash chain */
    SUFFIX_TOKEN_BYTES = 32  /* memory of the index per token of its capacity, at most */
};

/* A sequence that is being added. Zero-initialised, it is new. */
struct suffix_sequence {
    size_t n;                    /* tokens added */
    uint32_t id;                 /* of the index; never 0 once a token was added */
    uint32_t last;               /* position of the newest token */
    uint32_t tail[SUFFIX_DEPTH]; /* the last tokens, newest last */
};

/* A position whose last `length` tokens are those searched for, and which another token follows. */
struct suffix_occurrence {
    uint32_t at;
    uint32_t sequence; /* id of the sequence */
    size_t length;
};

struct suffix_index;

/* An index of the last `capacity` tokens, rounded up to whole blocks; capacity <= 2^27. */
int suffix_index_open(struct suffix_index **index, size_t capacity, struct err *err) MUST_USE;
void suffix_index_close(struct suffix_index *index); /* NULL is accepted */

/* Adds those of ids[0..n) that the sequence lacks. If the sequence's last tokens are not those
 * before, ids are those of a new sequence, which replaces it. */
void suffix_index_follow(struct suffix_index *index, struct suffix_sequence *sequence,
                         const uint32_t *ids, size_t n);

/* Finds occurrences of the last tokens of ids[0..n), and returns their number: those found from the
 * last 8 tokens, then from the last 4 and 2 the shorter ones, each newest first. */
size_t suffix_index_find(const struct suffix_index *index, const uint32_t *ids, size_t n,
                         struct suffix_occurrence found[SUFFIX_OCCURRENCES]);

/* Advances a position to the next token of its sequence. False: there is none. */
bool suffix_index_next(const struct suffix_index *index, uint32_t *at, uint32_t *token);
