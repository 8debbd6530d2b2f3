/* Snapshots: sequences of a session into a file, and back into a session. */
#ifndef BMC_SNAPSHOT_H
#define BMC_SNAPSHOT_H

#include "decode/sampler.h"
#include "decode/session.h"
#include "format/kvfile.h"

/* An open snapshot that belongs to a model. */
struct snapshot {
    char *path;
    struct kvfile file;
};

/* Opens a snapshot of a model; one of another model, tokenizer or shape is an error that says which. */
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

/* The first sequence whose name is this JSON text, that has none if `len` is 0; or SIZE_MAX. */
size_t snapshot_find(const struct snapshot *snapshot, const char *id, size_t len);

/* Tokens at the beginning of a sequence that are the same as id[0..n). */
size_t snapshot_common(const struct snapshot *snapshot, size_t index, const uint32_t *id, size_t n);

/* The keys of some models depend on the length of the text, and are as those of the session neither in what it would write
 * nor in the snapshot, which may be NULL: false. */
bool snapshot_fits(const struct session *session, const struct snapshot *snapshot);

/* With how many tokens a sequence of the session can begin whose rows a sequence of the snapshot has, `tokens` at most: a
 * window's rows are of use to a window that is as long, all of them. 0: with none. */
size_t snapshot_tokens_of_rows(const struct session *session, const struct snapshot *snapshot,
                               size_t index, size_t tokens) MUST_USE;

/* The empty sequence `seq` of a session begins with that many `tokens` of a sequence of the snapshot: in place under policies that can, and converted where the cache is of another type. */
int snapshot_load(struct session *session, size_t seq, const struct snapshot *snapshot, size_t index,
                  size_t tokens, struct err *err) MUST_USE;

/* ---- writing ---- */

/* What is saved of a sequence beside its rows. */
struct saved_seq {
    const uint32_t *token;
    size_t n_tokens, n_prompt;
    uint64_t seed, stream;
    const struct sampler_options *sampling;
    const char *id; /* JSON, or NULL */
};

/* Begins a file for sequences of a session; kvwriter_commit() ends it. */
int snapshot_create(struct kvwriter **writer, const char *path, const struct session *session,
                    struct err *err) MUST_USE;

/* Adds a sequence with the rows that it has now, at least one. */
int snapshot_add(struct kvwriter *writer, struct session *session, size_t seq,
                 const struct saved_seq *saved, struct err *err) MUST_USE;

#endif
