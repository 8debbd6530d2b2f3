/* Hashes of long stretches against their definition. */
#include <stdlib.h>
#include <string.h>

#include "base/hash_pieces.h"
#include "check.h"

enum { PIECE = 65536, MOST = 19 * PIECE };

static unsigned char *data;
static uint64_t state;

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

/* The same stretch in parts of any size, and in pieces. */
static void stretch(size_t len)
{
    const struct hash want = plain(data, len);
    struct long_hasher hasher;
    long_hasher_init(&hasher);
    for (size_t at = 0, part; at < len; at += part) {
        part = size_min(len - at, random64() % 4 ? random64() % 9000 : random64() % (2 * MOST));
        long_hasher_add(&hasher, data + at, part);
    }
    struct hash hash = long_hasher_result(&hasher), piece[MOST / PIECE + 1];
    check(hash_equal(&hash, &want), "%zu bytes in parts", len);
    const size_t n = hash_pieces(len);
    for (size_t i = 0; i < n; i++)
        piece[i] = hash_of(data + i * PIECE, size_min(PIECE, len - i * PIECE));
    hash = hash_join(piece, n);
    check(hash_equal(&hash, &want), "%zu bytes in pieces", len);
}

int main(void)
{
    state = check_state(check_seed(1));
    data = malloc(MOST);
    if (sodium_init() < 0 || !data)
        return 2;
    for (size_t i = 0; i < MOST; i++)
        data[i] = (unsigned char)random64();
    for (size_t pieces = 0; pieces <= MOST / PIECE; pieces++)
        for (int more = -1; more <= 1; more++)
            if ((pieces || more >= 0) && (pieces < MOST / PIECE || more <= 0))
                stretch(pieces * PIECE + (size_t)more);
    for (int i = 0; i < 30; i++)
        stretch(random64() % MOST);
    free(data);
    return check_result();
}
