/* The counter-based random number generator Philox4x32-10. */
#include "decode/sample/rng.h"

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
    uint32_t k[2] = {key[0], key[1]};
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53 * c[0], b = (uint64_t)0xcd9e8d57 * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        for (int i = 0; i < 4; i++)
            c[i] = next[i];
        k[0] += 0x9e3779b9;
        k[1] += 0xbb67ae85;
    }
    for (int i = 0; i < 4; i++)
        out[i] = c[i];
}

double rng_uniform(uint64_t seed, uint64_t line, uint32_t position, uint32_t draw)
{
    const uint32_t counter[4] = {position, draw, (uint32_t)line, (uint32_t)(line >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t word[4];
    philox4x32(counter, key, word);
    return (double)(((uint64_t)word[0] << 32 | word[1]) >> 11) * 0x1p-53;
}

double draws_next(struct draws *draws)
{
    return rng_uniform(draws->seed, draws->line, draws->position, RNG_DRAWS + draws->used++);
}
