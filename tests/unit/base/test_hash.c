/* Tree hash of long data against its definition. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/unit/check.h"

enum { BLOCK = 65536, MAX_BYTES = 19 * BLOCK };

static unsigned char *data;
static uint64_t state;

static uint64_t random64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* The tree hash as bmc-kv(5) and bmc-model(5) define it, without streaming. */
static struct hash plain(const unsigned char *bytes, size_t len)
{
    unsigned char hashes[MAX_BYTES / BLOCK + 1][32];
    struct hash hash;
    size_t n = 0;
    for (size_t at = 0; at < len; at += BLOCK, n++)
        crypto_generichash(hashes[n], 32, bytes + at, len - at < BLOCK ? len - at : BLOCK, NULL, 0);
    if (len <= BLOCK)
        crypto_generichash(hash.byte, 32, bytes, len, NULL, 0);
    else
        crypto_generichash(hash.byte, 32, hashes[0], 32 * n, NULL, 0);
    return hash;
}

/* Hashes the same data as a stream, cut at random, and in blocks: both must equal plain(). */
static void test_length(size_t len)
{
    const struct hash want = plain(data, len);
    struct long_hasher hasher;
    long_hasher_init(&hasher);
    for (size_t at = 0, part; at < len; at += part) {
        part = size_min(len - at, random64() % 4 ? random64() % 9000 : random64() % (2 * MAX_BYTES));
        long_hasher_add(&hasher, data + at, part);
    }
    struct hash hash = long_hasher_result(&hasher), block[MAX_BYTES / BLOCK + 1];
    check(hash_equal(&hash, &want), "%zu bytes in parts", len);
    const size_t n = hash_blocks(len);
    for (size_t i = 0; i < n; i++)
        block[i] = hash_of(data + i * BLOCK, size_min(BLOCK, len - i * BLOCK));
    hash = hash_join(block, n);
    check(hash_equal(&hash, &want), "%zu bytes in blocks", len);
}

int main(void)
{
    state = check_state(check_seed(1));
    data = malloc(MAX_BYTES);
    if (sodium_init() < 0 || !data)
        return 2;
    for (size_t i = 0; i < MAX_BYTES; i++)
        data[i] = (unsigned char)random64();
    for (size_t blocks = 0; blocks <= MAX_BYTES / BLOCK; blocks++)
        for (int more = -1; more <= 1; more++)
            if ((blocks || more >= 0) && (blocks < MAX_BYTES / BLOCK || more <= 0))
                test_length(blocks * BLOCK + (size_t)more);
    for (int i = 0; i < 30; i++)
        test_length(random64() % MAX_BYTES);
    free(data);
    return check_result();
}
