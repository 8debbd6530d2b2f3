/* The KV cache: K and V of every token, layer and KV head, written once and viewed by attention.
 *
 * A policy (listed in kv_policies.c, interface in kv_policy.h) allocates and grows the storage; it
 * knows nothing of weights, sampling or file formats. All other code uses this header.
 *
 *   a forward pass, for each of its sequences
 *     kv_ensure(seq, rows)            allocates for `rows` new entries: may be a growth event
 *     for every layer
 *       kv_append(seq, layer, k, v)   writes them, pending
 *       kv_view(seq, layer)           what attention reads
 *     kv_commit(seq, rows)            keeps the first `rows` of them, or
 *     kv_accept(seq, list)            keeps some (speculative decoding); the rest becomes padding
 *
 * A row is the KV entry of one token in one head. A sequence has n committed and `cap` allocated
 * rows; rows n to cap are padding, which attention masks. The position of row i is first + i:
 * `first` is 0 except in a rolling cache, which drops its oldest rows. */
#pragma once

#include "backend/memory.h"
#include "base/err.h"
#include "base/hash.h"
#include "kv/offload/offload.h"
#include "kv/state/state.h"
#include "quant/cache_types.h"

struct kv;
struct kv_policy;

/* ---- views ---- */

/* Indices of arrays that have an element for K and one for V. */
enum { KV_K, KV_V };

/* K and V of consecutive positions. Row i of K of the view's head h is at k + view->offset[KV_K] + h *
 * head_stride[KV_K] + kv_span_row(span, KV_K, i), encoded as quant/dtype.h describes; V likewise. */
struct kv_span {
    struct device_addr k, v;
    size_t head_stride[2], row_stride[2]; /* bytes, of k and of v */
    size_t first;                         /* position of the first row */
    size_t rows;                          /* attended rows, padding included */
    size_t valid;                         /* leading rows that hold a token, pending ones included */
    /* Byte offset of each row, where rows are scattered after beams were reordered: [rows, rounded
     * up to tiles], the same for k and v, whose rows have the same size then. NULL: row_stride apart.
     * Valid until the sequence's next kv_ensure() or kv_reorder(). */
    const ptrdiff_t *row;
};

static inline ptrdiff_t kv_span_row(const struct kv_span *span, size_t matrix, size_t i)
{
    return span->row ? span->row[i] : (ptrdiff_t)(i * span->row_stride[matrix]);
}

/* Heads [head, head + heads) of one layer of a sequence, for attention to read. Guarantees, checked
 * by kv_view_problem():
 *   - spans are in the order of positions and begin at multiples of TILE_ROWS; there are no gaps, but
 *     between attention sinks and recent window, in positions that no query sees;
 *   - the first span begins at position 0 or, in a rolling cache, at the tile of the first row
 *     that the forward pass sees; earlier rows of that tile are finite and to be masked;
 *   - storage is in whole tiles: all rows of the last tile are readable and finite;
 *   - only the last span has padding (valid < rows). */
struct kv_view {
    size_t seq, layer, head, heads;
    enum dtype type[2];
    size_t offset[2]; /* bytes from k, and from v, of every span to the view's first head */
    size_t padded;    /* rows of zeros before the first span, whole tiles: computed, then masked */
    /* Attention sinks and recent window of a streaming head, or of a rolling cache: a query sees the first `sink` and the
     * last `recent` rows, its own included. recent 0: all rows. */
    size_t sink, recent;
    size_t n_spans;
    /* inline_span, or a table of the policy that is valid until the sequence's next kv_ensure() */
    const struct kv_span *span;
    struct kv_span inline_span[4]; /* `span` may point here, so a view must not be copied */
};

/* First position of the recent window of a query at position `own`; 0: all positions are in it. */
static inline size_t kv_recent_start(size_t own, size_t recent)
{
    return recent && own >= recent ? own + 1 - recent : 0;
}

/* ---- opening ---- */

/* Sizes and types of the KV heads of a layer. */
struct kv_sizes {
    size_t kv_heads, head_dim;
    /* 0: V is stored, as wide as K. Else V is the first v_dim elements of K's rows, and only K is
     * stored (latent attention, MLA): spans of views have v = k. */
    size_t v_dim;
    enum dtype type[2]; /* of K and of V; both the same where V is part of K */
};

enum { KV_MAX_LAYERS = 1024, KV_MAX_SIZES = 64 };

struct kv_shape {
    size_t layers;   /* layers with KV entries; others may have recurrent state */
    size_t max_rows; /* N: maximum context length in tokens */
    /* different sizes and types of layers, in order of their first layer; 1 if all have the same */
    size_t n_sizes;
    struct kv_sizes sizes[KV_MAX_SIZES];
    uint8_t size_of[KV_MAX_LAYERS]; /* [layers]: index of each layer's sizes */
};

static inline const struct kv_sizes *kv_sizes_of(const struct kv_shape *shape, size_t layer)
{
    return &shape->sizes[shape->size_of[layer]];
}

/* The shape of `layers` layers of the same sizes, with K and V of one type, whatever sizes.type says. */
struct kv_shape kv_shape_uniform(size_t layers, struct kv_sizes sizes, size_t max_rows,
                                 enum dtype type);

/* The types of K and V in layers of these sizes. */
static inline struct kv_types kv_sizes_types(const struct kv_sizes *sizes)
{
    return (struct kv_types){sizes->type[KV_K], sizes->type[KV_V]};
}

/* True if some layers have K or V of such a type. */
bool kv_shape_any(const struct kv_shape *shape, bool (*is)(enum dtype type));

/* Adds a layer behind the others; false: there are too many layers or different sizes. */
bool kv_shape_add(struct kv_shape *shape, struct kv_sizes sizes) MUST_USE;

/* Matrices that are stored per layer: K and V, or K only. */
static inline size_t kv_matrices(const struct kv_sizes *sizes) { return sizes->v_dim ? 1 : 2; }

/* Bytes of an entry of K (KV_K) or of V (KV_V) in one head of layers of these sizes; of a token's KV
 * entries in such a layer, and in all layers. */
static inline size_t kv_sizes_row_bytes(const struct kv_sizes *sizes, size_t matrix)
{
    return dtype_row_bytes(sizes->type[matrix], sizes->head_dim);
}
size_t kv_sizes_bytes(const struct kv_sizes *sizes);
size_t kv_shape_row_bytes(const struct kv_shape *shape);

/* The same of the largest matrix, K or V of all heads of a layer. */
size_t kv_shape_matrix_bytes(const struct kv_shape *shape);

/* The largest number of elements of K of a token in a layer; of KV heads; of elements of a head. */
size_t kv_shape_width(const struct kv_shape *shape);
size_t kv_shape_heads(const struct kv_shape *shape);
size_t kv_shape_dim(const struct kv_shape *shape);

/* Sums over all sequences since kv_open(). Rows are counted once, not per layer and head. */
struct kv_stats {
    size_t allocations; /* growth events */
    size_t copied_rows;
    /* K and V copied within memory; dequantisation, file reads and kv_read() do not count */
    size_t copied_bytes;
    size_t padded_rows;                   /* padding computed by attention */
    size_t rows_computed;                 /* computed by attention, padding included */
    size_t attached_rows, attached_bytes; /* used in place by kv_attach(), without a copy */
    size_t resident_bytes;                /* allocated now; excludes attached memory */
    size_t peak_bytes;
    double alloc_ms, copy_ms;
};

/* Name of the i-th policy; NULL behind the last one. */
const char *kv_policy_name(size_t i);

/* Where T, the number of growth events, came from, in this order: fixed by the policy, an option, T
 * measured in a machine profile, the cost model with the profile's constants, the default of the
 * BMC paper. */
enum kv_T_from { KV_T_POLICY, KV_T_OPTION, KV_T_PROFILE, KV_T_FORMULA, KV_T_DEFAULT };

const char *kv_T_from_name(enum kv_T_from from);

/* Chooses T, the number of growth events, for this machine; pick() returns 0 if it is unknown. */
struct kv_tuner {
    size_t (*pick)(const struct kv_tuner *tuner, const struct kv_shape *shape, size_t n_seqs,
                   enum kv_T_from *from);
};

/* Shapes of the shards of a model under tensor or pipeline parallelism: each rank has a cache, and
 * all must allow the same lengths of forward passes and truncations. All zero: one rank. */
struct kv_shards {
    const struct kv_shape *largest; /* of the shard with the most bytes per token; for kv_open() only */
    const size_t *windows;          /* [n_windows], sliding windows of all layers; for kv_open() only */
    size_t n_windows;
};

/* A policy with its parameters, from --kv: "iterative", "bmc:T=16,grow=now", "paged:32",
 * "shift:S=2048". */
struct kv_spec {
    const struct kv_policy *policy;
    const struct backend_memory *memory; /* where the cache is */
    /* [layers]: where entries of a layer are allocated, all within `memory`; NULL: there. Borrowed until kv_close(). */
    const struct backend_memory *const *layer_memory;
    size_t T, r;           /* growth events; rows added by each; 0: not given */
    bool tuned;            /* T=tuned was given */
    size_t window;         /* S, the window of a rolling cache; 0: N */
    size_t sinks;          /* of the S positions, attention sinks at the beginning that are kept */
    double slack;          /* spare rows of a rolling cache, as a multiple of the window */
    const size_t *windows; /* [layers] sliding windows, 0: none; or NULL; for kv_open() only */
    struct kv_shards shards;
    struct state_options state;     /* recurrent state; state.shape.conv 0: none */
    struct offload_options offload; /* policy headwise only */
    const struct kv_tuner *tuner;   /* chooses T; may be NULL */
    /* shared scales (kv_scales.h); NULL: one per entry; for kv_open() only */
    const struct kv_scales *scales;
    enum vm_alloc alloc;
    bool lockstep;     /* all sequences grow together, as one tensor */
    bool attend_valid; /* --attend valid: attention skips padding, whatever the policy says */
    bool grow_now;     /* grow=now: growth is not done in advance, policies bmc and reserve */
};

int kv_spec_parse(struct kv_spec *spec, const char *text, struct err *err) MUST_USE;

/* True if T is not given by an option and not fixed by the policy. */
bool kv_spec_needs_T(const struct kv_spec *spec);

const char *kv_spec_name(const struct kv_spec *spec);
bool kv_spec_attends_valid(const struct kv_spec *spec);
bool kv_spec_rolling(const struct kv_spec *spec);
bool kv_spec_can_lockstep(const struct kv_spec *spec);

/* T of the BMC paper for a context of N rows: the power of two nearest to sqrt(0.1 N). */
size_t kv_default_T(size_t max_rows);

/* Opens a cache of n_seqs empty sequences, numbered from 0. *kv is NULL on error. */
int kv_open(struct kv **kv, const struct kv_spec *spec, const struct kv_shape *shape, size_t n_seqs,
            struct err *err) MUST_USE;
void kv_close(struct kv *kv);

/* Properties of an open cache, which never change. T growth events of r rows each fill max_rows. */
struct kv_setup {
    const char *policy;
    const struct backend_memory *memory;
    struct kv_shape shape;
    size_t n_seqs;
    size_t T, r;
    enum kv_T_from T_from;
    /* rolling caches only, else 0 */
    size_t window;            /* a query sees so many last positions, its own included: S - sinks */
    size_t sinks;             /* and so many first ones */
    size_t step_rows;         /* maximum of new rows of a sequence per forward pass */
    size_t view_rows;         /* maximum of rows of a view, padding included */
    struct state_shape state; /* of the recurrent state; state.conv 0: none */
    struct hash scales;       /* kv_scales.id of shared scales; all zero: each entry has its own */
};

const struct kv_setup *kv_setup(const struct kv *kv);

/* The sliding window that attention has to apply to all layers; 0: none, or views tell what a query sees. */
static inline size_t kv_layer_window(const struct kv_setup *setup)
{
    return setup->sinks ? 0 : setup->window;
}

static inline bool kv_has_shared_scales(const struct kv_setup *setup)
{
    return !hash_equal(&setup->scales, &(struct hash){0});
}

/* Writes the policy with its effective r, as kv_spec_parse() reads it: "bmc:r=64". */
void kv_spec_format(const struct kv *kv, char *text, size_t size);

/* ---- statistics ---- */

struct kv_stats kv_stats(const struct kv *kv);

/* Adds `bytes` to the statistic copied_bytes; thread-safe. For code that copies K or V of views. */
void kv_count_copied(struct kv *kv, size_t bytes);

/* Resets the statistics to `before`, after forward passes that were run only for timing. */
void kv_stats_restore(struct kv *kv, const struct kv_stats *before);

/* ---- sequences ---- */

struct kv_seq_info {
    size_t first;   /* position of the first row */
    size_t n;       /* committed rows */
    size_t pending; /* rows of the current forward pass */
    size_t cap;     /* allocated rows */
    bool attached;  /* some rows are in the caller's memory: kv_attach() */
};

struct kv_seq_info kv_seq_info(const struct kv *kv, size_t seq);

/* Position of the sequence's next token: number of committed rows, dropped ones included. */
size_t kv_position(const struct kv *kv, size_t seq);

/* Recurrent state (kv/state/state.h): the last position up to `end` to which the sequence can be
 * truncated or forked, `end` itself without state; keeps the state at a position that the sequence has
 * not passed yet; a layer's state in a forward pass, see state_view(); bytes of one sequence's state, 0: none. */
size_t kv_rewind(const struct kv *kv, size_t seq, size_t end);
void kv_mark(struct kv *kv, size_t seq, size_t position);
void kv_state_view(struct kv *kv, size_t seq, size_t layer, bool tree, struct state_view *view);
bool kv_has_state(const struct kv *kv);

/* True if finite values did not fit the cache's type. */
bool kv_overflowed(const struct kv *kv);
size_t kv_state_bytes(const struct kv *kv);
size_t kv_state_held_bytes(const struct kv *kv, size_t seq); /* with those that are kept */

/* True when no layer has dropped a row of the sequence: it can be truncated and forked anywhere.
 * Always true of sequences of at most kv_untrimmed_limit() rows. */
bool kv_is_untrimmed(const struct kv *kv, size_t seq);
size_t kv_untrimmed_limit(const struct kv *kv);

/* Number of rows that a sequence can grow by before its context is full; SIZE_MAX in a rolling
 * cache. */
size_t kv_left(const struct kv *kv, size_t seq);

/* Number of rows that can be added to a sequence with no more growth events than a single row
 * needs: that many tokens can be drafted without an extra allocation (BMC paper VI-A). */
size_t kv_rows_before_growth(const struct kv *kv, size_t seq);

/* Number of rows that a sequence has memory for, in the cache or attached by the caller. */
size_t kv_storage_rows(const struct kv *kv, size_t seq);

/* Bytes of `rows` rows in all layers and heads, K and V as they are stored. */
size_t kv_rows_bytes(const struct kv *kv, size_t rows);

/* ---- a forward pass ---- */

/* Starts a sequence's forward pass over `rows` new tokens: allocates their rows, if necessary, and
 * makes them pending. On error the sequence is unchanged. */
int kv_ensure(struct kv *kv, size_t seq, size_t rows, struct err *err) MUST_USE;

/* The queries of new rows: f32 [rows][heads * head_dim], rows `stride` elements apart, heads a multiple of the KV heads;
 * heads 0: none. */
struct kv_queries {
    struct device_addr at;
    size_t stride, heads;
};

/* Writes K and V of a sequence's pending rows in one layer: k and v, in the backend's memory, are f32
 * [pending][kv_heads * head_dim], rows `stride` elements apart. Where V is part of K, `v` is
 * ignored. Keys of 4 to 6 bits are quantised so that their scores with `queries`, those of the same rows, are accurate;
 * NULL: each alone. */
void kv_append(struct kv *kv, size_t seq, size_t layer, struct device_addr k, struct device_addr v,
               size_t stride, const struct kv_queries *queries);

/* Fills *view with the committed and pending rows of KV heads [head, head + heads) of a layer.
 * Thread-safe. */
int kv_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, struct kv_view *view,
            struct err *err) MUST_USE;

/* Returns a message about a guarantee of struct kv_view that the view violates; NULL: none. `end`:
 * position behind the sequence's last token. */
const char *kv_view_problem(const struct kv_view *view, const struct kv_sizes *sizes, size_t end);

/* Commits the first `rows` pending rows. */
void kv_commit(struct kv *kv, size_t seq, size_t rows);

/* Commits the pending rows with the ascending indices offset[0..n), compacted; drops the others. */
void kv_accept(struct kv *kv, size_t seq, const size_t *offset, size_t n);

/* Number of rows that attention computes for a sequence in the current forward pass, padding
 * included; and the position behind the last of them. */
size_t kv_attended_rows(const struct kv *kv, size_t seq);
size_t kv_attended_end(const struct kv *kv, size_t seq);

/* ---- truncating, copying, sharing: between forward passes ---- */

/* Drops a sequence's rows from position `end` on. `end` 0 drops all and frees the storage; dropping
 * only some rows requires kv_is_untrimmed(), and that kv_rewind() returns `end`. */
void kv_truncate(struct kv *kv, size_t seq, size_t end);

/* Returns memory that no row needs to the system. kv_truncate() does so for its sequence if it drops more rows than it
 * keeps, so that truncating often copies no more rows than were appended. */
void kv_give_back(struct kv *kv);

/* Converting single sequences to a smaller type, where memory is short (kv_convert.c). kv_open_smaller() makes it possible:
 * layers whose type has more bytes than `type` will have that one. It fails with the reason for caches that drop or
 * offload entries, grow in lockstep, or have recurrent state, and if no layer would be smaller.
 *
 * kv_convert() converts a sequence, at most once, between forward passes: its entries are dequantised and quantised again,
 * each alone, later ones are of that type from the beginning. On error it is as before. The sequence cannot be
 * forked then; kv_truncate() to 0 makes it as any other. kv_of_seq(): the cache that has a sequence, for its types and
 * footprint. */
int kv_open_smaller(struct kv *kv, enum dtype type, struct err *err) MUST_USE;
int kv_convert(struct kv *kv, size_t seq, struct err *err) MUST_USE;
const struct kv_shape *kv_smaller_shape(const struct kv *kv); /* after kv_open_smaller() */
const struct kv *kv_of_seq(const struct kv *kv, size_t seq);

/* Makes sequence `to`, which is empty, a copy of sequence `from` up to and without position `end`;
 * the limits of kv_truncate() apply. */
int kv_fork(struct kv *kv, size_t to, size_t from, size_t end, struct err *err) MUST_USE;

/* Reorders beams: beam i, in sequence seq[i], becomes a copy of beam parent[i]; seq[i] is set to
 * the sequence that then holds it. The first child of a parent keeps the parent's sequence, others
 * take sequences of childless beams, whose contents are undefined after an error: truncate them. */
int kv_reorder(struct kv *kv, size_t *seq, const size_t *parent, size_t n, struct err *err) MUST_USE;

/* Number of leading rows that sequences a and b share in memory, in every layer and head. */
size_t kv_shared_rows(const struct kv *kv, size_t a, size_t b);

/* True if forked sequences and beams share the memory of their common prefix. */
bool kv_shares_prefix(const struct kv *kv);

/* ---- snapshots ---- */

/* One layer's rows in memory that the caller of kv_attach() has from the cache's backend: K and V, [KV
 * head][stored][head_dim], of these types; v is ignored where V is part of K. */
struct kv_layer_rows {
    struct device_addr k, v;
    struct kv_types types;
};

/* Loads an empty sequence with `rows` rows from the caller's memory, layer[layers], at
 * positions from `first` on; at most kv_attachable() rows. That memory has `stored` rows per head,
 * a multiple of TILE_ROWS. If kv_attaches(), it is used in place: it must stay valid and writable
 * while kv_seq_info().attached, and its rows behind `rows` are zeroed a tile at a time before new
 * tokens use them. Otherwise rows are copied. */
int kv_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first, size_t rows,
              size_t stored, struct err *err) MUST_USE;

/* Returns how many of `rows` rows at positions from `first` on kv_attach() accepts. A rolling cache
 * accepts at most window - 1 rows, exactly that if `first` is not 0; other caches, and those with attention
 * sinks, need first 0. */
size_t kv_attachable(const struct kv *kv, size_t first, size_t rows);

/* Recurrent states of a sequence: lists their positions, ascending, the last being that of the sequence, and returns
 * their number, 0 without state; list NULL: the number only. kv_state_is_at(): the sequence has a state at the position.
 * kv_state_read() reads it, kv_state_bytes() bytes; kv_state_load() sets that of a sequence to which kv_attach() or
 * kv_extend() has just loaded its rows, after those at earlier positions, which are kept as far as the cache keeps
 * states; on error truncate the sequence. */
size_t kv_state_positions(const struct kv *kv, size_t seq, size_t *list);
bool kv_state_is_at(const struct kv *kv, size_t seq, size_t position);
void kv_state_read(const struct kv *kv, size_t seq, size_t position, void *to);
int kv_state_load(struct kv *kv, size_t seq, size_t position, const void *state,
                  struct err *err) MUST_USE;

/* True if kv_attach() uses such rows, layer[layers], in place instead of copying them. */
bool kv_attaches(const struct kv *kv, const struct kv_layer_rows *layer);

/* Appends `rows` rows to a sequence whose rows are all in the cache (not attached, none dropped): copies
 * of rows [first, first + rows) of the caller's memory, of the cache's types in parts of `stored` rows per head,
 * layer[part][layers]. Memory for `expected` rows is allocated at once, if they are more. Fails beyond kv_left()
 * or kv_untrimmed_limit(); the sequence is then unchanged. */
int kv_extend(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t first, size_t rows,
              size_t stored, size_t expected, struct err *err) MUST_USE;

/* Copies the committed rows of one head, K or V, to out[n][head_dim] in the cache's type; rows that
 * a layer has dropped are zeros. Where V is part of K, both are K. */
int kv_read(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, void *out,
            struct err *err) MUST_USE;

/* kv_read() of the committed rows at positions [first, first + rows), to out[rows][head_dim]. */
int kv_read_rows(struct kv *kv, size_t seq, size_t layer, bool v, size_t head, size_t first,
                 size_t rows, void *out, struct err *err) MUST_USE;
