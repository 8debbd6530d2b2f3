/* Stretches of a mapped file against their hashes, on all threads. Whole pieces of all parts are one list, of which a
 * thread takes a group at a time; what is behind the last whole piece of a part comes after these. */
#include "format/verify.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash_pieces.h"
#include "base/mem.h"
#include "base/threads.h"

struct verification {
    const struct verify_part *part;
    size_t n_pieces, n_groups;
    const unsigned char **piece; /* [n_pieces], part by part */
    struct hash *hash;           /* of these */
    struct hash *rest;           /* [parts] of what is shorter than a piece */
    verify_progress *progress;
    void *arg;
    pthread_mutex_t lock; /* of what follows, and of the callback */
    size_t done, total;
};

static size_t whole_pieces(const struct verify_part *part) { return part->bytes / HASH_PIECE; }

/* A stretch without a byte has a hash, too. */
static bool has_rest(const struct verify_part *part)
{
    return part->bytes % HASH_PIECE != 0 || part->bytes == 0;
}

static void hash_item(void *arg, size_t index)
{
    struct verification *v = arg;
    size_t bytes;
    if (index < v->n_groups) {
        const size_t first = index * HASH_MOST_LANES,
                     n = size_min(HASH_MOST_LANES, v->n_pieces - first);
        hash_pieces(v->piece + first, n, v->hash + first);
        bytes = n * HASH_PIECE;
    } else {
        const struct verify_part *part = &v->part[index - v->n_groups];
        bytes = part->bytes % HASH_PIECE;
        if (has_rest(part))
            v->rest[index - v->n_groups] = hash_of(part->data + part->bytes - bytes, bytes);
    }
    pthread_mutex_lock(&v->lock);
    v->done += bytes;
    if (v->progress)
        v->progress(v->arg, v->done, v->total);
    pthread_mutex_unlock(&v->lock);
}

/* The first part whose hash is another one. */
static size_t compare(const struct verification *v, size_t n, struct hash *found)
{
    const struct hash *hash = v->hash;
    for (size_t i = 0; i < n; i++) {
        const size_t pieces = whole_pieces(&v->part[i]);
        *found = hash_join(hash, pieces, has_rest(&v->part[i]) ? &v->rest[i] : NULL);
        if (!hash_equal(found, v->part[i].want))
            return i;
        hash += pieces;
    }
    return SIZE_MAX;
}

int verify_parts(const struct verify_part *part, size_t n, verify_progress *progress, void *arg,
                 size_t *damaged, struct hash *found, struct err *err)
{
    struct verification v = {.part = part, .progress = progress, .arg = arg};
    int rc = -1;
    for (size_t i = 0; i < n; i++) {
        v.n_pieces += whole_pieces(&part[i]);
        v.total += part[i].bytes;
    }
    v.n_groups = v.n_pieces / HASH_MOST_LANES + (v.n_pieces % HASH_MOST_LANES != 0);
    v.piece = mem_alloc(v.n_pieces + 1, sizeof *v.piece);
    v.hash = mem_alloc(v.n_pieces + 1, sizeof *v.hash);
    v.rest = mem_alloc(n, sizeof *v.rest);
    if (!v.piece || !v.hash || !v.rest) {
        err_set(err, "out of memory for the hashes of %zu pieces", v.n_pieces + n);
        goto out;
    }
    for (size_t i = 0, k = 0; i < n; i++)
        for (size_t at = 0; at < whole_pieces(&part[i]); at++)
            v.piece[k++] = part[i].data + at * HASH_PIECE;
    pthread_mutex_init(&v.lock, NULL);
    threads_each(v.n_groups + n, v.total, hash_item, &v);
    pthread_mutex_destroy(&v.lock);
    *damaged = compare(&v, n, found);
    rc = 0;
out:
    free(v.piece);
    free(v.hash);
    free(v.rest);
    return rc;
}
