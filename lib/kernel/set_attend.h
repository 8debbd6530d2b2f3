/* Attention of one KV head in one pass. Included by a set's file after set_vec.h.
 *
 * A block of 32 positions at a time: K is turned so that lanes are positions, then
 *   score[position] = sum over j = 0, 1 .. d - 1 of q[j] * k[position][j], in that order, one chain,
 *   then capped and biased by itself;
 *   weights are e^(score - maximum so far), what was summed before shrinks with the maximum;
 *   context[j] = sum over positions in order of weight * v[position][j], one chain.
 * So neither the number of queries nor the place of a row in storage can change a bit. */

#include "kernel/set_weigh.h"

enum {
    SCORE_QUERIES = VW == 16 ? 8 : 2, /* queries whose scores stay in registers */
    VALUE_QUERIES = VW == 16 ? 6 : 2,
    VALUE_GROUPS = VW == 16 ? 4 : 2 /* registers for a query's context */
};

INLINE vf load_row(enum dtype type, const char *row, size_t j)
{
    switch (type) {
    case DTYPE_F32: return vf_load((const float *)(const void *)row + j);
    case DTYPE_BF16: return vf_load_bf16((const bf16 *)(const void *)row + j);
    case DTYPE_F16: return vf_load_f16((const f16 *)(const void *)row + j);
    case DTYPE_FEW_BITS:
    case DTYPE_COUNT: break;
    }
    return (vf){0};
}

/* turned[j][ATTEND_BLOCK] of tile t of a block: columns from t * ATTEND_TILE on. */
INLINE void turn_tile(enum dtype type, bool scattered, float *turned, size_t t, struct tile k,
                      size_t stride, size_t d, const struct next_block *next)
{
    const size_t whole = d / VW * VW, at = t * ATTEND_TILE, size = dtype_size(type);
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        float *to = turned + at + p;
        for (size_t j = 0; j < whole; j += VW) {
            vf x[VW];
            for (size_t i = 0; i < VW; i++) {
                x[i] = load_row(type, row_of(k, scattered, stride, p + i), j);
                if (i % 2) /* every second of the block's loads: half a tile for each of its tiles */
                    fetch_line(next->k[0],
                               (t * ATTEND_TILE * d + (p + i) * VW + j * ATTEND_TILE) / 2 * size,
                               (at + p + i) / 2, j * size);
            }
            vf_transpose(x);
            for (size_t i = 0; i < VW; i++)
                vf_store(to + (j + i) * ATTEND_BLOCK, x[i]);
        }
        for (size_t j = whole; j < d; j++)
            for (size_t i = 0; i < VW; i++)
                to[j * ATTEND_BLOCK + i] = dtype_element(type, row_of(k, scattered, stride, p + i), j);
    }
}

PHASE void turn_block(const struct attend *a, size_t block, float *turned,
                      const struct next_block *next)
{
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t tile = block * BLOCK_TILES + t;
        if (tile >= a->tiles) {
            for (size_t j = 0; j < a->d; j++)
                memset(turned + j * ATTEND_BLOCK + t * ATTEND_TILE, 0, ATTEND_TILE * sizeof *turned);
            continue;
        }
        const struct tile k = k_tile(a, tile);
#define TURN(type)                                                                                     \
    if (k.row)                                                                                         \
        turn_tile(type, true, turned, t, k, a->row_stride, a->d, next);                                \
    else                                                                                               \
        turn_tile(type, false, turned, t, k, a->row_stride, a->d, next);                               \
    break
        switch (a->type) {
        case DTYPE_F32: TURN(DTYPE_F32);
        case DTYPE_BF16: TURN(DTYPE_BF16);
        case DTYPE_F16: TURN(DTYPE_F16);
        case DTYPE_FEW_BITS:
        case DTYPE_COUNT: break;
        }
#undef TURN
    }
}

/* scores[R][ATTEND_BLOCK] of queries q[d][q_stride]. With every element of a query a line of the tile `next` is prefetched,
 * `step` bytes on. */
INLINE void score_tile(const int R, float *scores, const float *q, size_t q_stride, const float *turned,
                       size_t d, struct tile next, size_t step)
{
    vf sum[SCORE_QUERIES][BLOCK_GROUPS] = {{{0}}};
    for (size_t j = 0; j < d; j++, turned += ATTEND_BLOCK, q += q_stride) {
        fetch_line(next, j * step, j % ATTEND_TILE, j / ATTEND_TILE * step);
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const vf k = vf_load(turned + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vf_fma(vf_set1(q[i]), k, sum[i][g]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < BLOCK_GROUPS; g++)
            vf_store(scores + i * ATTEND_BLOCK + g * VW, sum[i][g]);
}

/* Scores of queries [from, to) in a block. */
PHASE void score_block(const struct attend *a, size_t from, size_t to, float *scores,
                       const float *turned, const struct next_block *next)
{
#define TILE                                                                                           \
    score_tile(R, scores + (from + i) * ATTEND_BLOCK, a->q + from + i, a->q_stride, turned, a->d,      \
               next->k[1], i ? 0 : next->bytes / a->d)
    FOR_TILES(to - from, SCORE_QUERIES, TILE);
#undef TILE
}

/* Scores become weights; returns what the sums so far are multiplied by. A query that sees nothing of the block gives every position of it weight 0. */
static float weigh(const struct attend *a, size_t query, size_t first, float *scores)
{
    const struct sight sight = sight_of(a, query, first);
    if (sight.seen <= sight.from) {
        memset(scores, 0, ATTEND_BLOCK * sizeof *scores);
        return 1;
    }
    return add_weights(a, query, find_max(a, query, first, sight, scores), scores);
}

/* A block's rows of V: one or two tiles. */
struct value_rows {
    struct tile tile[BLOCK_TILES];
    size_t tiles, stride;
    const struct tile *next; /* to be prefetched, or NULL */
};

/* context[R][G * VW] at column j, over a block's rows of V: weights[R][ATTEND_BLOCK]. */
INLINE void value_tile(const int R, const int G, enum dtype type, bool scattered, float *context,
                       size_t d, const float *shrink, const float *weights, const struct value_rows *v,
                       size_t j)
{
    const size_t size = dtype_size(type);
    const size_t bytes = (size_t)G * VW * size / BLOCK_TILES; /* to prefetch with every row */
    vf sum[VALUE_QUERIES][VALUE_GROUPS];
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            sum[i][g] = vf_load(context + (size_t)i * d + g * VW) * vf_set1(shrink[i]);
    for (size_t t = 0; t < v->tiles; t++)
        for (size_t p = 0; p < ATTEND_TILE; p++) {
            const char *from = row_of(v->tile[t], scattered, v->stride, p);
            vf row[VALUE_GROUPS];
            for (int g = 0; g < G; g++)
                row[g] = load_row(type, from, j + (size_t)g * VW);
            for (size_t line = 0; v->next && line < bytes; line += 64)
                fetch_line(*v->next, j * ATTEND_TILE * size + (t * ATTEND_TILE + p) * bytes + line,
                           (t * ATTEND_TILE + p) / 2, j * size + p % 2 * bytes + line);
            for (int i = 0; i < R; i++) {
                const vf weight = vf_set1(weights[(size_t)i * ATTEND_BLOCK + t * ATTEND_TILE + p]);
                for (int g = 0; g < G; g++)
                    sum[i][g] = vf_fma(weight, row[g], sum[i][g]);
            }
        }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            vf_store(context + (size_t)i * d + g * VW, sum[i][g]);
}

/* context[R][d] of R queries. */
INLINE void value_rows(const int R, enum dtype type, bool scattered, float *context, size_t d,
                       const float *shrink, const float *weights, const struct value_rows *v)
{
    size_t j = 0;
    for (; j + VALUE_GROUPS * VW <= d; j += VALUE_GROUPS * VW)
        value_tile(R, VALUE_GROUPS, type, scattered, context + j, d, shrink, weights, v, j);
    for (; j + VW <= d; j += VW)
        value_tile(R, 1, type, scattered, context + j, d, shrink, weights, v, j);
    for (; j < d; j++)
        for (int i = 0; i < R; i++) {
            float sum = context[(size_t)i * d + j] * shrink[i];
            for (size_t p = 0; p < v->tiles * ATTEND_TILE; p++) {
                const struct tile tile = v->tile[p / ATTEND_TILE];
                const char *from = row_of(tile, scattered, v->stride, p % ATTEND_TILE);
                sum += weights[(size_t)i * ATTEND_BLOCK + p] * dtype_element(type, from, j);
            }
            context[(size_t)i * d + j] = sum;
        }
}

/* The weights of queries [from, to) in a block, and what their sums so far are multiplied by. */
struct weighed {
    size_t from, to;
    const float *weights, *shrink;
};

INLINE void value_queries(enum dtype type, bool scattered, const struct attend *a,
                          const struct weighed *w, struct value_rows v)
{
#define TILE                                                                                           \
    value_rows(R, type, scattered, a->context + (w->from + i) * a->d, a->d, w->shrink + i,             \
               w->weights + i * ATTEND_BLOCK, &v);                                                     \
    v.next = NULL
    FOR_TILES(w->to - w->from, VALUE_QUERIES, TILE);
#undef TILE
}

/* Of a block where one tile is scattered, the other gets a table, too. */
INLINE void values(enum dtype type, const struct attend *a, size_t block, const struct weighed *w,
                   const struct tile *next)
{
    const size_t first = block * BLOCK_TILES;
    struct value_rows v = {
        .tiles = size_min(BLOCK_TILES, a->tiles - first), .stride = a->row_stride, .next = next};
    ptrdiff_t strided[ATTEND_TILE];
    bool scattered = false;
    for (size_t t = 0; t < v.tiles; t++) {
        v.tile[t] = v_tile(a, first + t);
        scattered = scattered || v.tile[t].row;
    }
    if (!scattered) {
        value_queries(type, false, a, w, v);
        return;
    }
    for (size_t i = 0; i < ATTEND_TILE; i++)
        strided[i] = (ptrdiff_t)(i * a->row_stride);
    for (size_t t = 0; t < v.tiles; t++)
        v.tile[t].row = v.tile[t].row ? v.tile[t].row : strided;
    value_queries(type, true, a, w, v);
}

/* The part of the next block's V that goes with query i of n. */
INLINE void fetch_values(const struct next_block *next, size_t i, size_t n)
{
    const size_t share = round_up(div_up(next->bytes, n), 64);
    if (!next->v[0].row)
        for (size_t line = 0; line < share; line += 64)
            fetch_line(next->v[0], i * share + line, 0, 0);
    else
        for (size_t row = i; row < ATTEND_TILE; row += n)
            for (size_t line = 0; line < next->row_bytes; line += 64)
                fetch_line(next->v[0], 0, row, line);
}

static void attend(const struct attend *a)
{
    float *turned = a->space, *scores = turned + ATTEND_BLOCK * a->d;
    float *shrink = scores + ATTEND_BLOCK * a->queries;
    const size_t blocks = div_up(a->tiles, BLOCK_TILES);
    for (size_t block = 0; block < blocks; block++) {
        const size_t first = block * ATTEND_BLOCK;
        const struct next_block next = find_next(a, block);
        const struct sight at = queries_at(a, block);
        const size_t from = at.from, to = at.seen;
        if (from == to)
            continue;
        turn_block(a, block, turned, &next);
        score_block(a, from, to, scores, turned, &next);
        for (size_t i = from; i < to; i++) {
            fetch_values(&next, i - from, to - from);
            shrink[i] = weigh(a, i, first, scores + i * ATTEND_BLOCK);
        }
        const struct weighed w = {from, to, scores + from * ATTEND_BLOCK, shrink + from};
        switch (a->type) {
        case DTYPE_F32: values(DTYPE_F32, a, block, &w, &next.v[1]); break;
        case DTYPE_BF16: values(DTYPE_BF16, a, block, &w, &next.v[1]); break;
        case DTYPE_F16: values(DTYPE_F16, a, block, &w, &next.v[1]); break;
        case DTYPE_FEW_BITS:
        case DTYPE_COUNT: break;
        }
    }
}
