/* Recurrent state of sequences: what layers without KV entries keep of the tokens before. It is a part
 * of a sequence like its KV entries; lib/kv/kv.c commits, forks and truncates both together.
 *
 * A layer's state has two parts: the last inputs of a causal convolution over channels, and, per head, a
 * matrix S [key_dim][value_dim] that each token updates (kernel.h, struct recur):
 *
 *     conv   [taps][conv]                               oldest input first
 *     matrix [heads][slabs][key_dim][STATE_SLAB]        value_dim in slabs of STATE_SLAB columns
 *
 * All is f32. States are never changed in place: a forward pass reads the state at the committed
 * position and writes the state after its last token to another block. So forks, beams and kept states
 * share blocks by reference, and a pass that is dropped changes nothing. If only some of the tokens of a
 * pass are accepted (speculative decoding), their recorded inputs are applied again to the committed
 * state, by the same arithmetic. */
#pragma once

#include "backend/memory.h"
#include "base/err.h"
#include "base/mem.h"

struct kernels;

enum { STATE_SLAB = 32 }; /* columns of a slab: the unit of work of the recurrence */

struct state_shape {
    size_t layers;     /* layers with state */
    size_t taps;       /* earlier inputs that the convolution reads: kernel size - 1 */
    size_t conv;       /* channels of the convolution; 0: no state */
    size_t heads;      /* heads of the recurrence; 0: the layer is a convolution only */
    size_t key_heads;  /* heads of keys and queries; state_key_head() */
    size_t group;      /* heads per head of keys, in all ranks */
    size_t first_head; /* tiled: heads of other ranks that come before */
    size_t key_dim, value_dim;
    bool tiled;  /* every key_heads-th head has the same keys; else `group` consecutive ones */
    bool delta;  /* delta rule: S is corrected by the difference between v and what S has for k */
    bool by_row; /* each row of S, or element of keys, has a decay of its own; else a head has one */
};

/* Recorded inputs that are applied again, in all layers: to the state `before`, [layers][state_layer_floats()], from
 * which that at `after` follows. `inputs` are [layers][rows][state_input_floats()], of which the tokens row[0..n) are
 * applied, or the first n if `row` is NULL. */
struct state_replay {
    const struct state_shape *shape;
    struct device_addr before, after, inputs;
    size_t rows, n;
    const size_t *row;
};

enum { STATE_KEPT = 64 };

/* Recurrent state of a cache's sequences, and what the cache keeps beside it. */
struct state_options {
    struct state_shape shape;   /* of this rank's layers */
    struct state_shape largest; /* of all ranks, for footprints; all 0: `shape` */
    size_t every;               /* distance of regular positions; 0: state_distance() of this cache */
    /* For a prefix cache that stores states: those at multiples of `stored` are kept until the next pass, and the
     * last one at a multiple of `block` inside the tokens that are generated; 0: none. */
    size_t stored, block;
    size_t pass; /* for `stored`: most tokens of a pass */
    size_t rows; /* passes of up to this many tokens may be accepted in part; 0, 1: none */
    size_t kept; /* most states kept at regular positions, for prefix caching */
    /* tokens whose KV entries have the bytes of a state: longer sequences keep up to STATE_KEPT states, as far
     * as these have at most half the bytes of their KV entries; 0: never more than `kept` */
    size_t cost;
    size_t recent; /* most states kept of the latest passes, for truncation */
    /* for rows > 1: the backend's operation, and its own options, which it is called with */
    void (*replay)(const struct state_replay *replay, const void *own);
    const void *own;
    const struct backend_memory *memory; /* where states are; set by kv_open() */
};

/* The head of keys and queries that a head of the recurrence has. */
static inline size_t state_key_head(const struct state_shape *s, size_t head)
{
    return s->tiled ? (s->first_head + head) % s->key_heads : head / s->group;
}

static inline size_t state_slabs(const struct state_shape *s)
{
    return div_up(s->value_dim, STATE_SLAB);
}

/* Decays of all heads: one of each, or by_row key_dim of each. */
static inline size_t state_decays(const struct state_shape *s)
{
    return s->by_row ? s->heads * s->key_dim : s->heads;
}

/* Floats of the parts of one layer, and bytes of a sequence's state. state_shape_check() has made sure
 * that they do not overflow. */
size_t state_conv_floats(const struct state_shape *shape);
size_t state_matrix_floats(const struct state_shape *shape);
size_t state_layer_floats(const struct state_shape *shape);
size_t state_bytes(const struct state_shape *shape);

int state_shape_check(const struct state_shape *shape, struct err *err) MUST_USE;

/* The inputs of one token for one layer: what it adds to the state. */
struct state_inputs {
    float *conv;  /* [conv]: input of the convolution */
    float *decay; /* [state_decays()]: S is multiplied by it */
    float *beta;  /* [heads]: delta rule only */
    float *k;     /* [key_heads][key_dim] */
    float *v;     /* [heads][slabs][STATE_SLAB]; columns beyond value_dim are 0 */
};

/* Floats of these inputs, stored one after the other from `row` on; and where each of them begins, the first at 0. */
size_t state_input_floats(const struct state_shape *shape);
struct state_columns {
    size_t decay, beta, k, v;
};
struct state_columns state_columns(const struct state_shape *shape);
struct state_inputs state_inputs_at(const struct state_shape *shape, float *row);

/* One layer's state of one sequence in a forward pass. */
struct state_part {
    struct device_addr conv, matrix;
};

enum { STATE_MARKS = 24 }; /* most states kept inside a pass */

struct state_view {
    struct state_part before;  /* at the committed position; read only */
    struct state_part after;   /* to be written: after the last token of the pass; none if a tree */
    struct device_addr inputs; /* [rows][state_input_floats()] to be written; none: not needed */
    size_t n_marks;
    struct {
        size_t rows;          /* tokens of the pass that come before */
        struct state_part to; /* to be written: the state after them */
    } mark[STATE_MARKS];      /* ascending */
};

/* ---- the store, used by lib/kv/kv.c; positions are counted in tokens. Of a model without state it is NULL, of
 * which changes do nothing ---- */

struct state_store;

/* Distance of regularly kept states such that they take no more memory than the KV entries between
 * them, row_bytes per token: a power of two from `least` to `most`. In memory bytes decide, as writing a state takes the time
 * of a few tokens; without KV entries it is STATE_FARTHEST: states of 24 layers of Mamba-2 of size 768 then take 19 KB per
 * token, less than half of the f32 KV entries of attention models of that size (SmolLM2-135M: 46). */
enum { STATE_NEAREST = 16, STATE_FARTHEST = 1024 }; /* of states in memory */
size_t state_distance(const struct state_shape *shape, size_t row_bytes, size_t least, size_t most);

/* *store is NULL if the shape has no convolution: there is no state. With 0 layers, as one rank of
 * several may have, the store only knows at which positions the others have states. */
int state_open(struct state_store **store, const struct state_options *options, size_t n_seqs,
               struct err *err) MUST_USE;
void state_close(struct state_store *store); /* NULL is accepted */

/* Starts a pass of a sequence over `rows` tokens from `position` on. On error nothing has changed. */
int state_begin(struct state_store *store, size_t seq, size_t position, size_t rows,
                struct err *err) MUST_USE;

/* Fills the view of a layer in the current pass. `tree`: its tokens are a token tree, so there is no
 * state after the last one. Not thread-safe. */
void state_view(struct state_store *store, size_t seq, size_t layer, bool tree,
                struct state_view *view);

/* Ends a pass: accepts its tokens row[0..n), ascending, or the first n if row is NULL. */
void state_accept(struct state_store *store, size_t seq, const size_t *row, size_t n);

/* Returns the last position up to `end` to which a sequence at `position` can be truncated or forked. */
size_t state_rewind(const struct state_store *store, size_t seq, size_t position, size_t end);

/* True if the sequence, at `position`, has a state at position `at`. */
bool state_is_at(const struct state_store *store, size_t seq, size_t position, size_t at);

/* Keeps the state at a position that the sequence has not reached yet, or has just reached. */
void state_mark(struct state_store *store, size_t seq, size_t position, size_t mark);

/* Truncates to, or forks at, a position that state_rewind() returns; 0: no tokens. */
void state_truncate(struct state_store *store, size_t seq, size_t position, size_t end);
void state_fork(struct state_store *store, size_t to, size_t from, size_t position, size_t end);

/* Sequence to[i] gets the state of seq[parent[i]], for all i at once. */
int state_reorder(struct state_store *store, const size_t *seq, const size_t *parent, const size_t *to,
                  size_t n, struct err *err) MUST_USE;

/* Saved states of a sequence: lists the positions with a state, the last being the sequence's own, unless list is NULL,
 * and returns their number; reads the state at one of them, state_bytes(); sets the state of a sequence
 * whose KV entries have just been loaded, which keeps those that were set at earlier positions. */
size_t state_positions(const struct state_store *store, size_t seq, size_t position, size_t *list);
void state_read(const struct state_store *store, size_t seq, size_t position, size_t at, void *to);
int state_load(struct state_store *store, size_t seq, size_t position, const void *state,
               struct err *err) MUST_USE;

/* Bytes allocated now; of the states of a sequence, kept ones included, whoever shares them; the most that a
 * sequence of `rows` tokens may need. */
size_t state_resident_bytes(const struct state_store *store);
size_t state_held_bytes(const struct state_store *store, size_t seq);
size_t state_footprint(const struct state_store *store, size_t rows);
