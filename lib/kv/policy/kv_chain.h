/* Storage of policies `segment` and `reserve`: a sequence is a chain of segments. The last one, its
 * tail, is private; those before it can be shared with other sequences.
 *
 * A segment is reserved address space for the rows of all layers from one position on, committed
 * as rows are added: rows never move. */
#ifndef BMC_KV_CHAIN_H
#define BMC_KV_CHAIN_H

#include "kv/kv_policy.h"

struct kv_segment {
    struct device_addr rows;        /* [kv.n_heads][stored], positions from `first` on */
    struct kv_layer_rows *attached; /* [layers] kv_attach()'s memory instead of `rows`; or NULL */
    size_t first, stored;
    size_t committed; /* rows before this position have memory */
    /* Growth in advance: rows from `committed` to `ahead` of the first `ahead_heads` heads have
     * memory, too */
    size_t ahead, ahead_heads;
    size_t refs;
};

/* Maximum shared segments of a chain: the common prefix of several prompts, and the rest of one. */
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
    struct kv_beam_group *group; /* beam group that the tail belongs to, or NULL */
    /* Where each entry from position kv_chain_tail_at() on is: its offset in bytes from a head's
     * first row in the group's first tail. [n_index], filled up to whole tiles; entries behind
     * n_index are in the chain's own tail. */
    ptrdiff_t *index;
    size_t n_index, index_cap;
    bool prompt; /* the tail contains a prompt, which is worth sharing */
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

/* Number of rows to allocate for a sequence of `rows` rows: rounded up to r, at most N. */
static inline size_t kv_segment_cap(const struct kv *kv, size_t rows)
{
    return size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows);
}

/* ---- segments ---- */

struct device_addr kv_segment_row(const struct kv *kv, const struct kv_segment *segment, size_t head,
                                  size_t position);

/* ---- functions of struct kv_policy ---- */

int kv_chain_open(struct kv *kv, struct err *err);
struct device_addr kv_chain_row_at(const struct kv *kv, size_t seq, size_t head, size_t row);
int kv_chain_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                  struct kv_view *view, struct err *err);
int kv_chain_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                    size_t stored, struct err *err);

/* ---- chains ---- */

/* A growth event: allocates memory in the tail for a sequence of `rows` rows in total. */
int kv_chain_grow(struct kv *kv, size_t seq, size_t rows, struct err *err) MUST_USE;

/* Before a forward pass of `rows` rows, which have been allocated: does the pass's part of the next
 * growth event (kv_prepare.h). Does nothing if memory is short. */
void kv_chain_advance(struct kv *kv, size_t seq, size_t rows);

/* Returns a new segment with copies of a chain's rows at positions [first, end), its capacity
 * rounded up to r; NULL on error. */
struct kv_segment *kv_chain_copy(struct kv *kv, const struct kv_chain *chain, size_t first, size_t end,
                                 struct err *err);

/* Drops the chain's references to its tail and beam group, which are freed with the last one. */
void kv_chain_drop_tail(struct kv *kv, struct kv_chain *chain);

/* Drops a sequence's shared rows from position `end` on, and replaces its tail by `tail`, which may
 * be NULL. */
void kv_chain_truncate(struct kv *kv, size_t seq, size_t end, struct kv_segment *tail);

/* Copies a sequence's rows from position `end` on, which other sequences may read or which are in
 * the memory of kv_attach(), to a new tail of its own. */
int kv_chain_make_private(struct kv *kv, size_t seq, size_t end, struct err *err) MUST_USE;

/* Turns the tail's rows before position `end`, if they belong to a prompt, into a segment that can
 * be shared; later rows are copied to a new tail. */
int kv_chain_share(struct kv *kv, size_t seq, size_t end, struct err *err) MUST_USE;

/* ---- index selection: kv_beam_index.c ---- */

/* Implements kv_policy.alias: reorders beams that differ only in their tails, by letting them read
 * each other's entries. */
int kv_chain_alias(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to, size_t n,
                   struct err *err);

/* Extends a chain's index, if it has one, to n rows; to be called before these rows are written. */
int kv_chain_index_extend(struct kv *kv, struct kv_chain *chain, size_t n, struct err *err) MUST_USE;

/* Truncates the index to the chain's first n rows. */
void kv_chain_index_truncate(struct kv_chain *chain, size_t n);

#endif
