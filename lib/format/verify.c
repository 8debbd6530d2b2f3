/* Verifying sections of a file: the chunks of all sections form one list of thread tasks. */
#include "format/verify.h"

#include <pthread.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/threads.h"

struct verify_chunk {
    const unsigned char *data;
    size_t bytes;
};

struct verification {
    struct verify_chunk *chunk; /* [n]: chunks of at most HASH_BLOCK bytes, section by section */
    struct hash *hash;          /* [n]: hash of each chunk */
    size_t n;
    verify_progress *progress;
    void *arg;
    pthread_mutex_t lock; /* guards `done` and calls of `progress` */
    size_t done, total;
};

static void hash_chunk(void *arg, size_t i)
{
    struct verification *v = arg;
    v->hash[i] = hash_of(v->chunk[i].data, v->chunk[i].bytes);
    pthread_mutex_lock(&v->lock);
    v->done += v->chunk[i].bytes;
    if (v->progress)
        v->progress(v->arg, v->done, v->total);
    pthread_mutex_unlock(&v->lock);
}

static void list_chunks(struct verification *v, const struct verify_section *section, size_t n)
{
    struct verify_chunk *chunk = v->chunk;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        do {
            const size_t bytes = size_min(HASH_BLOCK, section[i].bytes - at);
            *chunk++ = (struct verify_chunk){section[i].data + at, bytes};
            at += bytes;
        } while (at < section[i].bytes);
    }
}

/* Index of the first section with a hash mismatch, *found its actual hash; SIZE_MAX: none. */
static size_t first_damaged(const struct verification *v, const struct verify_section *section,
                            size_t n, struct hash *found)
{
    const struct hash *hash = v->hash;
    for (size_t i = 0; i < n; i++) {
        const size_t chunks = hash_blocks(section[i].bytes);
        *found = hash_join(hash, chunks);
        if (!hash_equal(found, section[i].want))
            return i;
        hash += chunks;
    }
    return SIZE_MAX;
}

int verify_sections(const struct verify_section *section, size_t n, verify_progress *progress,
                    void *arg, size_t *damaged, struct hash *found, struct err *err)
{
    struct verification v = {.progress = progress, .arg = arg};
    int rc = -1;
    for (size_t i = 0; i < n; i++) {
        v.n += hash_blocks(section[i].bytes);
        v.total += section[i].bytes;
    }
    v.chunk = mem_alloc(v.n, sizeof *v.chunk);
    v.hash = mem_alloc(v.n, sizeof *v.hash);
    if (!v.chunk || !v.hash) {
        err_no_memory(err, "the hashes of %zu pieces", v.n);
        goto out;
    }
    list_chunks(&v, section, n);
    pthread_mutex_init(&v.lock, NULL);
    parallel_for(v.n, v.total, hash_chunk, &v);
    pthread_mutex_destroy(&v.lock);
    *damaged = first_damaged(&v, section, n, found);
    rc = 0;
out:
    free(v.chunk);
    free(v.hash);
    return rc;
}
