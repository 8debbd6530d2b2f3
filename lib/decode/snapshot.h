/* Snapshots: saved KV caches, with the tokens and sampler settings of their sequences. */
#pragma once

#include "decode/sample/sampler.h"
#include "decode/session.h"
#include "format/kvfile/kvfile.h"

struct snapshot {
    char *path;
    struct kvfile file;
    struct kv_types *types; /* [layers of the cache] */
};

/* Opens a snapshot file. Fails, with the reason, if it is damaged or of another model. */
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

/* The types of its KV entries, by layer of the cache. */
static inline struct cache_types snapshot_types(const struct snapshot *snapshot)
{
    return (struct cache_types){snapshot->types[0], kvfile_layers(snapshot->file.head),
                                snapshot->types};
}

/* True if a cache of these types of layers has the types of the snapshot. */
bool snapshot_has_types(const struct snapshot *snapshot, const struct cache_types *types);

/* Sets the sampler settings that a sequence of the snapshot was generated with, and the sampler's state;
 * those that the file lacks stay as they are. The caller frees options->dry_text, if it is set. */
int snapshot_sampling(const struct snapshot *snapshot, size_t index, struct sampler_options *options,
                      struct err *err) MUST_USE;

/* Index of the first sequence whose id is the JSON text id[0..len), or that has none if len is 0;
 * SIZE_MAX if there is no such sequence. */
size_t snapshot_find(const struct snapshot *snapshot, const char *id, size_t len);

/* Number of leading tokens that a sequence of the snapshot has in common with id[0..n). */
size_t snapshot_common(const struct snapshot *snapshot, size_t index, const uint32_t *id, size_t n);

/* Fails if the snapshot's KV entries have the cache's types, but other shared scales, or scales of their own instead. */
int snapshot_check_scales(const struct snapshot *snapshot, const struct cache_types *types,
                          const struct hash *scales, struct err *err) MUST_USE;

/* True if KV entries can be saved and loaded: the model's rotary frequencies must not depend on the
 * sequence length, up to the contexts of the session and the snapshot (NULL: only the session). */
bool snapshot_fits(const struct session *session, const struct snapshot *snapshot);

/* How many leading tokens of a snapshot's sequence, at most `tokens`, can be loaded into the
 * session; 0: none. KV entries of a rolling cache are loaded only into a rolling cache with the same
 * window, and all or none. */
size_t snapshot_tokens_of_rows(const struct session *session, const struct snapshot *snapshot,
                               size_t index, size_t tokens) MUST_USE;

/* Loads `tokens` tokens of a snapshot's sequence, as many as snapshot_tokens_of_rows() allows, into
 * the empty sequence `seq`. Their KV entries are used in place in the mapped file or copied. */
int snapshot_load(struct session *session, size_t seq, const struct snapshot *snapshot, size_t index,
                  size_t tokens, struct err *err) MUST_USE;

/* Data of a sequence that is saved with its KV entries. */
struct saved_seq {
    const uint32_t *token;
    size_t n_tokens, n_prompt;
    uint64_t seed, stream;
    const struct sampler_options *sampling;
    const char *id; /* of the request, as JSON; NULL: none */
};

/* The sizes of a cache's layers as files have them, one of zeros if no layer has KV entries, to be freed by the caller;
 * NULL: out of memory. */
struct kvfile_sizes *snapshot_sizes(const struct kv_shape *shape);

/* Creates a snapshot file for sequences of a session; kvwriter_commit() completes it. */
int snapshot_create(struct kvwriter **writer, const char *path, const struct session *session,
                    struct err *err) MUST_USE;

/* Adds a sequence of the session, which must have a KV entry, to the snapshot file. */
int snapshot_add(struct kvwriter *writer, struct session *session, size_t seq,
                 const struct saved_seq *saved, struct err *err) MUST_USE;

/* Writes a snapshot file of one sequence; after an error there is no file. */
int snapshot_save(const char *path, struct session *session, size_t seq, const struct saved_seq *saved,
                  struct err *err) MUST_USE;
