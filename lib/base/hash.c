/* BLAKE2b through libsodium. */
#include "base/hash.h"

struct hash hash_of(const void *bytes, size_t len)
{
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, bytes, len);
    return hasher_result(&hasher);
}

struct hash hash_of_head(const void *head, size_t head_bytes, size_t at, const void *more,
                         size_t more_bytes)
{
    static const struct hash zero;
    const unsigned char *bytes = head;
    const size_t end = at + sizeof zero;
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, bytes, at);
    hasher_add(&hasher, &zero, sizeof zero);
    hasher_add(&hasher, bytes + end, head_bytes - end);
    if (more_bytes)
        hasher_add(&hasher, more, more_bytes);
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

void hasher_add_attributes(struct hasher *hasher, const struct stat *file)
{
    const uint64_t attributes[] = {file->st_dev, file->st_ino, (uint64_t)file->st_size,
                                   (uint64_t)file->st_mtim.tv_sec, (uint64_t)file->st_mtim.tv_nsec};
    hasher_add(hasher, attributes, sizeof attributes);
}

struct hash hasher_result(struct hasher *hasher)
{
    struct hash result;
    crypto_generichash_final(&hasher->state, result.byte, HASH_BYTES);
    return result;
}

/* ---- tree hash of long data ---- */

size_t hash_blocks(size_t bytes) { return size_max(bytes / HASH_BLOCK + (bytes % HASH_BLOCK != 0), 1); }

struct hash hash_join(const struct hash *block, size_t n)
{
    return n == 1 ? *block : hash_of(block, n * sizeof *block);
}

void long_hasher_init(struct long_hasher *h)
{
    *h = (struct long_hasher){.len = 0};
    hasher_init(&h->block);
    hasher_init(&h->whole);
}

static void end_block(struct long_hasher *h)
{
    const struct hash hash = hasher_result(&h->block);
    hasher_add(&h->whole, &hash, sizeof hash);
    hasher_init(&h->block);
    h->len = 0;
    h->several = true;
}

void long_hasher_add(struct long_hasher *h, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    while (len) {
        if (h->len == HASH_BLOCK)
            end_block(h);
        const size_t part = size_min(len, HASH_BLOCK - h->len);
        hasher_add(&h->block, at, part);
        h->len += part;
        at += part;
        len -= part;
    }
}

struct hash long_hasher_result(struct long_hasher *h)
{
    if (!h->several)
        return hasher_result(&h->block);
    end_block(h);
    return hasher_result(&h->whole);
}
