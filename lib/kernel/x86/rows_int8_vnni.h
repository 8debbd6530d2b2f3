/* Quantises activation rows and interleaves them (kernel.h: to_int8, interleave_int8) with AVX512-VNNI: 512
 * inputs of a row, or 256 inputs of 16 rows at a time. Included after the templates, whose functions do the
 * rest and store the same bits. */
#pragma once

#include "kernel/x86/vnni_begin.h"
#include "kernel/template/gemm_int8.h"

enum {
    ROWS_GROUPS = 16,                     /* groups that are quantised at a time */
    ROWS_INPUTS = ROWS_GROUPS * QK_GROUP, /* their inputs */
    ROWS_TILE = 16,                       /* rows that are interleaved at a time */
    ROWS_TURN = 8,                        /* groups that are interleaved at a time */
    ROWS_TURN_INPUTS = ROWS_TURN * QK_GROUP,
};

/* Reduces 16 registers to one: lane i is OP of the lanes of m[i]. Overwrites m. */
#define REDUCE_16(m, OP)                                                                               \
    do {                                                                                               \
        UNROLL(for (int i = 0; i < 8; i++))                                                            \
        m[i] = OP(_mm512_unpacklo_epi32(m[2 * i], m[2 * i + 1]),                                       \
                  _mm512_unpackhi_epi32(m[2 * i], m[2 * i + 1]));                                      \
        UNROLL(for (int i = 0; i < 4; i++))                                                            \
        m[i] = OP(_mm512_unpacklo_epi64(m[2 * i], m[2 * i + 1]),                                       \
                  _mm512_unpackhi_epi64(m[2 * i], m[2 * i + 1]));                                      \
        UNROLL(for (int i = 0; i < 2; i++))                                                            \
        m[i] = OP(_mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0x88),                                  \
                  _mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0xdd));                                 \
        m[0] = OP(_mm512_shuffle_i32x4(m[0], m[1], 0x88), _mm512_shuffle_i32x4(m[0], m[1], 0xdd));     \
    } while (0)

/* The bits of the largest |x| of each of 16 groups of 32 inputs. */
INLINE __m512i largest_of_groups(const float *x)
{
    __m512i m[ROWS_GROUPS];
    UNROLL(for (int i = 0; i < ROWS_GROUPS; i++))
    m[i] =
        _mm512_max_epi32((__m512i)abs_bits(x + i * QK_GROUP), (__m512i)abs_bits(x + i * QK_GROUP + VW));
    REDUCE_16(m, _mm512_max_epi32);
    return m[0];
}

INLINE __m512i quantize_vector(const float *x, float inverse)
{
    return (__m512i)((vi)(vf_load(x) * vf_set1(inverse) + vf_set1(MAGIC_FLOAT)) - MAGIC_BITS);
}

/* Quantises 16 groups: quantize_group() for each. False: an input is infinite or NaN, nothing is done. */
INLINE bool quantize_groups(int8_t *q, float *scale, int32_t *sum, const float *x)
{
    const __m512i bits = largest_of_groups(x);
    if (_mm512_cmpge_epi32_mask(bits, _mm512_set1_epi32(0x7f800000)))
        return false;
    const __m512 max = (__m512)bits, quotient = _mm512_div_ps(_mm512_set1_ps(127), max);
    const __mmask16 scaled = _mm512_cmp_ps_mask(quotient, _mm512_set1_ps(INFINITY), _CMP_LT_OQ);
    float inverse[ROWS_GROUPS];
    _mm512_storeu_ps(inverse, _mm512_maskz_mov_ps(scaled, quotient));
    _mm512_storeu_ps(scale, _mm512_div_ps(max, _mm512_set1_ps(127)));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i part[2 * ROWS_GROUPS / 4];
    UNROLL(for (int i = 0; i < ROWS_GROUPS / 2; i++))
    {
        const float *at = x + 2 * i * QK_GROUP;
        const float first = inverse[2 * i], second = inverse[2 * i + 1];
        const __m512i low =
            _mm512_packs_epi32(quantize_vector(at, first), quantize_vector(at + VW, first));
        const __m512i high = _mm512_packs_epi32(quantize_vector(at + 2 * VW, second),
                                                quantize_vector(at + 3 * VW, second));
        const __m512i bytes = _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
        _mm512_storeu_si512(q + 2 * i * QK_GROUP, bytes);
        part[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), bytes);
    }
    /* the sum of 16 inputs is in a 128-bit lane of `part` */
    UNROLL(for (int i = 0; i < ROWS_GROUPS / 8; i++))
    {
        const __m512i *p = part + 4 * i;
        const __m512i a =
            _mm512_add_epi32(_mm512_unpacklo_epi32(p[0], p[1]), _mm512_unpackhi_epi32(p[0], p[1]));
        const __m512i b =
            _mm512_add_epi32(_mm512_unpacklo_epi32(p[2], p[3]), _mm512_unpackhi_epi32(p[2], p[3]));
        const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
        _mm512_storeu_si512(sum + i * 16, _mm512_permutexvar_epi32(order, all));
    }
    return true;
}

static void to_int8_vnni(int8_t *q, float *scale, int32_t *sum, const float *x, size_t n, size_t group)
{
    size_t from = 0;
    for (; group == QK_GROUP && from + ROWS_INPUTS <= n; from += ROWS_INPUTS)
        if (!quantize_groups(q + from, scale + from / QK_GROUP, sum + from / QK_HALF, x + from))
            to_int8(q + from, scale + from / QK_GROUP, sum + from / QK_HALF, x + from, ROWS_INPUTS,
                    group);
    if (from < n)
        to_int8(q + from, scale + from / QK_GROUP, sum + from / QK_HALF, x + from, n - from, group);
}

/* Transposes 8 words of each of 16 rows: word i of row r becomes lane r of to[i]. */
INLINE void transpose_rows(__m512i to[8], const char *const row[ROWS_TILE], size_t at)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512i a[8], b[8];
    UNROLL(for (int i = 0; i < 8; i++))
    a[i] = _mm512_inserti64x4(
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)(row[i] + at))),
        _mm256_loadu_si256((const __m256i *)(const void *)(row[i + 8] + at)), 1);
    UNROLL(for (int i = 0; i < 8; i += 2))
    {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    UNROLL(for (int i = 0; i < 8; i += 4))
    {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    UNROLL(for (int i = 0; i < 4; i++))
    {
        to[i] = _mm512_permutex2var_epi64(a[i], low, a[i + 4]);
        to[i + 4] = _mm512_permutex2var_epi64(a[i], high, a[i + 4]);
    }
}

/* Interleaves 256 inputs, from k on, of a tile of mr <= 16 rows. */
static void interleave_turn(const struct rows_start *start, char *to, const struct int8_rows *x,
                            const char *const row[ROWS_TILE], size_t mr, size_t k)
{
    const size_t scale_at = (size_t)((const char *)x->scale - (const char *)x->q) + k / QK_GROUP * 4;
    const size_t sum_at = (size_t)((const char *)x->sum - (const char *)x->q) + k / QK_HALF * 4;
    const __mmask16 rows = (__mmask16)((1u << mr) - 1);
    const __m512i begin = _mm512_set1_epi32(start->begin), zero = _mm512_set1_epi32(start->zero);
    __m512i scale[ROWS_TURN], sum[2 * ROWS_TURN];
    transpose_rows(scale, row, scale_at);
    transpose_rows(sum, row, sum_at);
    transpose_rows(sum + ROWS_TURN, row, sum_at + ROWS_TURN * 4);
    for (size_t i = 0; i < ROWS_TURN; i++, to += mr * INT8_INTERLEAVED_BYTES) {
        __m512i line[QTILE_LINES];
        transpose_rows(line, row, k + i * QK_GROUP);
        /* a line of fewer rows than 16 ends in words that the next stores overwrite */
        UNROLL(for (size_t j = 0; j < QTILE_LINES; j++))
        _mm512_storeu_si512(to + INTERLEAVED_Q(mr, j, 0), line[j]);
        _mm512_mask_storeu_epi32(to + INTERLEAVED_SCALE(mr, 0), rows, scale[i]);
        for (int n = 0; n < start->groups; n++) {
            const __m512i s =
                start->groups == 2 ? sum[2 * i + n] : _mm512_add_epi32(sum[2 * i], sum[2 * i + 1]);
            _mm512_mask_storeu_epi32(to + INTERLEAVED_START(mr, n, 0), rows,
                                     _mm512_sub_epi32(begin, _mm512_mullo_epi32(zero, s)));
            _mm512_mask_storeu_ps(to + INTERLEAVED_SUM(mr, n, 0), rows,
                                  _mm512_mul_ps((__m512)scale[i], _mm512_cvtepi32_ps(s)));
        }
    }
}

/* As interleave_int8(); rows that pad a tile repeat its last one. */
static void interleave_int8_vnni(char *to, const struct int8_rows *x, size_t rows, size_t mr, size_t kc,
                                 enum dtype type)
{
    const size_t whole = mr < SMALLM_LOW_MR ? 0 : kc / ROWS_TURN_INPUTS * ROWS_TURN_INPUTS;
    const struct rows_start start = rows_start_of(type);
    const char *row[ROWS_TILE];
    for (size_t i = 0; i < ROWS_TILE; i++)
        row[i] = (const char *)x->q + size_min(i, rows - 1) * x->row_bytes;
    for (size_t k = 0; k < whole; k += ROWS_TURN_INPUTS)
        interleave_turn(&start, to + k / QK_GROUP * mr * INT8_INTERLEAVED_BYTES, x, row, mr, k);
    if (whole < kc) {
        const struct int8_rows rest = row_at(x, 0, whole);
        interleave_int8(to + whole / QK_GROUP * mr * INT8_INTERLEAVED_BYTES, &rest, rows, mr,
                        kc - whole, type);
    }
}
