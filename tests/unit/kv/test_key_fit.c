/* Keys of few bits that are fit to queries: a fit computed by hand, a search over all levels in double precision, queries that
 * leave an entry as it is, and which queries a cache's keys are fit to. */
#include <stdlib.h>
#include <string.h>

#include "quant/hadamard.h"
#include "quant/kv_entries.h"
#include "tests/unit/cache.h"

enum { MOST_D = 80, QUERIES = 6 };

static const enum dtype types[] = {DTYPE_KV4, DTYPE_KV5, DTYPE_KV6};
static uint64_t state = 7;

static float draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (1 << 23) - 1;
}

/* 5 bits, scale 1 and m = 15, so that levels are odd multiples of 4: errors of 2.8 in three elements of 1.2, whose sum the query
 * multiplies. With |query|^2 = 3 the spread is 3 / 4 * 3 = 9/4. Of the second element 1 / (9/4 + 1) of 9/4 * 2.8 + 3 * 2.8 is
 * 4.52: it moves from 4 to the level next to -0.52; then the sum is 0.4, and the third and fourth element stay at 4, next to
 * 4 - (9/4 * 2.8 + 0.4) / (13/4) = 1.94. In the second pass nothing moves: -4 + (9/4 * 5.2 - 0.4) / (13/4) = -0.52. */
static void test_by_hand(void)
{
    const float x[4] = {124, 1.2f, 1.2f, 1.2f}, alone[4] = {124, 4, 4, 4}, want[4] = {124, -4, 4, 4};
    float query[4][KV_FIT_QUERIES] = {{0}, {0, 1}, {0, 1}, {0, 1}}, found[4];
    unsigned char entry[64];
    kv_entry_quantize(entry, DTYPE_KV5, x, 4);
    kv_entry_dequantize(found, DTYPE_KV5, entry, 4);
    check(memcmp(found, alone, sizeof found) == 0, "alone %g %g %g %g", (double)found[0],
          (double)found[1], (double)found[2], (double)found[3]);
    kv_entry_fit(entry, DTYPE_KV5, x, 4, query);
    kv_entry_dequantize(found, DTYPE_KV5, entry, 4);
    check(memcmp(found, want, sizeof found) == 0, "fit %g %g %g %g", (double)found[0], (double)found[1],
          (double)found[2], (double)found[3]);
}

/* What the fit makes small, of errors in the original space. */
static double cost(const double *error, const float *query, size_t d)
{
    double squares = 0, all = 0, sum = 0;
    for (size_t k = 0; k < d; k++)
        squares += error[k] * error[k];
    for (size_t j = 0; j < KV_FIT_QUERIES; j++) {
        double product = 0;
        for (size_t k = 0; k < d; k++) {
            double q = 0; /* queries beyond the fourth are added to the first ones */
            for (size_t i = j; i < QUERIES; i += KV_FIT_QUERIES)
                q += (double)query[i * d + k];
            product += q * error[k];
            all += q * q;
        }
        sum += product * product;
    }
    return sum + 3 * squares * all / (double)d;
}

static double entry_cost(enum dtype type, const void *entry, const float *key, const float *query,
                         size_t d)
{
    float wide[MOST_D];
    double error[MOST_D];
    dtype_to_f32(wide, type, entry, d);
    for (size_t k = 0; k < d; k++)
        error[k] = (double)wide[k] - (double)key[k];
    return cost(error, query, d);
}

/* The cost after each element took the level with the least cost of all, twice. */
static double searched_cost(enum dtype type, const unsigned char *entry, const float *key,
                            const float *query, size_t d)
{
    const unsigned bits = kv_entry_bits(type);
    const struct kv_entry_layout at = kv_entry_layout(bits, d);
    float level[MOST_D], error_of[MOST_D];
    double least = entry_cost(type, entry, key, query, d);
    bf16 scale;
    memcpy(&scale, entry + at.scale, sizeof scale);
    kv_entry_dequantize(level, type, entry, d);
    for (size_t i = 0; i < 2 * d; i++) {
        const size_t k = i % d;
        const unsigned m = entry[at.multiplier + k / KV_BLOCK] >> (k % KV_BLOCK / KV_GROUP * 4) & 15;
        float best = level[k];
        for (unsigned q = 0; q < 1u << bits; q++) {
            double error[MOST_D];
            level[k] = bf16_to_f32(scale) * (float)kv_entry_integer(bits, q, m);
            memcpy(error_of, level, d * sizeof *level);
            hadamard(error_of, d, hadamard_block(d));
            for (size_t j = 0; j < d; j++)
                error[j] = (double)error_of[j] - (double)key[j];
            const double own = cost(error, query, d);
            best = own < least ? level[k] : best;
            least = own < least ? own : least;
        }
        level[k] = best;
    }
    return least;
}

/* Queries with a direction in common, as those of a head have. */
static void draw_vectors(float *key, float *query, size_t d)
{
    float common[MOST_D];
    for (size_t k = 0; k < d; k++) {
        common[k] = draw();
        key[k] = draw() + common[k];
    }
    for (size_t i = 0; i < QUERIES * d; i++)
        query[i] = common[i % d] + draw() / 4;
}

static void test_search(enum dtype type, size_t d)
{
    enum { KEYS = 10 };
    float key[MOST_D], query[QUERIES * MOST_D];
    unsigned char alone[2 * MOST_D], fit[2 * MOST_D];
    double before = 0, found = 0, want = 0;
    for (size_t i = 0; i < KEYS; i++) {
        draw_vectors(key, query, d);
        dtype_from_f32(alone, type, key, d);
        dtype_from_key(fit, type, key, d, query, QUERIES);
        before += entry_cost(type, alone, key, query, d);
        found += entry_cost(type, fit, key, query, d);
        want += searched_cost(type, alone, key, query, d);
    }
    check(want < 0.95 * before && found < 1.05 * want,
          "%u bits, %zu elements: cost %g, %g alone, %g searched", kv_entry_bits(type), d, found,
          before, want);
}

/* Queries of zeros, beyond f32's range when squared, and that are no numbers leave an entry as it is; so do other types. */
static void test_unfit(enum dtype type)
{
    static const float odd[] = {0, 1e-30f, 1e30f, INFINITY, NAN};
    enum { D = 40 };
    float key[D], query[QUERIES * D];
    unsigned char alone[8 * D], fit[8 * D];
    draw_vectors(key, query, D);
    for (size_t o = 0; o < ARRAY_LEN(odd); o++) {
        for (size_t i = 0; i < QUERIES * D; i++)
            query[i] = odd[o];
        dtype_from_f32(alone, type, key, D);
        dtype_from_key(fit, type, key, D, query, QUERIES);
        check(memcmp(alone, fit, dtype_row_bytes(type, D)) == 0, "%u bits change with queries of %g",
              kv_entry_bits(type), (double)odd[o]);
    }
    draw_vectors(key, query, D);
    key[3] = NAN;
    dtype_from_key(fit, type, key, D, query, QUERIES);
    check(!dtype_finite(type, fit, D), "a NaN is lost");
}

/* Keys have the queries of their row and of the heads that share them; values have none. */
static void test_cache(const char *spec, enum dtype type)
{
    enum {
        D = 40,
        KV_HEADS = 2,
        GROUP = 3,
        ROWS = 5,
        WIDTH = KV_HEADS * D,
        Q_WIDTH = GROUP * WIDTH + 8
    };
    float k[ROWS * WIDTH], v[ROWS * WIDTH], q[ROWS * Q_WIDTH];
    const struct kv_shape shape = cache_shape(1, KV_HEADS, D, 32, type);
    const size_t bytes = dtype_row_bytes(type, D);
    unsigned char found[ROWS * 4 * D], want[4 * D];
    struct kv *kv = cache_of(spec, &shape, 1);
    struct err err;
    for (size_t i = 0; i < ROWS * WIDTH; i++)
        k[i] = draw(), v[i] = draw();
    for (size_t i = 0; i < ROWS * Q_WIDTH; i++)
        q[i] = draw();
    check(kv_ensure(kv, 0, ROWS, &err) == 0, "%s: %s", spec, err.text);
    kv_append(kv, 0, 0, cpu_addr(k), cpu_addr(v), WIDTH,
              &(struct kv_queries){cpu_addr(q), Q_WIDTH, KV_HEADS * GROUP});
    kv_commit(kv, 0, ROWS);
    for (size_t h = 0; h < 2 * KV_HEADS; h++) {
        const size_t head = h / 2;
        const bool is_v = h % 2;
        check(kv_read(kv, 0, 0, is_v, head, found, &err) == 0, "%s", err.text);
        for (size_t i = 0; i < ROWS; i++) {
            if (is_v)
                dtype_from_f32(want, type, v + i * WIDTH + head * D, D);
            else
                dtype_from_key(want, type, k + i * WIDTH + head * D, D,
                               q + i * Q_WIDTH + head * GROUP * D, GROUP);
            check(memcmp(found + i * bytes, want, bytes) == 0, "%s, type %d: %s of head %zu, row %zu",
                  spec, (int)type, is_v ? "V" : "K", head, i);
        }
    }
    kv_close(kv);
}

int main(void)
{
    static const size_t sizes[] = {32, 40, 64, 80};
    static const char *const specs[] = {"iterative", "upfront", "paged", "segment"};
    test_by_hand();
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
            test_search(types[t], sizes[i]);
        test_unfit(types[t]);
    }
    for (size_t s = 0; s < ARRAY_LEN(specs); s++) {
        test_cache(specs[s], DTYPE_KV4);
        test_cache(specs[s], DTYPE_KV8);
    }
    return check_result();
}
