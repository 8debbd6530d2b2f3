/* The KV cache: rows of K and V in, views for attention out.
 *
 * A policy (one file each, listed in kv_policies.c) owns storage and growth and nothing else; it knows
 * no weights, no sampling and no file format. The front end in kv.c checks arguments and counts. This is what users of
 * a cache see; what policies see is kv_policy.h.
 *
 *   a step of the model, for each of its sequences
 *     kv_room(seq, rows)              may grow the storage: a growth event
 *     for every layer
 *       kv_append(seq, layer, k, v)   the new rows, not committed yet
 *       kv_view(seq, layer)
 *     kv_commit(seq, rows)            all of them stay, or
 *     kv_keep(seq, list)              some of them stay (speculation); the rest are padding again
 *
 * A sequence has n rows that hold committed tokens, and `cap` rows that the policy has made: what lies
 * between is padding, masked by attention or used by speculative tokens. Where its next row stands is a third thing:
 * the position of its first row and n. */
#ifndef BMC_KV_H
#define BMC_KV_H

#include "base/dtype.h"
#include "base/err.h"
#include "base/pages.h"
#include "kv/kv_sparse.h"
#include "kv/kv_spill.h"

struct kv;
struct kv_policy;

/* What attention relies on in a view, checked by kv_view_problem():
 *   - spans come in the order of positions, each beginning at a multiple of TILE_ROWS where the one before ended; the first one
 *     begins at position 0, or where the tile begins that has the first row which the step sees: that sequence's rows are
 *     dropped from the front, and those before in the tile are finite, and nobody's;
 *   - rows of a head lie row_stride bytes apart, at least the size of a row, or where the span's table says; 16 rows from a
 *     multiple of 16 on lie in one span, and all of them can be read and are finite, also behind the last row: storage comes
 *     in whole tiles;
 *   - only the last span has rows without a token behind it (valid < rows);
 *   - `padded` rows before the first span, whole tiles as well, are to be multiplied and masked. */

/* Consecutive positions, each row as base/dtype.h has rows of the view's type. Row i of the view's head h lies at
 * k + view->offset + h * head_stride + kv_span_row(span, i). */
struct kv_span {
    const void *k, *v;
    size_t head_stride, row_stride; /* bytes, the same for k and v */
    size_t first;                   /* position of the first row */
    size_t rows;                    /* rows to multiply, padding included */
    size_t valid; /* leading rows up to the last one that holds a token, committed or not */
    /* [rows, in whole tiles]: bytes to each row, the same for k and v, where rows are scattered since beams read each other's
     * entries; stands until the sequence's next kv_room() or kv_reorder(). NULL: they are row_stride apart. */
    const ptrdiff_t *row;
};

/* Bytes from a span's first head to row i of it. */
static inline ptrdiff_t kv_span_row(const struct kv_span *span, size_t i)
{
    return span->row ? span->row[i] : (ptrdiff_t)(i * span->row_stride);
}

/* Usually one to four spans, kept in `few`; policies with more (blocks) point to a table of theirs,
 * which stands until the sequence's next kv_room(). */
struct kv_view {
    size_t seq, layer, head, heads; /* what it is a view of */
    enum dtype type;
    size_t offset; /* bytes from every span's k and v to the view's layer and first head */
    size_t padded; /* rows on the left of the first span */
    size_t sink,
        recent; /* a query sees so many first rows and so many last ones of this head, itself among them; of rows
                            that nobody sees any more zeros are there. recent 0: it sees all */
    size_t n_spans;
    const struct kv_span *span;
    struct kv_span few[4]; /* a view is not copied: `span` may point here */
};

/* What a cache must hold. */
struct kv_shape {
    size_t layers;
    size_t kv_heads;
    size_t head_dim;
    size_t max_rows; /* N */
    enum dtype type;
};

/* Counted over all sequences since kv_open(). */
struct kv_stats {
    size_t allocations; /* growth events: one for all layers of a sequence */
    size_t copied_rows; /* counted once, not per layer or head */
    /* Of K and V in the cache's type, from memory to memory, scratch included. Not counted: what is dequantised, read from a
     * file, or handed out by kv_read(). */
    size_t copied_bytes;
    size_t padded_rows;                 /* rows multiplied without holding a token, summed over steps */
    size_t rows_computed;               /* rows multiplied, summed over steps */
    size_t adopted_rows, adopted_bytes; /* taken where they lay, without a copy */
    size_t resident_bytes;              /* adopted ones left out: they are the caller's */
    size_t peak_bytes;
    double alloc_ms, copy_ms;
};

/* Name of the i-th policy, NULL behind the last one. */
const char *kv_policy_name(size_t i);

/* Where T came from: a policy that has no choice, the caller's T or r, a tuned profile's table, the formula with a
 * profile's constants, or the formula with the paper's constant. */
enum kv_T_from { KV_T_POLICY, KV_T_OPTION, KV_T_PROFILE, KV_T_FORMULA, KV_T_DEFAULT };

const char *kv_T_from_name(enum kv_T_from from);

/* Picks T for `bmc` where neither T nor r is given: what embeds this knows the machine. 0 when it does not know. */
struct kv_tuner {
    size_t (*pick)(const struct kv_tuner *tuner, const struct kv_shape *shape, size_t n_seqs,
                   enum kv_T_from *from);
};

/* Of a model that several processes have parts of: steps and limits that suit one cache must suit those of the others. Zeros:
 * there are no others. */
struct kv_others {
    size_t layers, kv_heads; /* of the largest of the caches, this one among them */
    const size_t *windows;   /* [n_windows] of all layers of the model. Read by kv_open() only */
    size_t n_windows;
};

/* A policy with its parameters, as --kv spells it: "iterative", "bmc:T=16", "bmc:r=64", "paged:32", "shift:S=2048". */
struct kv_spec {
    const struct kv_policy *policy;
    size_t T, r;           /* 0: not given */
    bool tuned;            /* T=tuned: that of the tuner, where the policy has another habit */
    size_t window;         /* S of an endless policy; 0: N */
    double slack;          /* room beyond the window, as a part of it */
    const size_t *windows; /* [layers] a layer's own, 0: none; or NULL. Read by kv_open() only */
    struct kv_others others;
    struct spill_place spill; /* where rows are that memory does not hold */
    const struct kv_sparse
        *sparse; /* of `headwise`: heads that do not look far; or NULL. Read by kv_open() only */
    const struct kv_tuner *tuner; /* asked for T then; may be NULL */
    enum pages_alloc alloc;       /* how its memory is had */
    bool lockstep;                /* the sequences grow together, as one tensor */
    bool valid_rows_only;         /* --rows valid */
};

int kv_spec_parse(struct kv_spec *spec, const char *text, struct err *err) MUST_USE;

/* True when T is left to the tuner. */
bool kv_spec_needs_T(const struct kv_spec *spec);

/* What is known of a policy before a cache is opened: its name, whether attention will multiply only rows that hold
 * tokens, whether it keeps the last ones only, and whether it can grow a batch as one tensor. */
const char *kv_spec_name(const struct kv_spec *spec);
bool kv_spec_valid_rows(const struct kv_spec *spec);
bool kv_spec_endless(const struct kv_spec *spec);
bool kv_spec_can_lockstep(const struct kv_spec *spec);

/* The default T for a context of N rows: the power of two nearest to sqrt(0.1 * N), at least 1. */
size_t kv_default_T(size_t max_rows);

/* Opens a cache of n_seqs empty sequences. */
int kv_open(struct kv **kv, const struct kv_spec *spec, const struct kv_shape *shape, size_t n_seqs,
            struct err *err) MUST_USE;
void kv_close(struct kv *kv);

/* What was decided when it was opened. T allocations of r rows fill max_rows. */
struct kv_setup {
    const char *policy;
    struct kv_shape shape;
    size_t n_seqs;
    size_t T, r;
    enum kv_T_from T_from;
    size_t heads_at_once; /* KV heads that views show at once, after kv_announce(); 0: all, always */
    /* Endless policies; others have zeros, and no limit to cut_rows but that of sparse heads. */
    size_t window; /* S: a query sees so many positions, itself the last */
    size_t
        cut_rows; /* as long as a sequence has had no more rows than that, no layer has dropped any */
    size_t step_rows; /* of a sequence in a step, at most */
    size_t view_rows; /* in a view, at most, padding and whole tiles included */
};

const struct kv_setup *kv_setup(const struct kv *kv);

/* The policy as a later run would have to spell it to go on in the same way, with its r: "bmc:r=64". */
void kv_spelling(const struct kv *kv, char *text, size_t size);

const struct kv_stats *kv_stats(const struct kv *kv);

/* Bytes of K or V were copied: by a policy, or by the reader of a view to memory of its own. From any thread. */
void kv_count_copied(struct kv *kv, size_t bytes);

/* What was counted since then does not count: steps that were run only to time them. */
void kv_uncount(struct kv *kv, const struct kv_stats *before);

/* A sequence as it is now. */
struct kv_fill {
    size_t first;   /* position of its first row */
    size_t n;       /* committed rows */
    size_t pending; /* rows of the step under way */
    size_t cap;     /* rows made by the policy */
    bool adopted;   /* rows lie in memory that was adopted */
};

struct kv_fill kv_fill(const struct kv *kv, size_t seq);

/* What a sequence that begins may come to, in steps of `step` rows at most: told where memory does not suffice. */
void kv_expect(struct kv *kv, size_t seq, size_t rows, size_t step);

/* Where the next row of a sequence stands: committed rows, those that were dropped among them. */
size_t kv_position(const struct kv *kv, size_t seq);

/* True when a sequence may be cut anywhere, or forked: all rows that it was given are there, in every layer. */
bool kv_whole(const struct kv *kv, size_t seq);

/* Rows that can be added before the policy says that the sequence is full. */
size_t kv_left(const struct kv *kv, size_t seq);

int kv_room(struct kv *kv, size_t seq, size_t rows, struct err *err) MUST_USE;
void kv_append(struct kv *kv, size_t seq, size_t layer, const float *k, const float *v, size_t stride);

/* Where only some heads can be viewed at once: those of [head, head + heads), beginning at a multiple of heads_at_once, are
 * wanted next, and may be fetched from now on. What was announced last and the time before can be viewed. */
void kv_announce(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads);
int kv_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, struct kv_view *view,
            struct err *err) MUST_USE;

/* What a view does that attention does not allow for, in a few words; NULL: nothing. `end`: the position behind the last row
 * that holds a token. */
const char *kv_view_problem(const struct kv_view *view, size_t row_bytes, size_t end);

/* The step's first `rows` rows stay; the rest of them are padding again. */
void kv_commit(struct kv *kv, size_t seq, size_t rows);

/* The step's rows offset[0..n), ascending, counted from the step's first row, stay. */
void kv_keep(struct kv *kv, size_t seq, const size_t *offset, size_t n);

/* Cuts a sequence to its first `rows` rows, those that were dropped among them; 0 gives its storage back. Only 0 and all are
 * possible where it is not whole, and so it is with forks. */
void kv_truncate(struct kv *kv, size_t seq, size_t rows);

int kv_fork(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err) MUST_USE;

/* Reorders beams: seq[i] is the sequence of beam i, which becomes a copy of beam parent[i]; seq[i] then says which sequence
 * holds it. Nothing is copied for the first child of each parent; its others take the sequences of places without children,
 * as forks. No step may be under way. On error the sequences of beams without children may have anything: cut them. */
int kv_reorder(struct kv *kv, size_t *seq, const size_t *parent, size_t n, struct err *err) MUST_USE;

/* Rows of one layer that lie in memory already, for `adopt`: [KV head][stored_rows][d] of K and of V.
 */
struct kv_rows_in {
    void *k, *v;
};

/* An empty sequence begins with `rows` rows of `type` that lie in memory, as struct kv_policy's adopt says: in place
 * where policy and type allow it (the sequence is `adopted` then), else they are appended, which counts as copying.
 * `first` is the position of the first of them. No more than kv_adoptable() of them are taken.
 * What lies behind those rows is not trusted, and not touched yet: it is made zeros, a tile at a time, when room is made
 * for it. */
int kv_adopt(struct kv *kv, size_t seq, const struct kv_rows_in *layer, enum dtype type, size_t first,
             size_t rows, size_t stored, struct err *err) MUST_USE;

/* How many of `rows` rows from position `first` on a sequence may begin with. An endless policy takes no more than its window
 * has, so that rows are never used by a query that would not have seen them, and goes on from those of a window as long as
 * its own; others need all from position 0 on. */
size_t kv_adoptable(const struct kv *kv, size_t first, size_t rows);

/* Rows that the storage of a sequence holds without growing: its `cap`, or what was adopted. */
size_t kv_storage_rows(const struct kv *kv, size_t seq);

/* True when kv_adopt() would take rows of that type in place. */
bool kv_adopts(const struct kv *kv, enum dtype type);

/* Copies the committed rows of one head, K or V, to out[n][d] in the cache's type. Those of a step under way, which
 * speculation may drop, are left out; of those that a layer of an endless policy does not keep there are zeros. */
int kv_read(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, void *out,
            struct err *err) MUST_USE;

/* Rows that a step may add to a sequence without an allocation that one row would not need: what is free for
 * speculation (BMC paper VI-A). Policies that do not grow in steps allow all that the context has
 * left, or what a step takes at most. */
size_t kv_free_rows(const struct kv *kv, size_t seq);

/* Leading rows that two sequences have in common: not only equal, but the same memory in every layer and head. */
size_t kv_shared_rows(const struct kv *kv, size_t a, size_t b);

/* What so many rows take, in all layers and heads. */
size_t kv_rows_bytes(const struct kv *kv, size_t rows);

/* Rows of a sequence that attention will multiply in the step under way, and the position behind the last of them. */
size_t kv_rows_now(const struct kv *kv, size_t seq);
size_t kv_rows_end(const struct kv *kv, size_t seq);

/* Rows without a token on the left of the window, which begins at position 0 or behind it: in whole tiles, as views have them,
 * of the layers with the longest window. */
size_t kv_rows_padded(const struct kv *kv, size_t seq);

#endif
