/* Segments of rows that sequences share, and the chain of them that a sequence has: the storage of policy `segment`.
 *
 * A segment is address space for the rows of all layers from one position on, mapped at once and made present as rows come:
 * no row moves as long as it stands. */
#ifndef BMC_KV_CHAIN_H
#define BMC_KV_CHAIN_H

#include "kv/kv_policy.h"

struct kv_segment {
    char *rows;                 /* [layer][K or V][KV head][stored][d] of positions from `first` on */
    struct kv_rows_in *adopted; /* [layers] in place of that, or NULL */
    size_t first, stored;
    size_t made; /* position behind the last row that is present */
    size_t users;
};

/* A beginning of several prompts, and the rest of one: the tail is a view's third span. */
enum { KV_CHAIN_SHARED = 2 };

/* Tails of beams that continue one prompt in step and read each other's entries (segment paper 3.3): they stand as long as
 * one of the beams is in the group. Each beam writes to its own tail; entries older than the beams' latest common ancestor are
 * moved to the first tail, where all beams read them. All tails have one layout. */
struct kv_group {
    size_t users, n;
    size_t filled; /* entries before this position may be read by others */
    size_t common; /* entries before this position, a whole tile, lie in the first tail for all beams */
    struct kv_segment *tail[];
};

/* Of each segment the rows before `end` that the one before does not have; the tail's rows are the sequence's own. */
struct kv_chain {
    struct {
        struct kv_segment *of;
        size_t end;
    } shared[KV_CHAIN_SHARED];
    size_t n_shared;
    struct kv_segment *tail;
    struct kv_group *group; /* that the tail is of, or NULL */
    /* Index selection: where the entries behind kv_chain_tail_at() lie, in bytes from a head's first row in the group's first
     * tail to theirs: [n_index, in whole tiles], made up to the rows that there is room for. n_index 0: in the chain's own tail. */
    ptrdiff_t *index;
    size_t n_index, index_cap;
    bool prompt; /* rows came many at a time: the tail is worth sharing */
};

static inline struct kv_chain *kv_chain_of(const struct kv *kv, size_t seq)
{
    return (struct kv_chain *)kv->store + seq;
}

/* Where the tail begins. */
static inline size_t kv_chain_tail_at(const struct kv_chain *c)
{
    return c->n_shared ? c->shared[c->n_shared - 1].end : 0;
}

/* Where a row of a chain lies. */
char *kv_chain_row(const struct kv *kv, const struct kv_chain *chain, size_t matrix, size_t head,
                   size_t row);

/* Rows that are made for `rows` of them. */
static inline size_t kv_segment_cap(const struct kv *kv, size_t rows)
{
    return size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows);
}

/* From one head's rows to the next one's. */
size_t kv_segment_stride(const struct kv *kv, const struct kv_segment *segment);
char *kv_segment_row(const struct kv *kv, const struct kv_segment *segment, size_t matrix, size_t head,
                     size_t row);

/* A segment of rows from `first` on, with room up to `cap`; NULL, and the error, when memory cannot be had. */
struct kv_segment *kv_segment_begin(struct kv *kv, size_t first, size_t cap, struct err *err);

/* Makes room up to `cap`. */
int kv_segment_make(struct kv *kv, struct kv_segment *segment, size_t cap, struct err *err) MUST_USE;

/* One user less; it goes with the last one. NULL is accepted. */
void kv_segment_leave(struct kv *kv, struct kv_segment *segment);

/* There is no tail any more, and no group. */
void kv_chain_drop_tail(struct kv *kv, struct kv_chain *chain);

/* A segment with copies of a chain's rows [first, end), and room to go on. */
struct kv_segment *kv_chain_copy(struct kv *kv, const struct kv_chain *chain, size_t first, size_t end,
                                 struct err *err);

/* The sequence shares rows before `end` only, with whom it does now, and has a new tail behind them, or none. */
void kv_chain_cut(struct kv *kv, size_t seq, size_t end, struct kv_segment *tail);

/* The rows behind `end` become the sequence's own: copied where they were shared or adopted. */
int kv_chain_own(struct kv *kv, size_t seq, size_t end, struct err *err) MUST_USE;

/* Where the tail is worth it, it becomes a segment that others may have, up to `end`. */
int kv_chain_share(struct kv *kv, size_t seq, size_t end, struct err *err) MUST_USE;

/* ---- index selection: kv_select.c ---- */

/* Sequences that differ in their tails only can read each other's entries; false: they differ in more, or memory is short.
 * Entries older than their latest common ancestor are moved to one place, once in their life, a tile at a time. */
bool kv_chains_join(struct kv *kv, const size_t *seq, size_t n);

/* Of sequences that were joined: `to` becomes what `from` is, and no row is copied. */
int kv_chain_follow(struct kv *kv, size_t to, size_t from, struct err *err) MUST_USE;

/* Leading entries that two sequences of a group have in common. */
size_t kv_chain_common(const struct kv *kv, size_t a, size_t b);

/* Before rows up to n are written: the index of a chain that has one covers them. */
int kv_chain_index(struct kv *kv, struct kv_chain *chain, size_t n, struct err *err) MUST_USE;

/* The chain keeps its first n rows. */
void kv_chain_index_cut(struct kv_chain *chain, size_t n);

/* What a view is of. */
struct kv_head {
    size_t layer, head;
};

/* The spans of a view of a chain with `valid` rows. */
void kv_chain_view(const struct kv *kv, const struct kv_chain *chain, const struct kv_head *of,
                   size_t valid, struct kv_view *view);

#endif
