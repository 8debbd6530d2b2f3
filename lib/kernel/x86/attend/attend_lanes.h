/* Attention in registers of 512 bits without transposed copies of K or V. 16 bytes of each of 4 KV entries are
 * loaded into the lanes of a register, and what is left of a transposition stays within lanes (K) or is a shuffle of
 * words and one of bytes (V of quantised types). Lanes are positions in scores and columns in contexts, so nothing is
 * added across lanes. This file has what the kernels attend_direct.h, attend_q4.h and attend_q8.h share. */
#pragma once

#include "kernel/x86/vec_512.h"
#include "kernel/template/attend_block.h"
#include "kernel/template/quant_shuffles.h"

enum {
    LANES_QUERIES = 8, /* queries that are multiplied at a time */
    LANES_WIDE = 4     /* up to so many queries, K of two tiles, or twice the columns of V, at a time */
};

/* ---- loads ---- */

/* Returns x, about which the compiler then knows nothing: so it does not keep multiples of a stride in
 * more registers than there are. */
INLINE size_t hide(size_t x)
{
    __asm__ volatile("" : "+r"(x));
    return x;
}

/* Converts the f16 halves of words to f32: the low ones, then the high ones. */
INLINE void f16_halves(vu x, vf half[2])
{
    static const uint16_t deal[32] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                      1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
    const __m512i halves = _mm512_permutexvar_epi16(_mm512_loadu_si512(deal), (__m512i)x);
    half[0] = (vf)_mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    half[1] = (vf)_mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
}

/* Returns lanes x[0] to x[3]. */
INLINE vu join_quarters(const __m128i x[4])
{
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(x[0]), x[1], 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(x[2]), x[3], 1);
    return (vu)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* Loads 4 words of each of 4 entries: lane l has those at at[l], of which only `some` exist unless
 * `whole`. */
INLINE vu load_lanes(bool whole, const char *const at[4], size_t some)
{
    __m128i x[4];
    UNROLL(for (int l = 0; l < 4; l++))
    x[l] = whole ? _mm_loadu_si128((const void *)at[l])
                 : _mm_maskz_loadu_epi32((__mmask8)((1u << some) - 1), at[l]);
    return join_quarters(x);
}

/* Transposes words [w, w + 4) of the entries of a tile, of which `some` exist unless `whole`: lane p of
 * x[i] has word w + i of entry p. */
INLINE void load_words(bool whole, bool scattered, struct tile tile, size_t row_stride, size_t w,
                       size_t some, vu x[4])
{
    const char *group = tile.base + w * 4;
    const size_t stride = hide(row_stride), stride_4 = hide(4 * stride);
    UNROLL(for (size_t i = 0; i < 4; i++))
    {
        const char *at[4];
        UNROLL(for (size_t l = 0; l < 4; l++))
        at[l] = scattered ? group + tile.row[4 * l + i] : group + l * stride_4;
        x[i] = load_lanes(whole, at, some);
        group += scattered ? 0 : stride;
    }
    transpose_lanes(x);
}

/* Prefetches `lines` cache lines into L2; into L1, they would be fewer at a time. */
INLINE void prefetch_lines(const char *at, size_t lines)
{
    UNROLL(for (size_t i = 0; i < lines; i++))
    __builtin_prefetch(at + i * 64, 0, 2);
}

/* DTYPE_KV8 stands for entries that are unpacked already: 16 bytes of 4 entries, as load_lanes() would load them, are
 * consecutive in b->unpacked. */
enum { UNPACKED_LANES = 64 };

/* Prefetches the next block's tiles t that have row tables, into L1 if `near`, else into L2. */
INLINE void prefetch_scattered(const struct block_state *b, bool near, size_t t)
{
    const struct tile k = b->next.k[t], v = b->next.v[t];
    for (size_t p = 0; k.row && p < ATTEND_TILE; p++)
        for (size_t at = 0; at < b->next.k_bytes / ATTEND_TILE; at += 64) {
            if (near) {
                prefetch_near(k.base + k.row[p] + at);
                prefetch_near(v.base + v.row[p] + at);
            } else {
                prefetch_lines(k.base + k.row[p] + at, 1);
                prefetch_lines(v.base + v.row[p] + at, 1);
            }
        }
}

/* Prefetches part `part` of `parts` of a tile of the next block, unless it has a row table: into L1 if `near`, else into
 * L2. Spread over the products, these requests leave buffers to their loads, which a burst would not. */
INLINE void prefetch_part(bool near, size_t tile_bytes, struct tile tile, size_t part, size_t parts)
{
    const size_t bytes = tile_bytes / parts;
    for (size_t at = 0; !tile.row && at < bytes; at += 64)
        if (near)
            prefetch_near(tile.base + part * bytes + at);
        else
            prefetch_lines(tile.base + part * bytes + at, 1);
}

/* ---- functions for all numbers of queries ---- */

typedef void lanes_function(const struct block_state *b, size_t query, size_t at);

/* Defines NAME_type[LANES_QUERIES]: element R - 1 calls NAME(R, type, scattered, b, query, at) for R queries, from
 * `query` on. */
#define LANES_FUNCTION(NAME, type, R)                                                                  \
    PHASE void NAME##_##type##_##R(const struct block_state *b, size_t query, size_t at)               \
    {                                                                                                  \
        if (b->scattered)                                                                              \
            NAME(R, DTYPE_##type, true, b, query, at);                                                 \
        else                                                                                           \
            NAME(R, DTYPE_##type, false, b, query, at);                                                \
    }
#define LANES_TABLE(NAME, type)                                                                        \
    LANES_FUNCTION(NAME, type, 1)                                                                      \
    LANES_FUNCTION(NAME, type, 2)                                                                      \
    LANES_FUNCTION(NAME, type, 3)                                                                      \
    LANES_FUNCTION(NAME, type, 4)                                                                      \
    LANES_FUNCTION(NAME, type, 5)                                                                      \
    LANES_FUNCTION(NAME, type, 6)                                                                      \
    LANES_FUNCTION(NAME, type, 7)                                                                      \
    LANES_FUNCTION(NAME, type, 8)                                                                      \
    static lanes_function *const NAME##_##type[LANES_QUERIES] = {                                      \
        NAME##_##type##_1, NAME##_##type##_2, NAME##_##type##_3, NAME##_##type##_4,                    \
        NAME##_##type##_5, NAME##_##type##_6, NAME##_##type##_7, NAME##_##type##_8};

/* Calls a function for all queries of the block. */
static void for_queries(lanes_function *const function[LANES_QUERIES], const struct block_state *b,
                        size_t at)
{
    for (size_t i = b->queries.begin, n; i < b->queries.end; i += n) {
        n = size_min(LANES_QUERIES - i % LANES_QUERIES, b->queries.end - i);
        function[n - 1](b, i, at);
    }
}

/* ---- scores ---- */

/* The words of the group of LANES_QUERIES queries that `query` belongs to. */
INLINE int32_t *group_words(const struct block_state *b, size_t query)
{
    return b->q_words + query / LANES_QUERIES * b->q_words_each;
}

/* The low and high half of a register. */
struct two_groups {
    __m256 low, high;
};
INLINE struct two_groups split_groups(vf x)
{
    return (struct two_groups){_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1)};
}

/* Stores the int8 queries transposed, as b->q_words. */
INLINE void transpose_queries(struct block_state *b)
{
    const size_t n = b->a->queries, words = div_up(b->a->d, 4);
    b->q_words_each = LANES_QUERIES * round_up(words, VW);
    for (size_t i = 0; i < n; i += VW)
        for (size_t w = 0; w < words; w += VW) {
            int32_t *to = group_words(b, i) + w * LANES_QUERIES;
            vf x[VW];
            UNROLL(for (size_t r = 0; r < VW; r++))
            {
                const int8_t *q = query_q(b->a, size_min(i + r, n - 1)) + w * 4;
                x[r] = (vf)(words - w >= VW ? vu_load(q) : vu_load_some(q, words - w));
            }
            vf_transpose(x);
            UNROLL(for (size_t r = 0; r < VW; r++))
            {
                const struct two_groups two = split_groups(x[r]);
                memcpy(to + r * LANES_QUERIES, &two.low, sizeof two.low);
                if (n - i > LANES_QUERIES)
                    memcpy(to + (b->q_words_each + r * LANES_QUERIES), &two.high, sizeof two.high);
            }
        }
}

/* Converts a word of VW entries to f32: one element, or two of 16 bits. */
INLINE void word_elements(enum dtype type, vu x, vf element[2])
{
    if (type == DTYPE_F16) {
        f16_halves(x, element);
    } else if (type == DTYPE_BF16) {
        element[0] = (vf)(x << 16);
        element[1] = (vf)(x & 0xffff0000u);
    } else {
        element[0] = (vf)x;
    }
}

/* Sums of up to 8 queries in up to two tiles: f32, or int32_t in the same registers. */
typedef vf lanes_sums[LANES_QUERIES][2];

/* load_words() of 4 words of unpacked entries. */
INLINE void load_unpacked(const char *at, vu x[4])
{
    UNROLL(for (size_t i = 0; i < 4; i++))
    x[i] = vu_load(at + i * UNPACKED_LANES);
    transpose_lanes(x);
}

/* Adds the products of R queries, q_stride floats per element, and 4 words of the K of T tiles. */
INLINE void add_elements(const int R, const int T, enum dtype type, lanes_sums sum, vu x[2][4],
                         const float *q, size_t q_stride)
{
    const int each = type == DTYPE_F32 ? 1 : 2; /* elements of a word */
    UNROLL(for (int j = 0; j < 4; j++))
    {
        vf k[2][2];
        UNROLL(for (int g = 0; g < T; g++))
        word_elements(type, x[g][j], k[g]);
        UNROLL(for (int e = 0; e < each; e++))
        {
            UNROLL(for (int i = 0; i < R; i++))
            UNROLL(for (int g = 0; g < T; g++))
            sum[i][g] = vf_fma(vf_set1(q[i]), k[g][e], sum[i][g]);
            q += q_stride;
        }
    }
}

/* The same for `words` words of bytes, in int32_t; q: [words][LANES_QUERIES]. */
INLINE void add_bytes(const int R, lanes_sums sum, const vu x[4], const int32_t *q, size_t words)
{
    UNROLL(for (size_t j = 0; j < words; j++))
    UNROLL(for (int i = 0; i < R; i++))
    sum[i][0] = (vf)vi_dot4((vi)sum[i][0], x[j], load_word(q + j * LANES_QUERIES + (size_t)i));
}

/* The same for the 4 words of group n of DTYPE_Q4_1, with its scales and mins, which begin at tile t. */
INLINE void add_nibbles(const int R, const int T, lanes_sums score, vu x[2][4], const int32_t *q,
                        const struct block_state *b, size_t t, size_t query, size_t n)
{
    const float *scale = b->k_scale + n * BLOCK + t * ATTEND_TILE;
    const float *min = b->k_min + n * BLOCK + t * ATTEND_TILE;
    vi sum[LANES_QUERIES][2];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < T; g++))
    sum[i][g] = (vi){0};
    UNROLL(for (int w = 0; w < 4; w++))
    UNROLL(for (int g = 0; g < T; g++))
    {
        const vu low = x[g][w] & 0x0f0f0f0f, high = x[g][w] >> 4 & 0x0f0f0f0f;
        UNROLL(for (int i = 0; i < R; i++))
        {
            sum[i][g] = vi_dot4(sum[i][g], low, load_word(q + w * LANES_QUERIES + i));
            sum[i][g] = vi_dot4(sum[i][g], high, load_word(q + (w + 4) * LANES_QUERIES + i));
        }
    }
    UNROLL(for (int i = 0; i < R; i++))
    {
        const int32_t *halves = query_sums(b->a, query + (size_t)i) + 2 * n;
        const vf q_sum = vf_set1((float)(halves[0] + halves[1]));
        UNROLL(for (int g = 0; g < T; g++))
        {
            score[i][g] = vf_fma(vf_load(scale + g * VW), vf_of(sum[i][g]), score[i][g]);
            score[i][g] = vf_fma(vf_load(min + g * VW), q_sum, score[i][g]);
        }
    }
}

/* Computes the scores of R queries, from `query` on, at the positions of T tiles, from tile t on. */
INLINE void lanes_scores(const int R, const int T, enum dtype type, bool scattered,
                         const struct block_state *b, size_t query, size_t t)
{
    const struct attend *a = b->a;
    const size_t words = b->words, stride = a->k_stride;
    const bool quantized = dtype_is_quantized(type);
    const float *q = quantized ? NULL : a->q + query;
    const int32_t *q_words = quantized ? group_words(b, query) + query % LANES_QUERIES : NULL;
    float *to = b->softmax.scores + query * BLOCK + t * ATTEND_TILE;
    const bool bytes = type == DTYPE_Q8_CHANNEL || type == DTYPE_KV8;
    const char *unpacked = b->unpacked + t * ATTEND_TILE * round_up(a->d, KV_BLOCK);
    const char *ahead[2];
    lanes_sums sum;
    UNROLL(for (int g = 0; g < T; g++))
    ahead[g] = type != DTYPE_KV8 && query == 0 && !b->next.k[t + (size_t)g].row
                   ? b->next.k[t + (size_t)g].base
                   : NULL;
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < T; g++))
    sum[i][g] = bytes ? (vf)vi_set1(-b->zero[query + (size_t)i]) : (vf){0};
    size_t w = 0;
    ROLLED(for (; w + 4 <= words; w += 4))
    {
        vu x[2][4];
        UNROLL(for (int g = 0; g < T; g++))
        {
            if (type == DTYPE_KV8)
                load_unpacked(unpacked + w * 4 * ATTEND_TILE, x[g]);
            else
                load_words(true, scattered, b->k[t + (size_t)g], stride, w, 4, x[g]);
            if (ahead[g] && type == DTYPE_Q4_1)
                prefetch_part(true, b->next.k_bytes, b->next.k[t + (size_t)g], w / 4, b->groups);
            else if (ahead[g])
                prefetch_lines(ahead[g] + w * 64, 4);
        }
        if (bytes) {
            add_bytes(R, sum, x[0], q_words, 4);
            q_words += 4 * LANES_QUERIES;
        } else if (type == DTYPE_Q4_1) {
            add_nibbles(R, T, sum, x, q_words, b, t, query, w / 4);
            q_words += GROUP_WORDS * LANES_QUERIES;
        } else {
            add_elements(R, T, type, sum, x, q, a->q_stride);
            q += (type == DTYPE_F32 ? 4 : 8) * a->q_stride;
        }
    }
    if (bytes && w < words) {
        vu x[4];
        if (type == DTYPE_KV8)
            load_unpacked(unpacked + w * 4 * ATTEND_TILE, x);
        else
            load_words(false, scattered, b->k[t], stride, w, words - w, x);
        for (size_t j = 0; w < words; j++, w++, q_words += LANES_QUERIES)
            add_bytes(R, sum, x + j, q_words, 1);
    }
    if (type == DTYPE_Q8_CHANNEL && ahead[0]) /* the scales */
        prefetch_lines(ahead[0] + w * 64, 2);
    const vf k_scale = bytes ? canonical_nan(vf_load(b->k_scale + t * ATTEND_TILE)) : (vf){0};
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int g = 0; g < T; g++))
    {
        vf score = sum[i][g];
        if (bytes)
            score = vf_of((vi)score) * (vf_set1(b->q_scale[query + (size_t)i]) * k_scale);
        else if (type == DTYPE_Q4_1)
            score *= vf_set1(b->q_scale[query + (size_t)i]);
        vf_store(to + i * BLOCK + g * VW, score);
    }
}

/* lanes_scores() for all tiles of a block: of few queries for two tiles at a time. */
INLINE void lanes_score_block(const int R, enum dtype type, bool scattered, const struct block_state *b,
                              size_t query, size_t unused)
{
    (void)unused;
    const int T = R <= LANES_WIDE ? 2 : 1;
    for (size_t t = 0; t < BLOCK_TILES; t += (size_t)T)
        lanes_scores(R, T, type, scattered, b, query, t);
}

/* ---- softmax ---- */

/* True if scores are used as they are: without soft cap and ALiBi, at all positions of the block. */
static inline bool attends_wholly(const struct block_state *b)
{
    bool all = b->a->softcap <= 0 && !b->a->slope;
    for (size_t i = b->queries.begin; all && i < b->queries.end; i++) {
        const struct kv_range range = kv_range_of(b->a, i, b->first);
        all = range.begin == 0 && range.end == BLOCK;
    }
    return all;
}

INLINE void store_lanes(float *to, size_t n, vf x)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)x);
}

/* Lanes l with (l & s) == 0: the larger one of lanes l and l + s of a; others: of l - s and l of b. */
#define LARGER(a, b, s)                                                                                \
    vf_max(__builtin_shufflevector(a, b, ALL_LANES(LOW, s)),                                           \
           __builtin_shufflevector(a, b, ALL_LANES(HIGH, s)))

/* Finds the largest scores in the block of the 8 queries from `query` on, of which n exist: in the first 8
 * lanes. */
INLINE vf largest_scores(const struct block_state *b, size_t query, size_t n)
{
    vf x[LANES_QUERIES];
    UNROLL(for (size_t i = 0; i < LANES_QUERIES; i++))
    {
        const float *score = b->softmax.scores + (query + size_min(i, n - 1)) * BLOCK;
        if (i >= LANES_QUERIES / 2 && n <= LANES_QUERIES / 2) {
            x[i] = x[0];
            continue;
        }
        x[i] = vf_max(vf_load(score), vf_load(score + VW));
        if (BLOCK_VECS == 4)
            x[i] = vf_max(x[i], vf_max(vf_load(score + 2 * VW), vf_load(score + 3 * VW)));
        x[i] = vf_max(x[i], FLIPPED(x[i], 8));
    }
    UNROLL(for (int i = 0; i < 4; i++))
    x[i] = LARGER(x[i], x[i + 4], 4);
    UNROLL(for (int i = 0; i < 2; i++))
    x[i] = LARGER(x[i], x[i + 2], 2);
    return LARGER(x[0], x[1], 1);
}

/* Calls FUNCTION(b, query, n) for groups of n <= 8 queries of the block. */
#define FOR_QUERY_GROUPS(b, FUNCTION)                                                                  \
    for (size_t i = (b)->queries.begin, n_; i < (b)->queries.end; i += n_) {                           \
        n_ = size_min(LANES_QUERIES - i % LANES_QUERIES, (b)->queries.end - i);                        \
        FUNCTION(b, i, n_);                                                                            \
    }

/* ---- values of quantised types ---- */

/* V is multiplied as bytes with the low and the high bytes of 15-bit probabilities p: as many products as for 16-bit
 * integers, but V needs no conversion. The 4 bytes of a word are of position n of tiles 0, 2, 1 and 3: the low bytes
 * are word n, the high ones word n + ATTEND_TILE. */

/* Stores the bytes of p of a block's positions, given with any bits above. */
INLINE void store_p_bytes(void *to, const vu p[BLOCK_VECS])
{
    vu_any *out = to;
    const vu even = (p[0] & 0xffff) | p[1] << 16;
    const vu odd = (p[BLOCK_VECS - 2] & 0xffff) | p[BLOCK_VECS - 1] << 16;
    out[0] = (even & 0x00ff00ff) | (odd << 8 & 0xff00ff00);
    out[1] = (even >> 8 & 0x00ff00ff) | (odd & 0xff00ff00);
}

/* Where zip_lanes() takes lane l from: a word of 4 bytes of an entry, then a byte of each entry. */
#define COLUMN_WORD(l, s) ((l) % 4 * 4 + (l) / 4)
#define WORD_BYTES(l, s)  (0x0c080400u + 0x01010101u * ((l) % 4))

/* Interleaves the bytes of 4 entries, of which lane l of x has 16: afterwards lane j has their bytes j. */
INLINE vu zip_lanes(vu x)
{
    const vu word = {ALL_LANES(COLUMN_WORD, 0)}, byte = {ALL_LANES(WORD_BYTES, 0)};
    return (vu)_mm512_shuffle_epi8(_mm512_permutexvar_epi32((__m512i)word, (__m512i)x), (__m512i)byte);
}

/* Bytes `at` of the V entries at position n of each tile of the block, `some` words of each unless `whole`. */
INLINE vu load_quarters(bool whole, bool scattered, const struct block_state *b, size_t n, size_t at,
                        size_t some)
{
    const size_t stride = b->a->v_stride;
    const char *from[4];
    UNROLL(for (size_t l = 0; l < 4; l++))
    from[l] = at + row_of(b->v[l % 2 * 2 + l / 2], scattered, stride, n);
    return load_lanes(whole, from, some);
}

/* Prefetches what is due at position n of the values of columns [column, column + VW): K and V of the next block in
 * equal shares. */
INLINE void prefetch_values(enum dtype type, const struct block_state *b, const char *ahead,
                            size_t column, size_t n)
{
    if (type == DTYPE_Q4_1)
        prefetch_part(true, b->next.v_bytes, b->next.v[n / 4], column / QK_GROUP * 4 + n % 4,
                      4 * b->v_groups);
    else
        prefetch_lines(ahead + n * 64, 1);
}

/* DTYPE_Q8_CHANNEL: where prefetch_values() begins for these columns; NULL if that has a row table. */
INLINE const char *values_ahead(const struct block_state *b, size_t column)
{
    const size_t d = b->a->d, t = column * BLOCK_TILES / d;
    return b->next.v[t].row ? NULL : b->next.v[t].base + (column * BLOCK_TILES - t * d) / 64 * 1024;
}

/* Adds V to H registers of columns, from `column` on, of the context of R queries, from `query` on, or only to
 * `some` columns if not `whole`. */
INLINE void byte_values(const int R, const int H, enum dtype type, bool whole, bool scattered,
                        const struct block_state *b, size_t query, size_t column, size_t some)
{
    const bool q4 = type == DTYPE_Q4_1, first = query == (q4 ? 0 : b->queries.begin);
    const uint32_t *p = (const uint32_t *)b->p + query * (BLOCK / 2);
    const size_t at = q4 ? column / QK_GROUP * QK_HALF : column, shift = column % QK_GROUP / 4;
    const char *ahead = type == DTYPE_KV8   ? NULL
                        : !q4               ? values_ahead(b, column)
                        : column % QK_GROUP ? NULL
                                            : b->next.v[0].base;
    const char *unpacked = b->unpacked + column * BLOCK;
    vi sum[LANES_QUERIES][2][2];
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int h = 0; h < 2 * H; h++))
    sum[i][h / 2][h % 2] = (vi){0};
    ahead = first ? ahead : NULL;
    if (!q4 && ahead)
        prefetch_lines(ahead + ATTEND_TILE * 64, 2);
    ROLLED(for (size_t n = 0; n < ATTEND_TILE; n++))
    {
        const vu x = type == DTYPE_KV8 ? vu_load(unpacked + n * UNPACKED_LANES)
                                       : load_quarters(whole, scattered, b, n, at, div_up(some, 4));
        if (ahead)
            prefetch_values(type, b, ahead, column, n);
        const vu bytes = q4 ? zip_lanes(x) >> (uint32_t)shift : zip_lanes(x ^ 0x80808080u);
        UNROLL(for (int h = 0; h < H; h++))
        {
            const vu v = q4 ? (vu)((vb)(bytes >> (4 * h) & 0x0f0f0f0f) - (uint8_t)8) : bytes;
            UNROLL(for (int i = 0; i < R; i++))
            UNROLL(for (size_t s = 0; s < 2; s++))
            sum[i][h][s] =
                vi_dot4(sum[i][h][s], (vu)load_word(p + i * (BLOCK / 2) + n + s * ATTEND_TILE), (vi)v);
        }
    }
    const float *p_scale = b->p_scale + query, *acc_scale = b->softmax.acc_scale + query;
    float *context = b->a->context + query * b->a->d_v + column;
    UNROLL(for (int i = 0; i < R; i++))
    UNROLL(for (int h = 0; h < H; h++))
    {
        float *to = context + (size_t)i * b->a->d_v + h * VW;
        const vf dot = vf_of((sum[i][h][1] << 8) + sum[i][h][0]), scale = vf_set1(acc_scale[i]);
        const vf before = whole ? vf_load(to) : (vf)vu_load_some(to, some);
        const vf rest = vf_fma(before, scale, vf_set1(q4 ? b->p_min[query + (size_t)i] : 0));
        const vf now = vf_fma(dot, vf_set1(p_scale[i]), rest);
        if (whole)
            vf_store(to, now);
        else
            memcpy(to, &now, some * sizeof *to);
    }
}
