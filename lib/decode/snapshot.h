/* Snapshots: saved KV caches, with the tokens and sampler settings of their sequences. */
#ifndef BMC_SNAPSHOT_H
#define BMC_SNAPSHOT_H

#include "decode/sample/sampler.h"
#include "decode/session.h"
#include "format/kvfile/kvfile.h"

struct snapshot {
    char *path;
    struct kvfile file;
};

/* Fails, with the reason, if the snapshot was made with another model, tokenizer or shape. */
int snapshot_open(struct snapshot **snapshot, const char *path, const struct model *model,
                  struct err *err) MUST_USE;
void snapshot_close(struct snapshot *snapshot);

static inline const struct kvfile_seq *snapshot_seq(const struct snapshot *snapshot, size_t index)
{
    return &snapshot->file.seq[index];
}

static inline const uint32_t *snapshot_tokens(const struct snapshot *snapshot, size_t index)
{
    return snapshot->file.token + snapshot->file.seq[index].token;
}

static inline enum dtype snapshot_type(const struct snapshot *snapshot)
{
    return (enum dtype)snapshot->file.head->dtype;
}

/* The sampler settings that a sequence was generated with. */
struct sampler_options snapshot_sampling(const struct snapshot *snapshot, size_t index);

/* Index of the first sequence with this id (JSON text; len 0: without an id), or SIZE_MAX. */
size_t snapshot_find(const struct snapshot *snapshot, const char *id, size_t len);

/* Length of the common prefix of a sequence and id[0..n). */
size_t snapshot_common(const struct snapshot *snapshot, size_t index, const uint32_t *id, size_t n);

/* False if the model's rotary frequencies depend on the sequence length within the context of the
 * session or of the snapshot (NULL: only the session): KV entries cannot be exchanged then. */
bool snapshot_fits(const struct session *session, const struct snapshot *snapshot);

/* How many tokens, at most `tokens`, a sequence of the session can take from a snapshot's sequence;
 * 0: none. Entries of a sliding window need a window of the same length, and all are taken. */
size_t snapshot_tokens_of_rows(const struct session *session, const struct snapshot *snapshot,
                               size_t index, size_t tokens) MUST_USE;

/* Starts the empty sequence `seq` with `tokens` tokens of a snapshot's sequence, as many as
 * snapshot_tokens_of_rows() allows. Their entries are mapped from the file, or else converted. */
int snapshot_load(struct session *session, size_t seq, const struct snapshot *snapshot, size_t index,
                  size_t tokens, struct err *err) MUST_USE;

/* Data of a sequence that is saved beside its KV entries. */
struct saved_seq {
    const uint32_t *token;
    size_t n_tokens, n_prompt;
    uint64_t seed, stream;
    const struct sampler_options *sampling;
    const char *id; /* JSON, or NULL */
};

/* Creates a file for sequences of a session; kvwriter_commit() completes it. */
int snapshot_create(struct kvwriter **writer, const char *path, const struct session *session,
                    struct err *err) MUST_USE;

/* Adds a sequence with its present KV entries, at least one. */
int snapshot_add(struct kvwriter *writer, struct session *session, size_t seq,
                 const struct saved_seq *saved, struct err *err) MUST_USE;

#endif
