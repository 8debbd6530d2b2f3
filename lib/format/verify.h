/* Verifies sections of a mapped file against their hashes, multi-threaded. */
#pragma once

#include "base/err.h"
#include "base/hash.h"

struct verify_section {
    const unsigned char *data;
    size_t bytes;
    const struct hash *want; /* expected hash (base/hash.h) */
};

/* Called with the bytes hashed so far and the total. */
typedef void verify_progress(void *arg, size_t done, size_t total);

/* Hashes all sections. *damaged is the index of the first one with a hash mismatch, *found its
 * actual hash; *damaged is SIZE_MAX if all match. `progress` may be NULL. */
int verify_sections(const struct verify_section *section, size_t n, verify_progress *progress,
                    void *arg, size_t *damaged, struct hash *found, struct err *err) MUST_USE;
