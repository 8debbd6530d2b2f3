/* What rank 0 of a split model tells the others: its session's doings, in their order.
 *
 * Rank 0 runs the loop: it alone knows requests, samples and writes. Before each step, and whenever logits are wanted, it sends
 * what it did to its sequences since, and what comes; the others do the same to theirs (follow.h). So nothing that rank 0 decides
 * by its clock or its input needs to be decided twice. */
#ifndef BMC_LEAD_H
#define BMC_LEAD_H

#include "base/mem.h"
#include "base/ranks.h"

/* Each is followed by what it is about, in words of 64 bits. */
enum order {
    ORDER_OPEN,  /* a session begins: context, batch, chunk, rows, split, lockstep */
    ORDER_BEGIN, /* seq, length */
    ORDER_STEP, /* rows, queries, by the prefill's threads?; tokens; positions; of each query seq, rows, is it a tree?,
                   * and then tail_at[rows + 1], tail[] */
    ORDER_COMMIT,  /* seq, rows */
    ORDER_KEEP,    /* seq, n, rows[n] */
    ORDER_CUT,     /* seq, rows */
    ORDER_FORK,    /* to, from, rows */
    ORDER_REORDER, /* n, seq[n], parent[n] */
    ORDER_LOGITS,  /* n, rows[n] */
    ORDER_COUNT,   /* what it took is counted */
    ORDER_END      /* of the run */
};

/* Rows that logits are asked for in one go, at most. */
enum { LEAD_LOGITS = 16 };

/* What the ranks have sent each other, the most memory that one of them has had, and how long they waited for others: the mean. */
struct lead_counts {
    uint64_t sent_bytes, calls, peak_bytes;
    double wait_ms;
};

struct lead {
    struct ranks *ranks; /* borrowed */
    struct buf words;    /* not sent yet */
    struct err err;      /* why an order could not be kept: said when it would be sent */
    bool failed;
};

void lead_open(struct lead *lead, struct ranks *ranks);
void lead_close(struct lead *lead);

/* Adds to what will be sent. */
void lead_word(struct lead *lead, uint64_t word);
void lead_words(struct lead *lead, const size_t *word, size_t n);
void lead_ids(struct lead *lead, const uint32_t *id, size_t n);
void lead_order(struct lead *lead, enum order order, const size_t *word, size_t n);

/* Sends it to all ranks. */
int lead_send(struct lead *lead, struct err *err) MUST_USE;

/* Asks all of them; lead_count() is the answer of each. `wait_ms` is this rank's. */
int lead_counts(struct lead *lead, double wait_ms, struct lead_counts *all, struct err *err) MUST_USE;
int lead_count(struct ranks *ranks, double wait_ms, struct lead_counts *all, struct err *err) MUST_USE;

/* Tells them that the run has ended, well. */
int lead_end(struct lead *lead, struct err *err) MUST_USE;

/* The other end: the words come into `words`, which is emptied before. */
int lead_receive(struct ranks *ranks, struct buf *words, struct err *err) MUST_USE;

#endif
