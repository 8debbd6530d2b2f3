/* A model with a cache: sequences are fed rows, and logits come back. */
#ifndef BMC_SESSION_H
#define BMC_SESSION_H

#include "decode/lead.h"
#include "format/kvfile.h"
#include "model/forward.h"

#define NO_FINITE_LOGITS "the model gives no finite logits: it may be damaged, see bmc-convert --verify"

struct session_options {
    struct kv_spec kv;
    enum dtype kv_type;
    const struct attn_backend *attn;
    const struct kernels *kernels;
    enum precision precision;
    size_t context;      /* N */
    size_t batch;        /* B: sequences at a time */
    size_t chunk;        /* rows of a prefill step at most; an open session may have lowered it */
    size_t rows;         /* rows of any other step at most; at least `batch` are always possible */
    size_t memory_bytes; /* of the cache's rows at a time; 0: no limit */
    bool split;          /* one attention call per sequence (BASS paper 3.2, BASS-SPLIT) */
    bool recompute;      /* a full context begins anew: the loop's business */
    size_t keep;         /* tokens at the beginning that stay then */
    int threads, threads_prefill;
    struct lead *lead; /* of a split model, in rank 0: tells the others; NULL: nobody is told */
    size_t
        share_bytes; /* of rows that may stay behind requests that have ended, for others that begin like them */
};

struct session {
    const struct model *model;
    struct session_options options;
    struct kv *kv;
    struct forward forward;
    size_t max_rows;
    struct kvfile_rows *mapped; /* [batch] rows of snapshots that sequences lie in */
    /* The step that is being put together. */
    uint32_t *token;
    size_t *position;
    struct attn_query *query;
    size_t n_rows, n_queries;
};

int session_open(struct session *session, const struct model *model,
                 const struct session_options *options, struct err *err) MUST_USE;
void session_close(struct session *session);

/* Committed rows of a sequence, with those that the cache has dropped. */
size_t session_rows(const struct session *session, size_t seq);

/* Rows that it can still be given, and whether that ends: a window slides on, but not where positions are learned, nor where it
 * is to begin anew. */
size_t session_left(const struct session *session, size_t seq);
bool session_ends(const struct session *session);

/* Rows of a sequence that can still be added to the step. */
size_t session_space(const struct session *session);

/* An empty sequence begins that becomes `length` tokens long at most, or as long as the context. */
void session_begin(struct session *session, size_t seq, size_t length);

/* Adds the next `n` tokens of a sequence to the step; at most once per sequence and step. Returns the
 * row of the first. n <= session_space(). */
size_t session_add(struct session *session, size_t seq, const uint32_t *token, size_t n);

/* The same for a token tree: row i stands at position rows + depth[i] and sees, besides the committed rows,
 * the tree's rows tail[tail_at[i] .. tail_at[i + 1]), itself among them. tail and tail_at stay the caller's
 * until the step has run. */
size_t session_add_tree(struct session *session, size_t seq, const uint32_t *token, const size_t *depth,
                        size_t n, const uint32_t *tail, const size_t *tail_at);

/* Runs the step on `threads` threads; the next session_add() begins a new one. None of its rows is committed
 * yet: session_keep() must be called for each of its sequences. */
int session_compute(struct session *session, int threads, struct err *err) MUST_USE;

/* Of the sequence's rows in the step just run, those at row[0..n), ascending and counted from its first one,
 * stay. */
void session_keep(struct session *session, size_t seq, const size_t *row, size_t n);

/* session_compute(), and all rows stay. */
int session_run(struct session *session, int threads, struct err *err) MUST_USE;

/* logits[n][vocab] of rows of the step just run. */
int session_logits(struct session *session, const size_t *row, size_t n, float *logits,
                   struct err *err) MUST_USE;

/* Other steps may be run before the logits of one come: the ranks behind this one compute them meanwhile. */
bool session_flies(const struct session *session);

/* session_logits() in two: *question says which to take. */
int session_ask(struct session *session, const size_t *row, size_t n, size_t *question,
                struct err *err) MUST_USE;
int session_take(struct session *session, size_t question, size_t n, float *logits,
                 struct err *err) MUST_USE;

/* kv_fork() and kv_reorder() of the session's cache. */
int session_fork(struct session *session, size_t to, size_t from, size_t rows,
                 struct err *err) MUST_USE;
int session_reorder(struct session *session, size_t *seq, const size_t *parent, size_t n,
                    struct err *err) MUST_USE;

/* Cuts a sequence to its first `rows` rows, as kv_truncate() does. */
void session_cut(struct session *session, size_t seq, size_t rows);

/* Empties a sequence and gives its storage back. */
void session_drop(struct session *session, size_t seq);

/* Gives back a snapshot's rows that the sequence does not lie in any more. */
void session_release_mapped(struct session *session, size_t seq);

#endif
