/* Hashes of long stretches. */
#include "base/hash_pieces.h"

size_t hash_pieces(size_t bytes) { return size_max(bytes / HASH_PIECE + (bytes % HASH_PIECE != 0), 1); }

struct hash hash_join(const struct hash *piece, size_t n)
{
    return n == 1 ? *piece : hash_of(piece, n * sizeof *piece);
}

void long_hasher_init(struct long_hasher *h)
{
    *h = (struct long_hasher){.len = 0};
    hasher_init(&h->piece);
    hasher_init(&h->whole);
}

static void end_piece(struct long_hasher *h)
{
    const struct hash hash = hasher_result(&h->piece);
    hasher_add(&h->whole, &hash, sizeof hash);
    hasher_init(&h->piece);
    h->len = 0;
    h->longer = true;
}

void long_hasher_add(struct long_hasher *h, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    while (len) {
        if (h->len == HASH_PIECE)
            end_piece(h);
        const size_t part = size_min(len, HASH_PIECE - h->len);
        hasher_add(&h->piece, at, part);
        h->len += part;
        at += part;
        len -= part;
    }
}

struct hash long_hasher_result(struct long_hasher *h)
{
    if (!h->longer)
        return hasher_result(&h->piece);
    end_piece(h);
    return hasher_result(&h->whole);
}
