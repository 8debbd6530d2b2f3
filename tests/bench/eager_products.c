/* The products of eager attention through oneDNN on one thread (BMC paper, VIII-E and VIII-H5), for one new token of each
 * sequence and f32 entries:
 *
 *   eager_products SEQUENCES KV_HEADS G D ROUNDS
 *
 * For lengths of 256 to 1536 entries prints, of scores and of values, milliseconds of creating the product's primitive and of
 * executing it, and their ratio; then how much longer executing takes where the entries are the first ones of 2,048, where
 * they are one sequence's at a time, and where they are stored [sequence][entry][head][D] and [entry][sequence][head][D] instead
 * of [sequence][head][entry][D] (segment paper, figure 6: G query tokens are beams). Medians of rounds with another length
 * each, since a length that was had before needs no new primitive. */
#include <stdio.h>
#include <stdlib.h>

#include "attn/eager_product.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "bench.h"

enum { MOST = 2048 };

static size_t sequences, heads, gqa, d, rounds;

/* Elements between entries, heads and sequences. */
struct order {
    size_t entry, head, sequence;
};

static struct order by_head(size_t entries)
{
    return (struct order){d, entries * d, heads * entries * d};
}

/* The product of queries with the keys of n entries per head, or of scores with values. */
static struct eager_product product_of(bool keys, size_t sequences_at_once, size_t n,
                                       struct order order)
{
    const size_t queries[] = {heads * gqa * d, gqa * d}, scores[] = {heads * gqa * n, gqa * n},
                 *a = keys ? queries : scores, *c = keys ? scores : queries;
    return (struct eager_product){.m = gqa,
                                  .n = keys ? n : d,
                                  .k = keys ? d : n,
                                  .transposed = keys,
                                  .batch = {sequences_at_once, heads},
                                  .a_row = keys ? d : n,
                                  .b_row = order.entry,
                                  .c_row = keys ? n : d,
                                  .a_step = {a[0], a[1]},
                                  .b_step = {order.sequence, order.head},
                                  .c_step = {c[0], c[1]}};
}

static double execute_ms(const struct eager_product *p, float *c, const float *a, const float *b)
{
    struct err err;
    const double start = clock_ms();
    for (size_t s = 0; s < sequences; s += p->batch[0])
        if (eager_onednn.multiply(p, c + s * p->c_step[0], a + s * p->a_step[0], b + s * p->b_step[0],
                                  &err) < 0)
            die(&err);
    return clock_ms() - start;
}

static double created_ms(double since) { return onednn_counts().primitive_ms - since; }

enum { WHOLE, FIRST, SINGLE, BATCH_FIRST, SEQUENCE_FIRST, WAYS };

static void measure(bool keys, size_t n, float *small, float *large, const float *cache)
{
    double creation[MAX_ROUNDS], execution[MAX_ROUNDS], created[MAX_ROUNDS], over[WAYS][MAX_ROUNDS];
    float *a = keys ? small : large, *c = keys ? large : small;
    for (size_t i = 0; i < rounds; i++) {
        const size_t now = n - i, width = heads * d;
        const struct eager_product way[WAYS] = {
            [WHOLE] = product_of(keys, sequences, now, by_head(now)),
            [FIRST] = product_of(keys, sequences, now, by_head(MOST)),
            [SINGLE] = product_of(keys, 1, now, by_head(now)),
            [BATCH_FIRST] = product_of(keys, sequences, now, (struct order){width, d, now * width}),
            [SEQUENCE_FIRST] =
                product_of(keys, sequences, now, (struct order){sequences * width, d, width})};
        const double before = onednn_counts().primitive_ms;
        execute_ms(&way[WHOLE], c, a, cache);
        creation[i] = created_ms(before);
        for (size_t w = FIRST; w < WAYS; w++)
            execute_ms(&way[w], c, a, cache);
        execution[i] = execute_ms(&way[WHOLE], c, a, cache);
        created[i] = creation[i] / execution[i];
        for (size_t w = FIRST; w < WAYS; w++)
            over[w][i] = execute_ms(&way[w], c, a, cache) / execution[i];
    }
    printf("%zu %s %.3f %.3f %.2f", n, keys ? "scores" : "values", median(creation, rounds),
           median(execution, rounds), median(created, rounds));
    for (size_t w = FIRST; w < WAYS; w++)
        printf(" %.2f", median(over[w], rounds));
    printf("\n");
}

int main(int argc, char **argv)
{
    struct err err;
    if (argc != 6 || !parse_size(argv[1], &sequences) || !parse_size(argv[2], &heads) ||
        !parse_size(argv[3], &gqa) || !parse_size(argv[4], &d) || !parse_size(argv[5], &rounds) ||
        rounds < 1 || rounds > MAX_ROUNDS)
        return fprintf(stderr, "usage: eager_products SEQUENCES KV_HEADS G D ROUNDS\n"), 2;
    if (eager_onednn.open(&err) < 0)
        die(&err);
    const size_t matrices = sequences * heads;
    float *small = mem_alloc(matrices * gqa * d, sizeof *small),
          *large = mem_alloc(matrices * gqa * MOST, sizeof *large),
          *cache = mem_alloc(matrices * MOST * d, sizeof *cache);
    if (!small || !large || !cache)
        return fprintf(stderr, "out of memory\n"), 1;
    for (size_t i = 0; i < matrices * gqa * d; i++)
        small[i] = (float)(i % 7) / 7;
    for (size_t i = 0; i < matrices * gqa * MOST; i++)
        large[i] = (float)(i % 5) / 5;
    for (size_t i = 0; i < matrices * MOST * d; i++)
        cache[i] = (float)(i % 11) / 11;
    static const size_t lengths[] = {256, 512, 1024, 1536};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (int keys = 1; keys >= 0; keys--)
            measure(keys, lengths[i], small, large, cache);
    free(small);
    free(large);
    free(cache);
    eager_onednn.close();
    return 0;
}
