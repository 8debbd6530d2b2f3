/* Inside lib/kv/state: blocks and sequences of a store. */
#pragma once

#include "kv/state/state.h"

/* A state, [layers][state_layer_floats()]: not changed once it is part of a sequence. */
struct state_block {
    size_t refs;
    struct device_addr data;
};

enum kept_why { KEPT_STORED, KEPT_REGULAR, KEPT_RECENT, KEPT_MARKED };

struct kept {
    size_t position;
    enum kept_why why;
    struct state_block *block;
};

enum { STATE_WANTED = 6 }; /* most marks of a sequence, both to come and kept */

struct state_seq {
    struct state_block *now;  /* at the committed position; NULL: zeros */
    struct state_block *next; /* after the current pass */
    size_t position, rows;    /* of the current pass */
    bool tree;
    struct kept *kept; /* [store->most_kept], ascending positions */
    size_t n_kept;
    size_t every; /* distance of regular positions; grows as the sequence does */
    size_t wanted[STATE_WANTED], n_wanted;
    struct {
        size_t rows;
        enum kept_why why;
        struct state_block *block;
    } mark[STATE_MARKS]; /* of the current pass, ascending */
    size_t n_marks;
    /* [layers][options.rows][state_input_floats()]; none until they are needed */
    struct device_addr inputs;
    bool recorded; /* the current pass records its inputs */
};

struct state_store {
    struct state_shape shape;
    struct state_options options;
    size_t n_seqs, every, most_kept;
    struct state_block *zero;
    struct state_block *spare; /* one that is free, to be used next; or NULL */
    struct state_seq *seq;
    size_t resident_bytes;
};

struct state_block *state_block_new(struct state_store *store);
void state_block_release(struct state_store *store, struct state_block *block);
void state_block_free(struct state_store *store, struct state_block *block); /* NULL is accepted */

static inline struct state_block *state_block_share(struct state_block *block)
{
    if (block)
        block->refs++;
    return block;
}

/* One layer's part of a block. */
struct state_part state_part_of(const struct state_store *store, const struct state_block *block,
                                size_t layer);

/* The most states kept at regular positions of a sequence of `rows` tokens. */
size_t state_most_regular(const struct state_options *options, size_t rows);

/* Drops the states that are kept at positions behind `end`. */
void state_drop_after(struct state_store *store, struct state_seq *seq, size_t end);

/* The state kept at a position; NULL: none. */
struct state_block *state_find(const struct state_seq *seq, size_t position);

/* Sets the marks of a pass: regular positions and wanted ones inside of it. */
int state_plan_marks(struct state_store *store, struct state_seq *seq, struct err *err) MUST_USE;

/* At the end of a pass of which n tokens were accepted, the first n if `leading`: keeps its marks up to there and, if
 * wanted, the state at its end, seq->now. */
void state_keep_pass(struct state_store *store, struct state_seq *seq, size_t n, bool leading);

/* Keeps the state of a sequence that has been loaded, seq->now at seq->position. */
void state_keep_loaded(struct state_store *store, struct state_seq *seq);
