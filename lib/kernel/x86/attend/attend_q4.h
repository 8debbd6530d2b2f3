/* Attention of one KV head over q4 entries, for kernel sets with registers of 512 bits and vpdpbusd: the
 * sums of attend_quant.h in the same order, so with the same bits, but entries are transposed in registers
 * while they are multiplied, and V as bytes with the low and the high bytes of p_i16. Scales of V are not
 * negative, so p_i16 is not, either. */
#ifndef BMC_ATTEND_Q4_H
#define BMC_ATTEND_Q4_H

#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/x86/attend/lanes.h"

enum {
    Q4_ROWS = 8,    /* queries multiplied at a time */
    Q4_WIDE = 4,    /* up to so many queries, both tiles of K, or 32 columns of V, at a time */
    Q4_QUERIES = 16 /* for more, one transposition as in attend_quant.h takes less time */
};

/* A block of positions: its tiles, of which a second one that does not exist repeats the first. */
struct q4_block {
    struct quant_block quant;
    struct tile k[BLOCK_TILES], v[BLOCK_TILES];
    bool scattered;                 /* both tiles have row tables */
    ptrdiff_t strided[ATTEND_TILE]; /* a row table of contiguous entries */
    int32_t *q_words;               /* [queries / Q4_ROWS][d / 4][Q4_ROWS]: the queries, transposed */
};

static void transpose_queries(const struct q4_block *b)
{
    const size_t words = b->quant.a->d / 4;
    for (size_t i = 0; i < b->quant.a->queries; i++) {
        int32_t *to = b->q_words + i / Q4_ROWS * words * Q4_ROWS + i % Q4_ROWS;
        const int8_t *q = query_q(b->quant.a, i);
        for (size_t w = 0; w < words; w++)
            memcpy(to + w * Q4_ROWS, q + w * 4, sizeof *to);
    }
}

/* ---- scales ---- */

/* Loads the scales and mins of a tile's entries, as load_kv_scales() does; mins are behind the scales. */
INLINE void q4_scales(const struct q4_block *b, bool scattered, float *scale, float *min,
                      struct tile entries)
{
    const size_t groups = b->quant.groups;
    const struct tile scales = {entries.base + b->quant.scale_at, entries.row};
    for (size_t w = 0; w < groups; w += 4) {
        vu x[4];
        load_words(false, scattered, scales, b->quant.a->row_stride, w, size_min(4, groups - w), x);
        for (size_t i = 0; i < 4 && w + i < groups; i++) {
            vf pair[2];
            f16_halves(x[i], pair);
            UNROLL(for (size_t e = 0; e < 2; e++))
            {
                const size_t at = 2 * (w + i) + e;
                if (at < groups)
                    vf_store(scale + at * ATTEND_BLOCK, pair[e]);
                else if (at < 2 * groups)
                    vf_store(min + (at - groups) * ATTEND_BLOCK, pair[e]);
            }
        }
    }
}

/* Prefetches part `part` of `parts` of a tile of the next block, unless it has a row table. Spread over the
 * products, these requests leave buffers to their loads, which a burst would not. */
INLINE void prefetch_part(const struct q4_block *b, struct tile tile, size_t part, size_t parts)
{
    const size_t bytes = b->quant.next.bytes / parts;
    for (size_t at = 0; !tile.row && at < bytes; at += 64)
        prefetch_near(tile.base + part * bytes + at);
}

/* Loads the block's scales; prefetches those tiles of the next block that have row tables. */
PHASE void q4_block_scales(const struct q4_block *b)
{
    const struct quant_block *to = &b->quant;
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        const size_t p = t * ATTEND_TILE;
        const struct tile k = to->next.k[t], v = to->next.v[t];
        for (size_t i = 0; k.row && i < ATTEND_TILE; i++)
            for (size_t at = 0; at < to->next.row_bytes; at += 64) {
                prefetch_near(k.base + k.row[i] + at);
                prefetch_near(v.base + v.row[i] + at);
            }
        if (b->scattered) {
            q4_scales(b, true, to->k_scale + p, to->k_min + p, b->k[t]);
            q4_scales(b, true, to->v_scale + p, to->v_min + p, b->v[t]);
        } else {
            q4_scales(b, false, to->k_scale + p, to->k_min + p, b->k[t]);
            q4_scales(b, false, to->v_scale + p, to->v_min + p, b->v[t]);
        }
    }
}

/* ---- scores ---- */

/* Computes the scores of R queries, from `query` on, at the positions of T tiles, from tile t on. */
INLINE void q4_scores(const int R, const int T, bool scattered, const struct q4_block *b, size_t t,
                      size_t query)
{
    const struct attend *a = b->quant.a;
    const int32_t *q = b->q_words + query / Q4_ROWS * (a->d / 4) * Q4_ROWS + query % Q4_ROWS;
    float *to = b->quant.softmax.scores + query * BLOCK + t * ATTEND_TILE;
    vf score[Q4_ROWS][BLOCK_TILES];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < T; g++))
    score[i][g] = (vf){0};
    ROLLED(for (size_t n = 0; n < b->quant.groups; n++, q += GROUP_WORDS * Q4_ROWS))
    {
        vi sum[Q4_ROWS][BLOCK_TILES];
        vu x[BLOCK_TILES][4];
        UNROLL(for (int i = 0; i < R; i++))
        UNROLL(for (int g = 0; g < T; g++))
        sum[i][g] = (vi){0};
        UNROLL(for (int g = 0; g < T; g++))
        {
            load_words(true, scattered, b->k[t + (size_t)g], a->row_stride, n * 4, 4, x[g]);
            if (query == 0)
                prefetch_part(b, b->quant.next.k[t + (size_t)g], n, b->quant.groups);
        }
        UNROLL(for (int w = 0; w < 4; w++))
        UNROLL(for (int g = 0; g < T; g++))
        {
            const vu low = x[g][w] & 0x0f0f0f0f, high = x[g][w] >> 4 & 0x0f0f0f0f;
            UNROLL(for (int i = 0; i < R; i++))
            {
                sum[i][g] = vi_dot4(sum[i][g], low, load_word(q + w * Q4_ROWS + i));
                sum[i][g] = vi_dot4(sum[i][g], high, load_word(q + (w + 4) * Q4_ROWS + i));
            }
        }
        const float *scale = b->quant.k_scale + n * BLOCK + t * ATTEND_TILE;
        const float *min = b->quant.k_min + n * BLOCK + t * ATTEND_TILE;
        UNROLL(for (int i = 0; i < R; i++))
        {
            const int32_t *halves = query_sums(a, query + (size_t)i) + 2 * n;
            const vf q_sum = vf_set1((float)(halves[0] + halves[1]));
            UNROLL(for (int g = 0; g < T; g++))
            {
                score[i][g] = vf_fma(vf_load(scale + g * VW), vf_of(sum[i][g]), score[i][g]);
                score[i][g] = vf_fma(vf_load(min + g * VW), q_sum, score[i][g]);
            }
        }
    }
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < T; g++))
    vf_store(to + i * BLOCK + g * VW, score[i][g] * vf_set1(query_scale(a, query + (size_t)i)));
}

INLINE void q4_score_block(const int R, bool scattered, const struct q4_block *b, size_t query,
                           size_t group)
{
    (void)group;
    if (R <= Q4_WIDE) {
        q4_scores(R, 2, scattered, b, 0, query);
        return;
    }
    for (size_t t = 0; t < BLOCK_TILES; t++)
        q4_scores(R, 1, scattered, b, t, query);
}

/* ---- values ---- */

/* Where store_p_bytes() takes lane l from: p_i16 of positions l and l + 16, then their bytes. */
#define P_WORD(l, s)  ((l) / 4 * 2 + (l) % 4 / 2 + (l) % 2 * 8)
#define P_BYTES(l, s) (((l) % 2 ? 0x0e0a0c08u : 0x06020400u) + ((l) % 4 / 2 ? 0x01010101u : 0))

/* Stores the bytes of p_i16 of a block's positions, p[2], given with any bits above. For n = 0, 2, 4, 6:
 * the low bytes of positions n, n + 8, n + 16, n + 24, the same of n + 1, then the high bytes of both. */
INLINE void store_p_bytes(int16_t *to, const vu p[BLOCK_VECS])
{
    const vu word = {ALL_LANES(P_WORD, 0)}, byte = {ALL_LANES(P_BYTES, 0)};
    const vu pairs = (p[0] & 0xffff) | p[1] << 16;
    const __m512i words = _mm512_permutexvar_epi32((__m512i)word, (__m512i)pairs);
    _mm512_storeu_si512(to, _mm512_shuffle_epi8(words, (__m512i)byte));
}

/* quantize_probs(), but stores bytes in p_i16. */
PHASE void q4_probs(const struct quant_block *b, size_t block, struct kv_range queries, size_t group)
{
    const float *scale = b->v_scale + group * BLOCK, *min = b->v_min + group * BLOCK;
    const vf centre[BLOCK_VECS] = {centre_value(scale, min, 0), centre_value(scale, min, 1)};
    struct kv_range before = {SIZE_MAX, 0};
    float scale_of_range = 0;
    for (size_t i = queries.begin; i < queries.end; i++) {
        const struct kv_range range = kv_range_of(b->a, i, block * BLOCK);
        const float *prob = b->softmax.scores + i * BLOCK, block_scale = b->softmax.block_scale[i];
        vf min_sum = {0};
        vu rounded[BLOCK_VECS];
        /* most queries have the range of the query before */
        if (range.begin != before.begin || range.end != before.end)
            scale_of_range = set_p_factor(b, scale, range);
        before = range;
        UNROLL(for (int g = 0; g < BLOCK_VECS; g++))
        {
            const vf p = vf_load(prob + g * VW);
            rounded[g] = (vu)vf_fma(p, vf_load(b->p_factor + g * VW), vf_set1(MAGIC_FLOAT));
            min_sum = vf_fma(p, centre[g], min_sum);
        }
        store_p_bytes(b->p_i16 + i * BLOCK, rounded);
        b->p_scale[i] = scale_of_range * block_scale;
        b->p_min[i] = vf_sum(min_sum) * block_scale;
    }
}

/* Where column_words() takes lane l from: a word of 4 bytes of an entry, then a byte of each entry. */
#define COLUMN_WORD(l, s) ((l) % 4 * 4 + (l) / 4)
#define WORD_BYTES(l, s)  (0x0c080400u + 0x01010101u * ((l) % 4))

/* Adds V to columns [32 * group + 16 * half, + 16 * H) of the context of R queries, from `query` on. */
INLINE void q4_values(const int R, const int H, bool scattered, const struct q4_block *b, size_t query,
                      size_t group, size_t half)
{
    const vu word = {ALL_LANES(COLUMN_WORD, 0)}, byte = {ALL_LANES(WORD_BYTES, 0)};
    const size_t stride = b->quant.a->row_stride, d_v = b->quant.a->d_v;
    const int32_t *p = (const void *)(b->quant.p_i16 + query * BLOCK);
    vi sum[Q4_ROWS][2][2];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int h = 0; h < 2 * H; h++))
    sum[i][h / 2][h % 2] = (vi){0};
    ROLLED(for (size_t n = 0; n < ATTEND_TILE / 2; n++))
    {
        const char *at[4];
        UNROLL(for (size_t l = 0; l < 4; l++))
        at[l] = row_of(b->v[l / 2], scattered, stride, n + l % 2 * 8) + group * QK_HALF;
        if (query == 0 && half == 0)
            prefetch_part(b, b->quant.next.v[n / 4], group * 4 + n % 4, 4 * b->quant.v_groups);
        const __m512i columns =
            _mm512_permutexvar_epi32((__m512i)word, (__m512i)load_lanes(true, at, 4));
        const vu x = (vu)_mm512_shuffle_epi8(columns, (__m512i)byte) >> (4 * half);
        const int32_t *from = p + n / 2 * 4 + n % 2;
        UNROLL(for (int h = 0; h < H; h++))
        {
            const vb q = (vb)(x >> (4 * h) & 0x0f0f0f0f) - (uint8_t)8;
            UNROLL(for (int i = 0; i < R; i++))
            UNROLL(for (int s = 0; s < 2; s++))
            sum[i][h][s] = vi_dot4(sum[i][h][s], (vu)load_word(from + i * (BLOCK / 2) + 2 * s), (vi)q);
        }
    }
    const float *p_scale = b->quant.p_scale + query, *p_min = b->quant.p_min + query;
    const float *acc_scale = b->quant.softmax.acc_scale + query;
    float *context = b->quant.a->context + query * d_v + group * QK_GROUP + half * VW;
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int h = 0; h < H; h++))
    {
        float *to = context + (size_t)i * d_v + h * VW;
        const vf before = vf_fma(vf_load(to), vf_set1(acc_scale[i]), vf_set1(p_min[i]));
        vf_store(to, vf_fma(vf_of((sum[i][h][1] << 8) + sum[i][h][0]), vf_set1(p_scale[i]), before));
    }
}

INLINE void q4_value_group(const int R, bool scattered, const struct q4_block *b, size_t query,
                           size_t group)
{
    if (R <= Q4_WIDE) {
        q4_values(R, 2, scattered, b, query, group, 0);
        return;
    }
    q4_values(R, 1, scattered, b, query, group, 0);
    q4_values(R, 1, scattered, b, query, group, 1);
}

/* ---- functions for all numbers of queries ---- */

typedef void q4_function(const struct q4_block *b, size_t query, size_t group);
#define Q4_FUNCTION(NAME, R)                                                                           \
    PHASE void NAME##_##R(const struct q4_block *b, size_t query, size_t group)                        \
    {                                                                                                  \
        if (b->scattered)                                                                              \
            NAME(R, true, b, query, group);                                                            \
        else                                                                                           \
            NAME(R, false, b, query, group);                                                           \
    }
#define Q4_TABLE(NAME)                                                                                 \
    Q4_FUNCTION(NAME, 1)                                                                               \
    Q4_FUNCTION(NAME, 2)                                                                               \
    Q4_FUNCTION(NAME, 3)                                                                               \
    Q4_FUNCTION(NAME, 4)                                                                               \
    Q4_FUNCTION(NAME, 5)                                                                               \
    Q4_FUNCTION(NAME, 6)                                                                               \
    Q4_FUNCTION(NAME, 7)                                                                               \
    Q4_FUNCTION(NAME, 8)                                                                               \
    static q4_function *const NAME##s[Q4_ROWS] = {NAME##_1, NAME##_2, NAME##_3, NAME##_4,              \
                                                  NAME##_5, NAME##_6, NAME##_7, NAME##_8};
Q4_TABLE(q4_score_block)
Q4_TABLE(q4_value_group)

static void for_queries(q4_function *const function[Q4_ROWS], const struct q4_block *b,
                        struct kv_range queries, size_t group)
{
    for (size_t i = queries.begin, n; i < queries.end; i += n) {
        n = size_min(Q4_ROWS - i % Q4_ROWS, queries.end - i);
        function[n - 1](b, i, group);
    }
}

/* ---- blocks ---- */

static void find_q4_block(struct q4_block *b, size_t block)
{
    b->scattered = find_tiles(b->quant.a, block, b->strided, b->k, b->v);
    b->quant.next = find_next(b->quant.a, block);
}

/* True if attend_q4() can compute this and is faster. */
static bool is_q4(const struct attend *a)
{
    return a->type == DTYPE_Q4_1 && a->queries <= Q4_QUERIES && a->d % QK_GROUP == 0 &&
           a->d_v % QK_GROUP == 0 &&
           quant_row_scales_at(DTYPE_Q4_1, a->d, SCALE_MIN) ==
               quant_row_scales_at(DTYPE_Q4_1, a->d, SCALE_MAIN) + a->d / QK_GROUP * sizeof(f16);
}

static void attend_q4(const struct attend *a)
{
    struct q4_block b = {.quant = open_block(a)};
    const struct quant_block *quant = &b.quant;
    b.q_words = (int32_t *)quant->k_t; /* 8 * d words, not used here */
    for (size_t i = 0; i < ATTEND_TILE; i++)
        b.strided[i] = (ptrdiff_t)(i * a->row_stride);
    transpose_queries(&b);
    for (size_t block = 0; block < div_up(a->tiles, BLOCK_TILES); block++) {
        const struct kv_range queries = active_queries(a, block);
        if (queries.begin == queries.end)
            continue;
        find_q4_block(&b, block);
        q4_block_scales(&b);
        for_queries(q4_score_blocks, &b, queries, 0);
        block_maxima(a, &quant->softmax, block, queries);
        exponentiate_block(quant, queries);
        for (size_t g = 0; g < quant->v_groups; g++) {
            q4_probs(quant, block, queries, g);
            for_queries(q4_value_groups, &b, queries, g);
        }
    }
    end_softmax(a, &quant->softmax);
}

#endif
