/* Rows of heads in memory and in a file.
 *
 *   addresses of a sequence: [layer][K or V][KV head][stride], then two buffers, each [K or V][head of a group][stride]
 *   its part of the file:    [layer][K or V][KV head][stride]
 *
 * Address space costs nothing: only what is touched takes memory. The first heads of a layer stay in memory whole. Of
 * the others, whole blocks go to the file, to the same place as in memory, and their memory is given back; what comes
 * behind them stays. Heads that are wanted are read into a buffer, and what stayed in memory is copied behind it. Sparse heads
 * never go to the file: their memory between the rows that they see is given back, and reads as zeros.
 *
 *   row  0 ...                flushed        written     n  pending
 *        |---- in the file ----|-- on its way --|--- in memory ---|
 */
#ifndef BMC_KV_HEADS_H
#define BMC_KV_HEADS_H

#include <pthread.h>

#include "kv/kv_plan.h"
#include "kv/kv_rows.h"

enum { HEADS_STRIP_BYTES = 1 << 20 /* of a head's K, and of its V, that are copied at a time */ };

/* Some heads of a layer that have been read. */
struct heads_buffer {
    size_t layer, head, heads; /* heads 0: nothing */
    size_t good; /* leading bytes of each head's K and V that are there, or on their way */
    struct spill_ticket reading;
};

struct heads_seq {
    char *rows;                /* NULL: no address space yet */
    size_t *flushed, *written; /* [layers], bytes of each head's K and V, whole blocks */
    struct spill_ticket writing;
    struct heads_buffer buffer[2];
    size_t latest;  /* the buffer that was asked for last */
    bool copying;   /* its rows come from another one's, strip by strip, and not from a step */
    size_t thinned; /* bytes before which sparse heads have no more than their first rows */
};

struct heads {
    struct spill *spill;
    size_t stride;  /* bytes of address space of a head's K or V */
    size_t group;   /* heads of a buffer; 0: all heads stay */
    size_t *stay;   /* [layers]: leading heads that stay in memory */
    size_t counted; /* bytes that the statistics have */
    struct kv_sparse sparse;
    struct heads_seq *seq;
    pthread_mutex_t lock; /* views come from several threads */
    bool failed;          /* where nothing could be said: it is said by what comes next */
    struct err err;
};

static inline struct heads *heads_of(const struct kv *kv) { return kv->store; }

/* Whether a head is kept in part only. */
static inline bool heads_sparse(const struct kv *kv, size_t layer, size_t head)
{
    return kv_sparse_has(&heads_of(kv)->sparse, layer, head);
}

int heads_open(struct kv *kv, struct err *err);
void heads_close(struct kv *kv);

/* Address space for a sequence. */
int heads_reserve(struct kv *kv, size_t seq, struct err *err) MUST_USE;

/* K (v 0) or V (v 1) of a head in memory, where layers beyond the last are the buffers; and in the file. */
char *heads_at(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head);
size_t heads_offset(const struct kv *kv, size_t seq, size_t layer, size_t v, size_t head);

/* Whole blocks that rows fill, and blocks that they begin, in bytes. */
size_t heads_whole(const struct kv *kv, size_t rows);
size_t heads_begun(const struct kv *kv, size_t rows);

/* Begins to write blocks of a layer's heads that do not stay, up to `to`. */
void heads_flush(struct kv *kv, size_t seq, size_t layer, size_t to);

/* What is being written is in the file now, and its memory given back. */
void heads_finish(struct kv *kv, size_t seq);

/* Other heads stay from now on, of what stayed before; committed rows of the others go to the file. Buffers are empty where
 * `group` changes. */
int heads_settle(struct kv *kv, const size_t *stay, size_t group, struct err *err) MUST_USE;

/* Rows from `rows` on may be written to again: the block that they begin in is in memory; or `all` of what comes behind. */
void heads_retreat(struct kv *kv, size_t seq, size_t rows, bool all);

/* What lies behind so many rows gives its memory back, in the buffers too. The sequence's numbers of rows are still as before. */
void heads_shrink(struct kv *kv, size_t seq, size_t rows);

/* Of sparse heads goes what no query will see that comes behind the committed rows. */
void heads_thin(struct kv *kv, size_t seq);

/* Bytes of memory that sparse heads have between the rows that they see, of K or V of a head: what was given back. */
size_t heads_gap(const struct kv *kv, size_t seq);

/* The same of a sequence that has been given rows beyond `n` step by step. */
size_t heads_gap_of(const struct kv *kv, size_t n);

/* A sequence is empty: no memory is left. Its buffers are cleared already. */
void heads_clear(struct kv *kv, size_t seq);

/* Rows of a head to another sequence. */
void heads_copy(struct kv *kv, size_t to, size_t from, size_t rows);

/* Remembers what went wrong, the first of it; and says it. */
void heads_give_up(struct kv *kv, const struct err *err);
int heads_say(struct kv *kv, struct err *err) MUST_USE;

/* ---- heads_fit.c ---- */

/* Fewer heads stay where memory needs it when `seq` gets so many more rows. */
int heads_fit(struct kv *kv, size_t seq, size_t rows, struct err *err) MUST_USE;

/* Bytes in memory that are on their way to the file: a strip of one head's rows that are copied, or a long step's rows of two
 * layers. */
size_t heads_passing(const struct kv *kv, size_t step, bool copying);

/* What kv_policy.h asks: `width` sequences of `rows` rows, the first's in steps of `step`, into a cache that is empty. */
size_t heads_beyond(const struct kv *kv, size_t rows, size_t step, size_t width);

/* Tells the statistics what is in memory while `seq` gets so many more rows. */
void heads_count(struct kv *kv, size_t seq, size_t rows);

/* ---- heads_buffer.c ---- */

/* Rows from `rows` on may have changed. */
void buffers_cut(struct kv *kv, size_t seq, size_t rows);

/* What is being read is there. */
void buffers_wait(struct kv *kv, size_t seq);

/* Nothing is in them, and no memory. */
void buffers_clear(struct kv *kv, size_t seq);

/* Begins to read heads, into the buffer that was not asked for last. */
void buffers_fetch(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads);

/* Where a head lies, of those that were fetched; NULL with `err` filled where it was not, or could not be. */
char *buffers_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t rows,
                   struct err *err);

#endif
