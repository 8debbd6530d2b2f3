/* Stretches of a mapped file against their hashes, on all threads. */
#ifndef BMC_VERIFY_H
#define BMC_VERIFY_H

#include "base/err.h"
#include "base/hash.h"

struct verify_part {
    const unsigned char *data;
    size_t bytes;
    const struct hash *want;
};

/* Called with the bytes hashed so far and in all. */
typedef void verify_progress(void *arg, size_t done, size_t total);

/* Hashes all parts and gives the index of the first that does not match in *damaged, SIZE_MAX when all do. A part is
 * hashed from its beginning to its end by one thread, so the largest begin first; `progress` may be NULL. */
int verify_parts(const struct verify_part *part, size_t n, verify_progress *progress, void *arg,
                 size_t *damaged, struct err *err) MUST_USE;

#endif
