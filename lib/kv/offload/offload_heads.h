/* Storage of KV entries by head, in memory and in a file; on a device in its memory and that of the host, which then is
 * the file (offload_blocks.c).
 *
 *   address space of a sequence: [kv.n_heads][stride of the matrix], then two buffers, each
 *                                [K or V][largest number of KV heads][largest stride]
 *   its region of the file:      [kv.n_heads][stride of the matrix]
 *
 * Only touched pages of the address space take memory. The first heads of each layer are resident.
 * Whole blocks of the other heads are written to the file, at the same offset as in memory, and
 * their pages released; the tail behind the blocks stays in memory. To view an offloaded head, its
 * blocks are read into a buffer and its tail is copied behind them. Streaming heads are never
 * written: pages between their attention sinks and their recent window are released, and read as
 * zeros.
 *
 *   byte 0 ..                  flushed          written         n  pending
 *        |------ in the file ------|-- being written --|-- in memory --| */
#pragma once

#include <pthread.h>

#include "kv/kv_rows.h"
#include "kv/offload/offload_file.h"
#include "kv/offload/offload_plan.h"

enum {
    OFFLOAD_STRIP_BYTES = 1 << 20, /* maximum of a head's K or V that a fork copies at once */
    OFFLOAD_STEP = 64              /* rows per growth event */
};

/* A buffer with some offloaded heads of a layer, read from the file. */
struct offload_buffer {
    size_t layer, head, heads; /* heads 0: empty */
    size_t rows;               /* of a slot, where buffers are blocks */
    size_t good[2];            /* leading bytes of each head's K and V, valid or being read */
    struct async_ticket ticket;
};

/* Bytes [from, from + bytes) of a head, or a buffer. */
struct offload_block {
    struct device_addr at;
    size_t from, bytes;
};

struct offload_seq {
    bool in_use;             /* it has address space, or blocks */
    struct device_addr rows; /* address space */
    /* [kv.n_heads + 2]: of the heads, and the buffers; NULL: it is address space */
    struct offload_block *block;
    size_t *flushed, *written; /* [kv.n_matrices] byte offsets, as in the diagram above */
    struct async_ticket writing;
    struct offload_buffer buffer[2];
    size_t latest;         /* index of the buffer requested last */
    bool copying;          /* is being filled by a fork, not by a forward pass */
    size_t dropped[2];     /* streaming heads keep only their sinks before this byte of K, of V */
    size_t expected, step; /* arguments of offload_expect(); 0: unknown */
};

struct offload {
    struct offload_file *offload_file;
    size_t *at;       /* [kv.n_heads + 3]: address of each head, of both buffers, and of the end */
    size_t widest;    /* address space of a head's K or V in the buffers: the largest stride */
    size_t group;     /* heads per buffer; 0: all heads are in memory */
    size_t *resident; /* [layers] number of leading heads that are in memory */
    size_t counted;   /* bytes reported to kv_count_memory() */
    struct kv_streaming streaming;
    struct offload_seq *seq;
    pthread_mutex_t lock; /* protects the buffers while several threads make views */
    bool failed;          /* `err` has the error that offload_report() returns */
    struct err err;
};

static inline struct offload *offload_of(const struct kv *kv) { return kv->store; }

static inline bool offload_is_streaming(const struct kv *kv, size_t layer, size_t head)
{
    return kv_is_streaming(&offload_of(kv)->streaming, layer, head);
}

/* Bytes of `rows` rows of one head's K or V, rounded down or up to a multiple of OFFLOAD_BLOCK. */
static inline size_t offload_blocks_down(size_t row_bytes, size_t rows)
{
    return size_times(rows, row_bytes) / OFFLOAD_BLOCK * OFFLOAD_BLOCK;
}

static inline size_t offload_blocks_up(size_t row_bytes, size_t rows)
{
    const size_t bytes = size_times(rows, row_bytes);
    return bytes > SIZE_MAX - OFFLOAD_BLOCK ? SIZE_MAX : round_up(bytes, OFFLOAD_BLOCK);
}

/* Keeps the first error of functions that cannot return one. */
static inline void offload_set_error(struct kv *kv, const struct err *err)
{
    struct offload *h = offload_of(kv);
    if (!h->failed)
        h->err = *err;
    h->failed = true;
}

int offload_open(struct kv *kv, struct err *err);
void offload_close(struct kv *kv);

/* Reserves a sequence's address space, if it has none. */
int offload_reserve(struct kv *kv, size_t seq, struct err *err) MUST_USE;

/* Address of a head, K or V, in memory. */
static inline struct device_addr offload_head(const struct kv *kv, size_t seq, size_t head)
{
    const struct offload_seq *s = &offload_of(kv)->seq[seq];
    return s->block ? addr_add(s->block[head].at, -s->block[head].from)
                    : addr_add(s->rows, offload_of(kv)->at[head]);
}

/* ---- offload_blocks.c ---- */

/* Rows that memory is taken for, of `rows`; and bytes of a block more than it needs, at most. */
size_t offload_held(const struct kv *kv, size_t rows);
size_t offload_slack(const struct kv *kv, size_t row_bytes);

/* Makes bytes [from, to) of a head writable; bytes before may be lost. Errors are those of offload_report(). No-op in address space. */
void offload_cover(struct kv *kv, size_t seq, size_t head, size_t from, size_t to);

/* The same for a layer's heads, or its resident ones, and the first `rows` rows; of offloaded heads, for those that are not in
 * the file. */
void offload_grow(struct kv *kv, size_t seq, size_t layer, size_t rows, bool resident_only);

/* Releases memory of bytes [from, to) of a head. */
void offload_drop(struct kv *kv, size_t seq, size_t head, size_t from, size_t to);

/* A block for a buffer, in place of the one before; false: out of memory. */
bool offload_block_new(struct kv *kv, struct offload_block *block, size_t bytes);
void offload_block_free(struct kv *kv, struct offload_block *block);

/* ---- offload_heads.c ---- */

/* Starts to write a layer's offloaded heads to the file: of each, the whole blocks of its first `rows` rows. */
void offload_flush(struct kv *kv, size_t seq, size_t layer, size_t rows);

/* Waits for the writes that offload_flush() started, and releases the memory of these blocks. */
void offload_flush_wait(struct kv *kv, size_t seq);

/* Keeps only the first resident[layer] heads of each layer in memory, and writes committed rows of
 * the others to the file. If `group` (heads per buffer) changes, the buffers must be empty. */
int offload_set_resident(struct kv *kv, const size_t *resident, size_t group, struct err *err) MUST_USE;

/* Makes a sequence's rows from row `rows` on writable: reads the block with this row, or with `all`
 * every block from that one on, from the file back to memory. */
void offload_reopen_tail(struct kv *kv, size_t seq, size_t rows, bool all);

/* Releases the memory of all but a sequence's first `rows` rows, in its buffers too. Call it before
 * reducing kv_seq.n. */
void offload_shrink(struct kv *kv, size_t seq, size_t rows);

/* Releases the memory of those entries of streaming heads that no later query sees. */
void offload_drop_unseen(struct kv *kv, size_t seq);

/* Bytes of a streaming head's K and V that offload_drop_unseen() has released; and those that it
 * releases by the time a sequence has n rows. */
size_t offload_gap(const struct kv *kv, size_t seq);
size_t offload_gap_of(const struct kv *kv, size_t n);

/* Releases a sequence's memory, after offload_buffers_clear(). */
void offload_clear(struct kv *kv, size_t seq);

void offload_copy(struct kv *kv, size_t to, size_t from, size_t rows);

/* Fails with the first error that offload_set_error() kept. */
int offload_report(struct kv *kv, struct err *err) MUST_USE;

/* ---- offload_budget.c ---- */

/* Implements kv_policy.bytes: bytes of a sequence of `rows` rows, offloaded ones included. */
size_t offload_bytes(const struct kv *kv, const struct kv_shape *shape, size_t rows);

/* Offloads as many heads as needed to fit `rows` more rows of `seq` into the memory budget. */
int offload_budget(struct kv *kv, size_t seq, size_t rows, struct err *err) MUST_USE;

/* Updates the cache's memory statistics to the bytes needed with `rows` more rows of `seq`. */
void offload_count(struct kv *kv, size_t seq, size_t rows);

/* ---- buffers ---- */

/* Invalidates all but the first `rows` rows in a sequence's two buffers. */
void offload_buffers_truncate(struct kv *kv, size_t seq, size_t rows);

void offload_buffers_wait(struct kv *kv, size_t seq);

/* Empties a sequence's buffers and releases their memory. */
void offload_buffers_clear(struct kv *kv, size_t seq);

/* Starts to read heads [head, head + heads) of a layer from the file: into the buffer that was not
 * requested last, unless one of the two buffers already has them. */
void offload_buffers_fetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads);

/* Waits until fetched heads are read and sets *k and *v to the addresses of the first one; an error if they were not
 * fetched or could not be read. */
int offload_buffers_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads,
                         size_t rows, struct device_addr *k, struct device_addr *v,
                         struct err *err) MUST_USE;
