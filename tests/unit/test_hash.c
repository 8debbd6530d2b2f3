/* Hashes of long stretches, by every set that this machine has, against libsodium alone. */
#include <stdlib.h>
#include <string.h>

#include "base/hash_pieces.h"
#include "check.h"

enum { PIECE = 65536, MOST = 19 * PIECE };

static unsigned char *data;
static uint64_t state = 1;

static uint64_t random64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* As bmc-kv(5) and bmc-model(5) put it. */
static struct hash plain(const unsigned char *bytes, size_t len)
{
    unsigned char hashes[MOST / PIECE + 1][32];
    struct hash hash;
    size_t n = 0;
    for (size_t at = 0; at < len; at += PIECE, n++)
        crypto_generichash(hashes[n], 32, bytes + at, len - at < PIECE ? len - at : PIECE, NULL, 0);
    if (len <= PIECE)
        crypto_generichash(hash.byte, 32, bytes, len, NULL, 0);
    else
        crypto_generichash(hash.byte, 32, hashes[0], 32 * n, NULL, 0);
    return hash;
}

/* Lanes of different contents at any address, of 1 to 40 blocks. */
static void sets(void)
{
    for (size_t k = 0; hash_sets[k]; k++) {
        const struct hash_set *set = hash_sets[k];
        if (!set->usable()) {
            printf("# no %s here\n", set->isa);
            continue;
        }
        for (size_t bytes = 128; bytes <= 40 * 128; bytes += 128) {
            const unsigned char *lane[HASH_MOST_LANES];
            struct hash hash[HASH_MOST_LANES];
            for (size_t i = 0; i < set->lanes; i++)
                lane[i] = data + random64() % (MOST - bytes);
            set->hash(lane, bytes, hash);
            for (size_t i = 0; i < set->lanes; i++) {
                const struct hash want = plain(lane[i], bytes);
                check(hash_equal(&hash[i], &want), "%s: %zu bytes, lane %zu", set->isa, bytes, i);
            }
        }
    }
}

/* The same stretch in parts of any size, and in pieces. */
static void stretch(struct long_hasher *hasher, size_t len)
{
    const struct hash want = plain(data, len);
    size_t at = 0;
    while (at < len) {
        const size_t part = random64() % 4 ? random64() % 9000 : random64() % (2 * MOST);
        long_hasher_add(hasher, data + at, part < len - at ? part : len - at);
        at += part < len - at ? part : len - at;
    }
    struct hash hash = long_hasher_result(hasher);
    check(hash_equal(&hash, &want), "%zu bytes in parts", len);

    const unsigned char *piece[MOST / PIECE + 1];
    struct hash hashes[MOST / PIECE + 1], rest = hash_of(data + len / PIECE * PIECE, len % PIECE);
    for (size_t i = 0; i < len / PIECE; i++)
        piece[i] = data + i * PIECE;
    hash_pieces(piece, len / PIECE, hashes);
    hash = hash_join(hashes, len / PIECE, len % PIECE || !len ? &rest : NULL);
    check(hash_equal(&hash, &want), "%zu bytes in pieces", len);
}

int main(void)
{
    struct long_hasher hasher;
    struct err err;
    data = malloc(MOST);
    if (sodium_init() < 0 || !data || long_hasher_open(&hasher, &err) < 0)
        return 2;
    for (size_t i = 0; i < MOST; i++)
        data[i] = (unsigned char)random64();
    sets();
    for (size_t pieces = 0; pieces <= MOST / PIECE; pieces++)
        for (int more = -1; more <= 1; more++)
            if ((pieces || more >= 0) && (pieces < MOST / PIECE || more <= 0))
                stretch(&hasher, pieces * PIECE + (size_t)more);
    for (int i = 0; i < 30; i++)
        stretch(&hasher, random64() % MOST);
    long_hasher_close(&hasher);
    free(data);
    return check_result();
}
