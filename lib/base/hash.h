/* BLAKE2b through libsodium. */
#ifndef BMC_HASH_H
#define BMC_HASH_H

#include <sodium.h>

#include "base/base.h"

enum { HASH_BYTES = 32 };

struct hash {
    unsigned char byte[HASH_BYTES];
};

/* BLAKE2b-256 of `len` bytes. */
struct hash hash_of(const void *bytes, size_t len);

bool hash_equal(const struct hash *a, const struct hash *b);

/* Adds a hash to *sum as a number; a sum depends on no order. */
void hash_sum(struct hash *sum, const struct hash *hash);

/* Writes the hash's first `bytes` bytes in lower-case hexadecimal to `text`, which has room for 2 *
 * bytes + 1 characters. */
void hash_hex(const struct hash *hash, size_t bytes, char *text);

/* Incremental BLAKE2b-256, for data added in several calls. */
struct hasher {
    crypto_generichash_state state;
};

void hasher_init(struct hasher *hasher);
void hasher_add(struct hasher *hasher, const void *bytes, size_t len);
struct hash hasher_result(struct hasher *hasher);

#endif
