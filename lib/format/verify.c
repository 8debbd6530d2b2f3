/* Stretches of a mapped file against their hashes: the pieces of all parts are one list, of which threads take one at a time. */
#include "format/verify.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash_pieces.h"
#include "base/mem.h"
#include "base/threads.h"

struct piece {
    const unsigned char *data;
    size_t bytes;
};

struct verification {
    struct piece *piece; /* [n], part by part */
    struct hash *hash;   /* of these */
    size_t n;
    verify_progress *progress;
    void *arg;
    pthread_mutex_t lock; /* of `done`, and of the callback */
    size_t done, total;
};

static void hash_piece(void *arg, size_t i)
{
    struct verification *v = arg;
    v->hash[i] = hash_of(v->piece[i].data, v->piece[i].bytes);
    pthread_mutex_lock(&v->lock);
    v->done += v->piece[i].bytes;
    if (v->progress)
        v->progress(v->arg, v->done, v->total);
    pthread_mutex_unlock(&v->lock);
}

static void list_pieces(struct verification *v, const struct verify_part *part, size_t n)
{
    struct piece *piece = v->piece;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        do {
            const size_t bytes = size_min(HASH_PIECE, part[i].bytes - at);
            *piece++ = (struct piece){part[i].data + at, bytes};
            at += bytes;
        } while (at < part[i].bytes);
    }
}

/* The first part whose hash is another one. */
static size_t compare(const struct verification *v, const struct verify_part *part, size_t n,
                      struct hash *found)
{
    const struct hash *hash = v->hash;
    for (size_t i = 0; i < n; i++) {
        const size_t pieces = hash_pieces(part[i].bytes);
        *found = hash_join(hash, pieces);
        if (!hash_equal(found, part[i].want))
            return i;
        hash += pieces;
    }
    return SIZE_MAX;
}

int verify_parts(const struct verify_part *part, size_t n, verify_progress *progress, void *arg,
                 size_t *damaged, struct hash *found, struct err *err)
{
    struct verification v = {.progress = progress, .arg = arg};
    int rc = -1;
    for (size_t i = 0; i < n; i++) {
        v.n += hash_pieces(part[i].bytes);
        v.total += part[i].bytes;
    }
    v.piece = mem_alloc(v.n, sizeof *v.piece);
    v.hash = mem_alloc(v.n, sizeof *v.hash);
    if (!v.piece || !v.hash) {
        err_set(err, "out of memory for the hashes of %zu pieces", v.n);
        goto out;
    }
    list_pieces(&v, part, n);
    pthread_mutex_init(&v.lock, NULL);
    threads_each(v.n, v.total, hash_piece, &v);
    pthread_mutex_destroy(&v.lock);
    *damaged = compare(&v, part, n, found);
    rc = 0;
out:
    free(v.piece);
    free(v.hash);
    return rc;
}
