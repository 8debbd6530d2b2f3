/* BLAKE2b through libsodium. */
#include "base/hash.h"

#include <stdio.h>
#include <string.h>

struct hash hash_of(const void *bytes, size_t len)
{
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, bytes, len);
    return hasher_result(&hasher);
}

bool hash_equal(const struct hash *a, const struct hash *b)
{
    return memcmp(a->byte, b->byte, HASH_BYTES) == 0;
}

void hash_sum(struct hash *sum, const struct hash *hash)
{
    sodium_add(sum->byte, hash->byte, sizeof sum->byte);
}

void hash_hex(const struct hash *hash, size_t bytes, char *text)
{
    sodium_bin2hex(text, 2 * bytes + 1, hash->byte, bytes);
}

void hasher_init(struct hasher *hasher)
{
    crypto_generichash_init(&hasher->state, NULL, 0, HASH_BYTES);
}

void hasher_add(struct hasher *hasher, const void *bytes, size_t len)
{
    crypto_generichash_update(&hasher->state, bytes, len);
}

struct hash hasher_result(struct hasher *hasher)
{
    struct hash result;
    crypto_generichash_final(&hasher->state, result.byte, HASH_BYTES);
    return result;
}
