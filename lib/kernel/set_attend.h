/* Attention of one KV head in one pass. Included by a set's file after set_vec.h.
 *
 * A block of 32 positions at a time: K is turned so that lanes are positions, then
 *   score[position] = sum over j = 0, 1 .. d - 1 of q[j] * k[position][j], in that order, one chain;
 *   weights are e^(score - maximum so far), what was summed before shrinks with the maximum;
 *   context[j] = sum over positions in order of weight * v[position][j], one chain.
 * So neither the number of queries nor the place of a row in storage can change a bit. */

enum {
    BLOCK_GROUPS = ATTEND_BLOCK / VW, /* registers for a block's positions */
    SCORE_QUERIES = VW == 16 ? 8 : 2, /* queries whose scores stay in registers */
    VALUE_QUERIES = VW == 16 ? 6 : 2,
    VALUE_GROUPS = VW == 16 ? 4 : 2 /* registers for a query's context */
};

INLINE vf load_row(enum dtype type, const char *row, size_t j)
{
    return type == DTYPE_BF16 ? vf_load_bf16((const bf16 *)(const void *)row + j)
                              : vf_load((const float *)(const void *)row + j);
}

INLINE float load_element(enum dtype type, const char *row, size_t j)
{
    return type == DTYPE_BF16 ? bf16_to_f32(((const bf16 *)(const void *)row)[j])
                              : ((const float *)(const void *)row)[j];
}

/* turned[j][ATTEND_BLOCK] of one tile: columns [at, at + ATTEND_TILE). */
INLINE void turn_tile(enum dtype type, float *turned, size_t at, const char *k, size_t stride, size_t d)
{
    const size_t whole = d / VW * VW;
    for (size_t p = 0; p < ATTEND_TILE; p += VW) {
        const char *rows = k + p * stride;
        float *to = turned + at + p;
        for (size_t j = 0; j < whole; j += VW) {
            vf x[VW];
            for (size_t i = 0; i < VW; i++)
                x[i] = load_row(type, rows + i * stride, j);
            vf_transpose(x);
            for (size_t i = 0; i < VW; i++)
                vf_store(to + (j + i) * ATTEND_BLOCK, x[i]);
        }
        for (size_t j = whole; j < d; j++)
            for (size_t i = 0; i < VW; i++)
                to[j * ATTEND_BLOCK + i] = load_element(type, rows + i * stride, j);
    }
}

static void turn_block(const struct attend *a, size_t block, float *turned)
{
    for (size_t t = 0; t < ATTEND_BLOCK / ATTEND_TILE; t++) {
        const size_t tile = block * (ATTEND_BLOCK / ATTEND_TILE) + t, at = t * ATTEND_TILE;
        if (tile >= a->tiles)
            for (size_t j = 0; j < a->d; j++)
                memset(turned + j * ATTEND_BLOCK + at, 0, ATTEND_TILE * sizeof *turned);
        else if (a->type == DTYPE_BF16)
            turn_tile(DTYPE_BF16, turned, at, a->k[tile], a->row_stride, a->d);
        else
            turn_tile(DTYPE_F32, turned, at, a->k[tile], a->row_stride, a->d);
    }
}

/* scores[R][ATTEND_BLOCK] */
INLINE void score_tile(const int R, float *scores, const float *q, const float *turned, size_t d)
{
    vf sum[SCORE_QUERIES][BLOCK_GROUPS] = {{{0}}};
    for (size_t j = 0; j < d; j++)
        for (int g = 0; g < BLOCK_GROUPS; g++) {
            const vf k = vf_load(turned + j * ATTEND_BLOCK + g * VW);
            for (int i = 0; i < R; i++)
                sum[i][g] = vf_fma(vf_set1(q[(size_t)i * d + j]), k, sum[i][g]);
        }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < BLOCK_GROUPS; g++)
            vf_store(scores + i * ATTEND_BLOCK + g * VW, sum[i][g]);
}

/* Scores become weights; returns what the sums so far are multiplied by. A query that sees nothing of
 * the block gives every position of it weight 0. */
static float weigh(const struct attend *a, size_t query, size_t first, float *scores)
{
    float *sum = a->sum + query * LANES;
    if (a->seen[query] <= first) {
        memset(scores, 0, ATTEND_BLOCK * sizeof *scores);
        return 1;
    }
    const size_t seen = size_min(a->seen[query] - first, ATTEND_BLOCK);
    for (size_t p = seen; p < ATTEND_BLOCK; p++)
        scores[p] = -INFINITY;
    vf most = vf_load(scores);
    for (int g = 1; g < BLOCK_GROUPS; g++)
        most = vf_max(most, vf_load(scores + g * VW));
    const float before = a->max[query], found = vf_fold_max(most);
    const float max = found > before ? found : before;
    const float shrink = before < max ? vf_exp(vf_set1(before - max))[0] : 1;
    for (int g = 0; g < BLOCK_GROUPS; g++) {
        const vf e = vf_exp(vf_load(scores + g * VW) - vf_set1(max));
        float *lane = sum + g % GROUP * VW;
        vf_store(scores + g * VW, e);
        vf_store(lane, vf_fma(vf_load(lane), vf_set1(g < GROUP ? shrink : 1), e));
    }
    a->max[query] = max;
    return shrink;
}

/* context[R][G * VW] at column j, over one tile's rows of V: weights[R][ATTEND_BLOCK]. */
INLINE void value_tile(const int R, const int G, enum dtype type, float *context, size_t d,
                       const float *shrink, const float *weights, const char *v, size_t stride,
                       size_t j)
{
    vf sum[VALUE_QUERIES][VALUE_GROUPS];
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            sum[i][g] = vf_load(context + (size_t)i * d + g * VW) * vf_set1(shrink[i]);
    for (size_t p = 0; p < ATTEND_TILE; p++) {
        vf row[VALUE_GROUPS];
        for (int g = 0; g < G; g++)
            row[g] = load_row(type, v + p * stride, j + (size_t)g * VW);
        for (int i = 0; i < R; i++) {
            const vf weight = vf_set1(weights[i * ATTEND_BLOCK + (int)p]);
            for (int g = 0; g < G; g++)
                sum[i][g] = vf_fma(weight, row[g], sum[i][g]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int g = 0; g < G; g++)
            vf_store(context + (size_t)i * d + g * VW, sum[i][g]);
}

/* context[R][d] of R queries over one tile. */
INLINE void value_rows(const int R, enum dtype type, float *context, size_t d, const float *shrink,
                       const float *weights, const char *v, size_t stride)
{
    size_t j = 0;
    for (; j + VALUE_GROUPS * VW <= d; j += VALUE_GROUPS * VW)
        value_tile(R, VALUE_GROUPS, type, context + j, d, shrink, weights, v, stride, j);
    for (; j + VW <= d; j += VW)
        value_tile(R, 1, type, context + j, d, shrink, weights, v, stride, j);
    for (; j < d; j++)
        for (int i = 0; i < R; i++) {
            float sum = context[(size_t)i * d + j] * shrink[i];
            for (size_t p = 0; p < ATTEND_TILE; p++)
                sum += weights[i * ATTEND_BLOCK + (int)p] * load_element(type, v + p * stride, j);
            context[(size_t)i * d + j] = sum;
        }
}

INLINE void values(enum dtype type, const struct attend *a, size_t block, size_t from, size_t to,
                   const float *weights, float *shrink)
{
    for (size_t t = 0; t < ATTEND_BLOCK / ATTEND_TILE; t++) {
        const size_t tile = block * (ATTEND_BLOCK / ATTEND_TILE) + t;
        if (tile >= a->tiles)
            break;
#define TILE                                                                                           \
    value_rows(R, type, a->context + (from + i) * a->d, a->d, shrink + i,                              \
               weights + i * ATTEND_BLOCK + t * ATTEND_TILE, a->v[tile], a->row_stride)
        FOR_TILES(to - from, VALUE_QUERIES, TILE);
#undef TILE
        for (size_t i = 0; i < to - from; i++)
            shrink[i] = 1; /* the next tile's sums go on */
    }
}

static void attend(const struct attend *a)
{
    float *turned = a->space, *scores = turned + ATTEND_BLOCK * a->d;
    float *shrink = scores + ATTEND_BLOCK * a->queries;
    const size_t blocks = div_up(a->tiles * ATTEND_TILE, ATTEND_BLOCK);
    for (size_t block = 0; block < blocks; block++) {
        const size_t first = block * ATTEND_BLOCK;
        /* Queries come in order of position: those before `from` see nothing of the block. */
        size_t from = 0;
        while (block < a->must && from < a->queries && a->seen[from] <= first)
            from++;
        if (from == a->queries)
            continue;
        turn_block(a, block, turned);
#define TILE score_tile(R, scores + (from + i) * ATTEND_BLOCK, a->q + (from + i) * a->d, turned, a->d)
        FOR_TILES(a->queries - from, SCORE_QUERIES, TILE);
#undef TILE
        for (size_t i = from; i < a->queries; i++)
            shrink[i] = weigh(a, i, first, scores + i * ATTEND_BLOCK);
        if (a->type == DTYPE_BF16)
            values(DTYPE_BF16, a, block, from, a->queries, scores + from * ATTEND_BLOCK, shrink + from);
        else
            values(DTYPE_F32, a, block, from, a->queries, scores + from * ATTEND_BLOCK, shrink + from);
    }
}
