/* The command stream of a model that runs on several ranks.
 *
 * Rank 0 alone reads requests, samples and writes results. Before each forward pass, and
 * whenever it needs logits, it sends all operations on its session since the last message, which
 * replicas repeat on theirs (replica.h). So only rank 0's clock and input affect decisions. */
#pragma once

#include "base/mem.h"
#include "ranks/ranks.h"

/* Commands to replicas. Each is sent as a 64-bit word, followed by the listed arguments. */
enum leader_command {
    /* Opens a session. Arguments: context, batch, chunk, rows, split, lockstep, kept and recent
     * states. */
    COMMAND_OPEN,
    COMMAND_BEGIN, /* session_begin(); arguments: seq, tokens, length */
    /* Runs a forward pass. Arguments: number of tokens, number of queries, whether to use the
     * prefill threads; token ids; positions; for each query: seq, number of tokens, whether they
     * are a token tree and, if so, ancestors_at[tokens + 1] and ancestors[]. */
    COMMAND_FORWARD,
    COMMAND_COMMIT,     /* kv_commit(); arguments: seq, tokens */
    COMMAND_ACCEPT,     /* session_accept(); arguments: seq, n, row[n] */
    COMMAND_TRUNCATE,   /* session_truncate(); arguments: seq, tokens to keep */
    COMMAND_FORK,       /* session_fork(); arguments: to, from, tokens */
    COMMAND_REORDER,    /* session_reorder(); arguments: n, seq[n], parent[n] */
    COMMAND_MARK,       /* session_mark(); arguments: seq, position */
    COMMAND_LOGITS,     /* session_logits(); arguments: n, row[n] */
    COMMAND_STATISTICS, /* all ranks exchange struct leader_stats */
    COMMAND_END         /* the run has ended without an error */
};

enum { LEADER_LOGITS = 16 }; /* maximum number of tokens whose logits one request covers */

/* Statistics of all ranks: total traffic, the largest peak memory of a rank, and the mean time that
 * a rank spent waiting for others. */
struct leader_stats {
    uint64_t sent_bytes, calls, peak_bytes;
    double wait_ms;
};

struct leader {
    struct ranks *ranks; /* not owned; the caller sets it and zeroes the rest of the struct */
    struct buf words;    /* queued commands, not sent yet */
    struct err err;      /* why a command could not be queued: reported by leader_send() */
    bool failed;
};

void leader_close(struct leader *leader);

/* Append words, token ids or a command to the next message; no-op if `leader` is NULL. */
void leader_words(struct leader *leader, const size_t *word, size_t n);
void leader_ids(struct leader *leader, const uint32_t *id, size_t n);
void leader_command(struct leader *leader, enum leader_command command, const size_t *word, size_t n);

/* Sends the queued commands to all replicas and empties the queue. After an error every further
 * call fails. */
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
