/* Stretches of a mapped file against their hashes, on all threads. */
#include "format/verify.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"

enum { PIECE = 4 << 20 };

struct verification {
    const struct verify_part *part;
    const size_t *order; /* of the parts: the largest begin first */
    verify_progress *progress;
    void *arg;
    pthread_mutex_t lock; /* of what follows, and of the callback */
    size_t done, total, damaged;
};

/* The largest first, and of equals the one that comes first. */
static int by_size(const void *a, const void *b, void *arg)
{
    const struct verify_part *part = arg, *x = &part[*(const size_t *)a],
                             *y = &part[*(const size_t *)b];
    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : (x > y) - (x < y);
}

static void verify_part(void *arg, size_t index)
{
    struct verification *v = arg;
    const size_t number = v->order[index];
    const struct verify_part *part = &v->part[number];
    struct hasher hasher;
    hasher_init(&hasher);
    for (size_t at = 0; at < part->bytes; at += PIECE) {
        const size_t len = size_min(PIECE, part->bytes - at);
        hasher_add(&hasher, part->data + at, len);
        pthread_mutex_lock(&v->lock);
        v->done += len;
        if (v->progress)
            v->progress(v->arg, v->done, v->total);
        pthread_mutex_unlock(&v->lock);
    }
    const struct hash found = hasher_result(&hasher);
    if (hash_equal(&found, part->want))
        return;
    pthread_mutex_lock(&v->lock);
    v->damaged = size_min(v->damaged, number);
    pthread_mutex_unlock(&v->lock);
}

int verify_parts(const struct verify_part *part, size_t n, verify_progress *progress, void *arg,
                 size_t *damaged, struct err *err)
{
    size_t *order = mem_alloc(n, sizeof *order);
    struct verification v = {
        .part = part, .order = order, .progress = progress, .arg = arg, .damaged = SIZE_MAX};
    if (!order)
        return err_set(err, "out of memory for a list of %zu parts", n);
    for (size_t i = 0; i < n; i++) {
        order[i] = i;
        v.total += part[i].bytes;
    }
    qsort_r(order, n, sizeof *order, by_size, (void *)(uintptr_t)part);
    pthread_mutex_init(&v.lock, NULL);
    threads_each(n, v.total, verify_part, &v);
    pthread_mutex_destroy(&v.lock);
    *damaged = v.damaged;
    free(order);
    return 0;
}
