/* Stretches of a mapped file against their hashes, on all threads. */
#ifndef BMC_VERIFY_H
#define BMC_VERIFY_H

#include "base/err.h"
#include "base/hash.h"

struct verify_part {
    const unsigned char *data;
    size_t bytes;
    const struct hash *want; /* as base/hash_pieces.h defines it */
};

/* Called with the bytes hashed so far and in all. */
typedef void verify_progress(void *arg, size_t done, size_t total);

/* Hashes all parts, the pieces of each on all threads, and gives the index of the first that does not match in *damaged,
 * with the hash that it has in *found; SIZE_MAX when all match. `progress` may be NULL. */
int verify_parts(const struct verify_part *part, size_t n, verify_progress *progress, void *arg,
                 size_t *damaged, struct hash *found, struct err *err) MUST_USE;

#endif
