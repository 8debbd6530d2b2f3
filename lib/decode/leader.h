/* The command stream of a model that runs on several ranks.
 *
 * Rank 0 alone reads requests, samples and writes results. Before each forward pass, and
 * whenever it needs logits, it sends all operations on its session since the last message, which
 * replicas repeat on theirs (replica.h): only rank 0 decides by its clock or input. */
#ifndef BMC_LEADER_H
#define BMC_LEADER_H

#include "base/mem.h"
#include "ranks/ranks.h"

/* Commands, each followed by its arguments in 64-bit words. */
enum leader_command {
    COMMAND_OPEN,  /* opens a session: context, batch, chunk, rows, split, lockstep */
    COMMAND_BEGIN, /* seq, length */
    /* tokens, queries, use the prefill threads?; ids; positions; for each query: seq, tokens, is it
     * a tree? if so ancestors_at[tokens + 1] and ancestors[] */
    COMMAND_FORWARD,
    COMMAND_COMMIT,     /* seq, tokens */
    COMMAND_ACCEPT,     /* seq, n, row[n] */
    COMMAND_TRUNCATE,   /* seq, tokens */
    COMMAND_FORK,       /* to, from, tokens */
    COMMAND_REORDER,    /* n, seq[n], parent[n] */
    COMMAND_LOGITS,     /* n, row[n] */
    COMMAND_STATISTICS, /* all ranks exchange struct leader_stats */
    COMMAND_END         /* the run has ended without an error */
};

enum { LEADER_LOGITS = 16 }; /* limit on rows of logits per request */

/* Of all ranks: sums of traffic, largest peak memory, mean time spent waiting for other ranks. */
struct leader_stats {
    uint64_t sent_bytes, calls, peak_bytes;
    double wait_ms;
};

struct leader {
    struct ranks *ranks; /* borrowed, set by the caller; all other members start as zeros */
    struct buf words;    /* queued commands, not sent yet */
    struct err err;      /* why a command could not be queued: reported by leader_send() */
    bool failed;
};

void leader_close(struct leader *leader);

/* Append words to the queue of the next message; no-op if `leader` is NULL. */
void leader_words(struct leader *leader, const size_t *word, size_t n);
void leader_ids(struct leader *leader, const uint32_t *id, size_t n);
void leader_command(struct leader *leader, enum leader_command command, const size_t *word, size_t n);

/* Sends the queue to all ranks and empties it. After an error every further call fails. */
int leader_send(struct leader *leader, struct err *err) MUST_USE;

/* On rank 0, collects the statistics of all ranks; replicas answer by leader_gather_stats().
 * `wait_ms` is the time that the calling rank has waited for others. */
int leader_stats(struct leader *leader, double wait_ms, struct leader_stats *all,
                 struct err *err) MUST_USE;
int leader_gather_stats(struct ranks *ranks, double wait_ms, struct leader_stats *all,
                        struct err *err) MUST_USE;

/* Sends COMMAND_END. */
int leader_end(struct leader *leader, struct err *err) MUST_USE;

/* On replicas: replaces the contents of `words` by rank 0's next message. */
int leader_receive(struct ranks *ranks, struct buf *words, struct err *err) MUST_USE;

#endif
