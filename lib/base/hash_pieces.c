/* Hashes of long stretches: pieces with the best set there is, and libsodium for what is left. */
#include "base/hash_pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { GROUP_BYTES = HASH_MOST_LANES * HASH_PIECE };

extern const struct hash_set hash_avx512, hash_avx2;

const struct hash_set *const hash_sets[] = {&hash_avx512, &hash_avx2, NULL};

static const struct hash_set *best_set(void)
{
    const struct hash_set *const *set = hash_sets;
    while (*set && !(*set)->usable())
        set++;
    return *set;
}

void hash_pieces(const unsigned char *const *piece, size_t n, struct hash *out)
{
    const struct hash_set *set = best_set();
    while (set && n > 1) {
        const unsigned char *lane[HASH_MOST_LANES];
        struct hash hash[HASH_MOST_LANES];
        const size_t used = size_min(n, set->lanes);
        for (size_t i = 0; i < set->lanes; i++)
            lane[i] = piece[size_min(i, used - 1)];
        set->hash(lane, HASH_PIECE, hash);
        memcpy(out, hash, used * sizeof *out);
        piece += used;
        out += used;
        n -= used;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = hash_of(piece[i], HASH_PIECE);
}

struct hash hash_join(const struct hash *piece, size_t n, const struct hash *rest)
{
    struct hasher hasher;
    if (n + (rest != NULL) == 1)
        return rest ? *rest : *piece;
    hasher_init(&hasher);
    hasher_add(&hasher, piece, n * sizeof *piece);
    if (rest)
        hasher_add(&hasher, rest, sizeof *rest);
    return hasher_result(&hasher);
}

/* ---- in parts ---- */

int long_hasher_open(struct long_hasher *h, struct err *err)
{
    *h = (struct long_hasher){.group = mem_alloc(1, GROUP_BYTES)};
    hasher_init(&h->whole);
    return h->group ? 0 : err_set(err, "out of memory for %d bytes to hash", GROUP_BYTES);
}

void long_hasher_close(struct long_hasher *h)
{
    free(h->group);
    h->group = NULL;
}

/* Hashes of the whole pieces in the group; how many. */
static size_t hash_group(const struct long_hasher *h, struct hash hash[HASH_MOST_LANES])
{
    const unsigned char *piece[HASH_MOST_LANES];
    const size_t n = h->len / HASH_PIECE;
    for (size_t i = 0; i < n; i++)
        piece[i] = h->group + i * HASH_PIECE;
    hash_pieces(piece, n, hash);
    return n;
}

void long_hasher_add(struct long_hasher *h, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    struct hash hash[HASH_MOST_LANES];
    while (len) {
        if (h->len == GROUP_BYTES) {
            hasher_add(&h->whole, hash, hash_group(h, hash) * sizeof *hash);
            h->longer = true;
            h->len = 0;
        }
        const size_t part = size_min(len, GROUP_BYTES - h->len);
        memcpy(h->group + h->len, at, part);
        h->len += part;
        at += part;
        len -= part;
    }
}

struct hash long_hasher_result(struct long_hasher *h)
{
    struct hash hash[HASH_MOST_LANES + 1], result;
    size_t n = hash_group(h, hash);
    if (h->len % HASH_PIECE || h->len == 0)
        hash[n] = hash_of(h->group + n * HASH_PIECE, h->len % HASH_PIECE), n++;
    if (h->longer) {
        hasher_add(&h->whole, hash, n * sizeof *hash);
        result = hasher_result(&h->whole);
    } else {
        result = hash_join(hash, n, NULL);
    }
    hasher_init(&h->whole);
    h->longer = false;
    h->len = 0;
    return result;
}
