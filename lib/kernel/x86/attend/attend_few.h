/* Attention of few queries over entries of 4, 5, 6 and 8 bits in registers of 512 bits, for kernel sets with an
 * instruction for vi_dot4(): the sums of attend_quant.h. A register has ROW_VALUES values of one entry, which entries
 * of 4 to 6 bits are unpacked to. K is transposed within lanes, so that lane l of a sum is of values [16 l, 16 l + 16),
 * and lanes are added at the end; V is interleaved in ROW_VALUES columns at a time. For more queries these are too
 * many sums, and too much addition of lanes. */
#pragma once

#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/x86/attend/attend_lanes.h"

enum { ROW_VALUES = 4 * VW, FEW_QUERIES = 3 };

/* True if so many queries, and entries of d values, are multiplied here. */
static inline bool few_columns(size_t queries, size_t d)
{
    return queries <= FEW_QUERIES && d % ROW_VALUES == 0;
}

/* ---- entries ---- */

/* Loads 32 bytes at `low` and at `high`. */
INLINE __m512i load_halves(const void *low, const void *high)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(low)), _mm256_loadu_si256(high),
                              1);
}

/* Adds the products of the high bits of two blocks, at `high`, to x; m: of each (unpack_entries.h). */
INLINE __m512i add_high(unsigned bits, __m512i x, const char *high, const struct kv_unpack *const m[2])
{
    __m512i h;
    if (bits == 5) {
        const __m512i block = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
        const __m512i shift = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
        const __m128i both = _mm_loadl_epi64((const void *)high);
        h = _mm512_permutexvar_epi32(block, _mm512_castsi128_si512(both));
        h = _mm512_and_si512(_mm512_srlv_epi32(h, shift), _mm512_set1_epi8(1));
    } else {
        const __m512i block = _mm512_setr_epi64(0, 0, 0, 0, 1, 1, 1, 1);
        const __m512i shift = _mm512_setr_epi64(0, 2, 4, 6, 0, 2, 4, 6);
        const __m128i both = _mm_loadu_si128((const void *)high);
        h = _mm512_permutexvar_epi64(block, _mm512_castsi128_si512(both));
        h = _mm512_and_si512(_mm512_srlv_epi64(h, shift), _mm512_set1_epi8(3));
    }
    return _mm512_add_epi8(x, _mm512_mullo_epi16(h, load_halves(m[0]->high, m[1]->high)));
}

/* Loads values [64 * chunk, 64 * chunk + 64) of an entry, as bytes with the zero point 128. */
INLINE vu load_row(enum dtype type, const char *entry, struct kv_entry_layout at, size_t chunk)
{
    const unsigned bits = kv_entry_bits(type);
    if (!bits)
        return vu_load(entry + chunk * ROW_VALUES);
    uint16_t both;
    memcpy(&both, entry + at.multiplier + 2 * chunk, sizeof both);
    const struct kv_unpack *m[2] = {&kv_unpack[bits - 4][both & 255], &kv_unpack[bits - 4][both >> 8]};
    const char *low = entry + chunk * (ROW_VALUES / 2);
    const __m512i packed =
        _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                 _mm512_castsi256_si512(_mm256_loadu_si256((const void *)low)));
    const __m512i q = _mm512_srlv_epi64(packed, _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4));
    const __m512i x = _mm512_shuffle_epi8(load_halves(m[0]->low, m[1]->low),
                                          _mm512_and_si512(q, _mm512_set1_epi8(15)));
    return (vu)(bits == 4 ? x : add_high(bits, x, entry + at.high + chunk * (bits - 4) * 8, m));
}

/* ---- scores ---- */

/* Stores the int8 queries, in b->k_words, in the order of few_dots(): of every ROW_VALUES values, for every word j of 4 and query a
 * register with word 4 l + j in lane l, 4 times. */
static void spread_queries(const struct block_state *b)
{
    uint32_t *to = b->k_words;
    for (size_t c = 0; c < b->a->d; c += ROW_VALUES)
        for (int j = 0; j < 4; j++)
            for (size_t i = 0; i < b->a->queries; i++, to += VW) {
                const vu q = vu_load(query_q(b->a, i) + c);
                const __m512i word =
                    _mm512_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
                _mm512_storeu_si512(to, _mm512_permutexvar_epi32(
                                            _mm512_add_epi32(word, _mm512_set1_epi32(j)), (__m512i)q));
            }
}

/* Adds the 4 lanes of x. */
INLINE __m128i add_lanes(vi x)
{
    const __m256i two =
        _mm256_add_epi32(_mm512_castsi512_si256((__m512i)x), _mm512_extracti64x4_epi64((__m512i)x, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
}

/* Computes the sums of products of R queries, all of the call, and entries [p, p + 4) of a tile. */
INLINE void few_dots(const int R, enum dtype type, bool scattered, const struct block_state *b,
                     struct tile tile, size_t p, __m128i dot[FEW_QUERIES])
{
    const struct kv_entry_layout at = kv_entry_layout(kv_entry_bits(type), b->a->d);
    const uint32_t *q = b->k_words;
    vi sum[FEW_QUERIES];
    UNROLL(for (int i = 0; i < R; i++))
    sum[i] = (vi){0};
    ROLLED(for (size_t c = 0; c < b->a->d / ROW_VALUES; c++))
    {
        vu x[4];
        UNROLL(for (size_t e = 0; e < 4; e++))
        x[e] = load_row(type, row_of(tile, scattered, b->a->k_stride, p + e), at, c);
        transpose_lanes(x);
        UNROLL(for (int j = 0; j < 4; j++))
        UNROLL(for (int i = 0; i < R; i++))
        sum[i] = vi_dot4(sum[i], x[j], (vi)vu_load(q + (j * R + i) * VW));
        q += 4 * R * VW;
    }
    UNROLL(for (int i = 0; i < R; i++))
    dot[i] = add_lanes(sum[i]);
}

/* Computes the scores of R queries at the positions of tile t. */
INLINE void few_scores(const int R, enum dtype type, bool scattered, const struct block_state *b,
                       size_t query, size_t t)
{
    __m128i part[4][FEW_QUERIES];
    (void)query;
    UNROLL(for (size_t i = 0; i < 4; i++))
    {
        prefetch_part(false, b->next.k_bytes, b->next.k[t], i, 4);
        few_dots(R, type, scattered, b, b->k[t], 4 * i, part[i]);
    }
    const vf k_scale = canonical_nan(vf_load(b->k_scale + t * ATTEND_TILE));
    UNROLL(for (int i = 0; i < R; i++))
    {
        const __m128i of_query[4] = {part[0][i], part[1][i], part[2][i], part[3][i]};
        const vi dot = (vi)join_quarters(of_query) - vi_set1(b->zero[i]);
        vf_store(b->softmax.scores + i * BLOCK + t * ATTEND_TILE,
                 vf_of(dot) * (vf_set1(b->q_scale[i]) * k_scale));
    }
}

/* ---- values ---- */

/* Transposes the 4 x 4 lanes of x[4]. */
INLINE void transpose_quarters(vi x[4])
{
    const __m512i a = _mm512_shuffle_i32x4((__m512i)x[0], (__m512i)x[1], 0x44);
    const __m512i b = _mm512_shuffle_i32x4((__m512i)x[0], (__m512i)x[1], 0xee);
    const __m512i c = _mm512_shuffle_i32x4((__m512i)x[2], (__m512i)x[3], 0x44);
    const __m512i d = _mm512_shuffle_i32x4((__m512i)x[2], (__m512i)x[3], 0xee);
    x[0] = (vi)_mm512_shuffle_i32x4(a, c, 0x88);
    x[1] = (vi)_mm512_shuffle_i32x4(a, c, 0xdd);
    x[2] = (vi)_mm512_shuffle_i32x4(b, d, 0x88);
    x[3] = (vi)_mm512_shuffle_i32x4(b, d, 0xdd);
}

/* Prefetches what is due at position n of few_values(). */
INLINE void prefetch_few(enum dtype type, const struct block_state *b, const char *const ahead[4],
                         size_t column, size_t n)
{
    if (kv_entry_bits(type)) {
        prefetch_part(false, b->next.v_bytes, b->next.v[n / 4], column / VW + n % 4, b->a->d_v / VW);
        return;
    }
    UNROLL(for (int g = 0; g < 4; g++))
    if (ahead[g])
        prefetch_lines(ahead[g] + n * 64, 1);
}

/* Adds V to ROW_VALUES columns, from `column` on, of the context of R queries, from `query` on. Lane l of x[g] has columns
 * 16 l + 4 g and on; sums are put in order at the end. */
INLINE void few_values(const int R, enum dtype type, bool scattered, const struct block_state *b,
                       size_t query, size_t column)
{
    const struct kv_entry_layout at = kv_entry_layout(kv_entry_bits(type), b->a->d);
    const uint32_t *p = (const uint32_t *)b->p + query * (BLOCK / 2);
    const char *ahead[4];
    vi sum[FEW_QUERIES][2][4];
    UNROLL(for (int g = 0; g < 4; g++))
    {
        ahead[g] = kv_entry_bits(type) ? NULL : values_ahead(b, column + (size_t)g * VW);
        if (ahead[g])
            prefetch_lines(ahead[g] + ATTEND_TILE * 64, 2);
        UNROLL(for (int i = 0; i < R; i++))
        sum[i][0][g] = sum[i][1][g] = (vi){0};
    }
    ROLLED(for (size_t n = 0; n < ATTEND_TILE; n++))
    {
        vu x[4];
        UNROLL(for (size_t t = 0; t < BLOCK_TILES; t++))
        x[t] = load_row(type, row_of(b->v[t], scattered, b->a->v_stride, n), at, column / ROW_VALUES) ^
               0x80808080u;
        zip_rows(x);
        prefetch_few(type, b, ahead, column, n);
        UNROLL(for (int i = 0; i < R; i++))
        UNROLL(for (size_t s = 0; s < 2; s++))
        {
            const vu words = (vu)load_word(p + i * (BLOCK / 2) + n + s * ATTEND_TILE);
            UNROLL(for (int g = 0; g < 4; g++))
            sum[i][s][g] = vi_dot4(sum[i][s][g], words, (vi)x[g]);
        }
    }
    float *to = b->a->context + query * b->a->d_v + column;
    UNROLL(for (size_t i = 0; i < (size_t)R; i++, to += b->a->d_v))
    {
        const vf acc_scale = vf_set1(b->softmax.acc_scale[query + i]),
                 p_scale = vf_set1(b->p_scale[query + i]);
        UNROLL(for (int g = 0; g < 4; g++))
        sum[i][0][g] += sum[i][1][g] << 8;
        transpose_quarters(sum[i][0]);
        UNROLL(for (size_t g = 0; g < 4; g++))
        vf_store(to + g * VW, vf_fma(vf_of(sum[i][0][g]), p_scale,
                                     vf_fma(vf_load(to + g * VW), acc_scale, vf_set1(0))));
    }
}

#define FEW_TABLE(NAME, type)                                                                          \
    LANES_FUNCTION(NAME, type, 1)                                                                      \
    LANES_FUNCTION(NAME, type, 2)                                                                      \
    LANES_FUNCTION(NAME, type, 3)                                                                      \
    static lanes_function *const NAME##_##type[FEW_QUERIES] = {NAME##_##type##_1, NAME##_##type##_2,   \
                                                               NAME##_##type##_3};
FEW_TABLE(few_scores, KV4)
FEW_TABLE(few_scores, KV5)
FEW_TABLE(few_scores, KV6)
FEW_TABLE(few_values, KV4)
FEW_TABLE(few_values, KV5)
FEW_TABLE(few_values, KV6)
FEW_TABLE(few_values, Q8_CHANNEL)
#define FEW_PACKED(NAME, type)                                                                         \
    ((type) == DTYPE_KV4 ? NAME##_KV4 : (type) == DTYPE_KV5 ? NAME##_KV5 : NAME##_KV6)
