/* Tree hash of long data. */
#include "base/hash_blocks.h"

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
