/* Storage of policies `segment` and `reserve`: a sequence is a chain of segments. The last one, its
 * tail, is private; those before it can be shared.
 *
 * A segment is reserved address space for the rows of all layers from one position on, committed
 * as rows are added: rows never move. */
#ifndef BMC_KV_CHAIN_H
#define BMC_KV_CHAIN_H

#include "kv/kv_policy.h"

struct kv_segment {
    char *rows; /* [layer][K or V][KV head][stored][head_dim], positions from `first` on */
    struct kv_layer_rows *attached; /* [layers] the caller's memory instead of `rows`; or NULL */
    size_t first, stored;
    size_t committed; /* position behind the last row with memory */
    size_t refs;
};

/* Most shared segments: a common prefix of several prompts, and the rest of one prompt. */
enum { KV_CHAIN_SHARED = 2 };

/* Tails of beams that continue one prompt in lockstep and read each other's entries (segment paper
 * 3.3); freed with the last beam that leaves. Each beam writes to its own tail. Entries older
 * than the latest common ancestor of all beams are moved to the first tail. All tails have
 * the same layout. */
struct kv_beam_group {
    size_t refs, n;
    size_t filled; /* entries before this position may be read by other beams */
    size_t common; /* entries before this position, a multiple of a tile, are in the first tail */
    struct kv_segment *tail[];
};

struct kv_chain {
    struct {
        struct kv_segment *segment;
        size_t end; /* position where the next segment begins */
    } shared[KV_CHAIN_SHARED];
    size_t n_shared;
    struct kv_segment *tail;
    struct kv_beam_group *group; /* that the tail belongs to; or NULL */
    /* Offset in bytes of each entry from kv_chain_tail_at() on, relative to a head's first row in
     * the group's first tail: [n_index, in whole tiles]. Entries behind n_index are in the tail. */
    ptrdiff_t *index;
    size_t n_index, index_cap;
    bool prompt; /* the tail holds a prompt: worth sharing */
};

static inline struct kv_chain *kv_chain_of(const struct kv *kv, size_t seq)
{
    return (struct kv_chain *)kv->store + seq;
}

/* First position of the tail. */
static inline size_t kv_chain_tail_at(const struct kv_chain *c)
{
    return c->n_shared ? c->shared[c->n_shared - 1].end : 0;
}

/* Rows that a sequence of `rows` rows allocates: rounded up to r. */
static inline size_t kv_segment_cap(const struct kv *kv, size_t rows)
{
    return size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows);
}

/* ---- segments ---- */

char *kv_segment_row(const struct kv *kv, const struct kv_segment *segment, size_t matrix, size_t head,
                     size_t position);

/* ---- functions of struct kv_policy ---- */

int kv_chain_open(struct kv *kv, struct err *err);
char *kv_chain_row_at(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row);
int kv_chain_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                  struct kv_view *view, struct err *err);
int kv_chain_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                    size_t stored, struct err *err);

/* ---- chains ---- */

/* A growth event: makes the tail large enough for a sequence of `rows` rows. */
int kv_chain_grow(struct kv *kv, size_t seq, size_t rows, struct err *err) MUST_USE;

/* A new segment with copies of a chain's rows [first, end); rounded up to r. NULL on error. */
struct kv_segment *kv_chain_copy(struct kv *kv, const struct kv_chain *chain, size_t first, size_t end,
                                 struct err *err);

/* Drops the chain's references to its tail and beam group. */
void kv_chain_drop_tail(struct kv *kv, struct kv_chain *chain);

/* Keeps shared rows before `end` and replaces the tail by `tail`, which may be NULL. */
void kv_chain_truncate(struct kv *kv, size_t seq, size_t end, struct kv_segment *tail);

/* Copies the rows behind `end` to a new tail if they are shared or attached. */
int kv_chain_make_private(struct kv *kv, size_t seq, size_t end, struct err *err) MUST_USE;

/* Turns the tail's rows before `end` into a shared segment, if they are a prompt's. */
int kv_chain_share(struct kv *kv, size_t seq, size_t end, struct err *err) MUST_USE;

/* ---- index selection: kv_beam_index.c ---- */

/* kv_policy.alias: beams that differ only in their tails read each other's entries. */
int kv_chain_alias(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to, size_t n,
                   struct err *err);

/* Before rows up to n are written: extends the index, if there is one, to cover them. */
int kv_chain_index_extend(struct kv *kv, struct kv_chain *chain, size_t n, struct err *err) MUST_USE;

/* Truncates the index to the chain's first n rows. */
void kv_chain_index_truncate(struct kv_chain *chain, size_t n);

#endif
