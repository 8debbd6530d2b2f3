/* Attention over q8 entries, and those of 4, 5 and 6 bits, which are unpacked, in registers of 512 bits
 * (attend_lanes.h), for kernel sets with an instruction for vi_dot4(): the sums of attend_quant.h in the same order, so
 * with the same bits. */
#pragma once

#include "kernel/x86/vnni_begin.h"
#include "kernel/template/attend_quant.h"
#include "kernel/x86/attend/attend_few.h"

_Static_assert(VW == ATTEND_TILE && BLOCK_TILES == 4, "4 bytes of V are of the block's 4 tiles");

/* ---- entries of 4, 5 and 6 bits ---- */

/* The high bits of a block of each of 4 entries, from high[l] on, in all words (5 bits) or halves of lane l. */
INLINE __m512i load_high_bits(unsigned bits, const char *const high[4])
{
    __m512i x = _mm512_setzero_si512();
    UNROLL(for (int l = 0; l < 4; l++))
    x = bits == 5 ? _mm512_mask_broadcastd_epi32(x, (__mmask16)(15 << 4 * l), _mm_loadu_si32(high[l]))
                  : _mm512_mask_broadcastq_epi64(x, (__mmask8)(3 << 2 * l),
                                                 _mm_loadl_epi64((const void *)high[l]));
    return x;
}

/* Bytes of one of the groups of a block of 4 entries (unpack_entries.h): low has their low bits, high load_high_bits(). */
INLINE __m512i unpack_group(unsigned bits, const struct kv_unpack *const m[4], int group, vu low,
                            __m512i high)
{
    const char *table[4], *factor[4];
    UNROLL(for (int l = 0; l < 4; l++))
    {
        table[l] = (const char *)m[l]->low[group];
        factor[l] = (const char *)m[l]->high[group];
    }
    const __m512i x = _mm512_shuffle_epi8((__m512i)load_lanes(true, table, 4), (__m512i)low);
    if (bits == 4)
        return x;
    const __m512i words = _mm512_set4_epi32(3, 2, 1, 0), quads = _mm512_set4_epi64(2, 0, 2, 0);
    const __m512i h =
        bits == 5 ? _mm512_srlv_epi32(high, _mm512_add_epi32(words, _mm512_set1_epi32(4 * group)))
                  : _mm512_srlv_epi64(high, _mm512_add_epi64(quads, _mm512_set1_epi64(4 * group)));
    const __m512i one = _mm512_and_si512(h, _mm512_set1_epi8(bits == 5 ? 1 : 3));
    return _mm512_add_epi8(x, _mm512_mullo_epi16(one, (__m512i)load_lanes(true, factor, 4)));
}

/* Unpacks 4 entries to their lanes: group g of them goes to to + g * group_bytes. */
INLINE void unpack_lanes(unsigned bits, char *to, size_t group_bytes, const char *const entry[4],
                         struct kv_entry_layout at, size_t blocks)
{
    ROLLED(for (size_t block = 0; block < blocks; block++))
    {
        const struct kv_unpack *m[4];
        const char *low[4], *high[4];
        UNROLL(for (int l = 0; l < 4; l++))
        {
            m[l] = &kv_unpack[bits - 4][(unsigned char)entry[l][at.multiplier + block]];
            low[l] = entry[l] + block * (KV_BLOCK / 2);
            high[l] = entry[l] + at.high + block * (bits - 4) * (KV_BLOCK / 8);
        }
        const vu q = load_lanes(true, low, 4);
        const __m512i h = bits == 4 ? _mm512_setzero_si512() : load_high_bits(bits, high);
        _mm512_storeu_si512(to, unpack_group(bits, m, 0, q & 0x0f0f0f0f, h));
        _mm512_storeu_si512(to + group_bytes, unpack_group(bits, m, 1, q >> 4 & 0x0f0f0f0f, h));
        to += 2 * group_bytes;
    }
}

/* Unpacks a block's K so that 4 registers are words of a tile's entries, in the order of load_words(). */
INLINE void unpack_k_bits(unsigned bits, bool scattered, const struct block_state *b)
{
    const struct kv_entry_layout at = kv_entry_layout(bits, b->a->d);
    const size_t blocks = div_up(b->a->d, KV_BLOCK), stride = b->a->k_stride;
    for (size_t t = 0; t < BLOCK_TILES; t++)
        for (size_t i = 0; i < 4; i++) {
            const char *entry[4];
            UNROLL(for (size_t l = 0; l < 4; l++))
            entry[l] = row_of(b->k[t], scattered, stride, 4 * l + i);
            prefetch_part(false, b->next.k_bytes, b->next.k[t], i, 4);
            unpack_lanes(bits, b->unpacked + t * ATTEND_TILE * KV_BLOCK * blocks + i * UNPACKED_LANES,
                         4 * UNPACKED_LANES, entry, at, blocks);
        }
}

/* Unpacks a block's V so that a register is of one position of each tile, in the order of load_quarters(). */
INLINE void unpack_v_bits(unsigned bits, bool scattered, const struct block_state *b)
{
    const struct kv_entry_layout at = kv_entry_layout(bits, b->a->d);
    const size_t blocks = div_up(b->a->d_v, KV_BLOCK), stride = b->a->v_stride;
    for (size_t n = 0; n < ATTEND_TILE; n++) {
        const char *entry[4];
        UNROLL(for (size_t l = 0; l < 4; l++))
        entry[l] = row_of(b->v[l % 2 * 2 + l / 2], scattered, stride, n);
        prefetch_part(false, b->next.v_bytes, b->next.v[n / 4], n % 4, 4);
        unpack_lanes(bits, b->unpacked + n * UNPACKED_LANES, ATTEND_TILE * UNPACKED_LANES, entry, at,
                     blocks);
    }
}

#define UNPACK_BLOCK(NAME)                                                                             \
    PHASE void NAME(unsigned bits, const struct block_state *b)                                        \
    {                                                                                                  \
        switch (2 * bits + b->scattered) {                                                             \
        case 8: NAME##_bits(4, false, b); break;                                                       \
        case 9: NAME##_bits(4, true, b); break;                                                        \
        case 10: NAME##_bits(5, false, b); break;                                                      \
        case 11: NAME##_bits(5, true, b); break;                                                       \
        case 12: NAME##_bits(6, false, b); break;                                                      \
        default: NAME##_bits(6, true, b); break;                                                       \
        }                                                                                              \
    }
UNPACK_BLOCK(unpack_k)
UNPACK_BLOCK(unpack_v)

/* ---- scores ---- */

/* Loads the scales of a tile's entries. */
PHASE void tile_scales(const struct block_state *b, const struct entry_scales *from, float *scale,
                       struct tile tile)
{
    if (b->scattered)
        load_kv_scales(from, true, scale, NULL, tile);
    else
        load_kv_scales(from, false, scale, NULL, tile);
}

INLINE void q8_tile_scores(const int R, enum dtype type, bool scattered, const struct block_state *b,
                           size_t query, size_t t)
{
    lanes_scores(R, 1, type, scattered, b, query, t);
}
LANES_TABLE(q8_tile_scores, Q8_CHANNEL)
LANES_TABLE(q8_tile_scores, KV8)

static void q8_score(struct block_state *b)
{
    const unsigned packed = kv_entry_bits(b->a->k_type);
    const bool few = packed && few_columns(b->a->queries, b->a->d);
    if (packed && !few)
        unpack_k(packed, b);
    for (size_t t = 0; t < BLOCK_TILES; t++) {
        prefetch_scattered(b, packed != 0, t);
        tile_scales(b, &b->k_scales, b->k_scale + t * ATTEND_TILE, b->k[t]);
        if (few)
            FEW_PACKED(few_scores, b->a->k_type)[b->a->queries - 1](b, 0, t);
        else
            for_queries(packed ? q8_tile_scores_KV8 : q8_tile_scores_Q8_CHANNEL, b, t);
    }
    for (size_t t = 0; t < BLOCK_TILES; t++) /* only now, as they were prefetched last */
        tile_scales(b, &b->v_scales, b->v_scale + t * ATTEND_TILE, b->v[t]);
}

/* ---- maxima ---- */

/* block_maxima() for n <= 8 queries from `query` on that attend to all positions of the block. */
INLINE void group_maxima(const struct block_state *b, size_t query, size_t n)
{
    const struct block_softmax *s = &b->softmax;
    const vf none = vf_set1(-INFINITY), largest = largest_scores(b, query, n);
    const vf found = vf_select(largest > none, largest, vf_set1(NAN)); /* vf_max() may miss a NaN */
    const vf before = (vf)vu_load_some(s->max + query, n);
    const vf now = vf_select(found <= before, before, found); /* NaN if a score is NaN */
    store_lanes(s->block_max + query, n, found);
    store_lanes(s->acc_scale + query, n,
                vf_select(before < now, vf_exp_fast(before - now), vf_set1(1)));
    store_lanes(s->block_scale + query, n, vf_exp_fast(found - now));
    store_lanes(s->max + query, n, now);
}

/* Finds the queries' largest scores in the block and updates the running maxima. Also touches the pages
 * that are prefetched next, so that misses of the TLB overlap with each other and with latencies here. */
PHASE void q8_maxima(const struct block_state *b)
{
    prefetch_lines(b->next.v[BLOCK_TILES - 1].base + b->next.v_bytes, 1);
    prefetch_lines(b->next.k[BLOCK_TILES - 1].base + 5 * b->next.k_bytes, 1);
    if (!attends_wholly(b)) {
        block_maxima(b);
        return;
    }
    FOR_QUERY_GROUPS(b, group_maxima)
}

PHASE void probs_bytes(const struct block_state *b) { probs_q8(store_p_bytes, b); }

static void q8_softmax(struct block_state *b)
{
    q8_maxima(b);
    probs_bytes(b);
}

/* ---- values ---- */

/* Adds V to the context of R queries, from `query` on, in up to VW columns from `column` on. */
INLINE void q8_values(const int R, enum dtype type, bool scattered, const struct block_state *b,
                      size_t query, size_t column)
{
    const size_t some = b->a->d_v - column;
    if (some >= VW)
        byte_values(R, 1, type, true, scattered, b, query, column, VW);
    else
        byte_values(R, 1, type, false, scattered, b, query, column, some);
}
LANES_TABLE(q8_values, Q8_CHANNEL)
LANES_TABLE(q8_values, KV8)

static void q8_value(struct block_state *b)
{
    const unsigned packed = kv_entry_bits(b->a->v_type);
    const size_t queries = b->queries.end - b->queries.begin;
    if (few_columns(queries, b->a->d_v)) {
        lanes_function *const *few =
            packed ? FEW_PACKED(few_values, b->a->v_type) : few_values_Q8_CHANNEL;
        for (size_t column = 0; column < b->a->d_v; column += ROW_VALUES)
            few[queries - 1](b, b->queries.begin, column);
        return;
    }
    if (packed)
        unpack_v(packed, b);
    for (size_t column = 0; column < b->a->d_v; column += VW)
        for_queries(packed ? q8_values_KV8 : q8_values_Q8_CHANNEL, b, column);
}

static void attend_q8(const struct attend *a)
{
    struct block_state b = open_block(a);
    if (kv_entry_bits(a->k_type) && few_columns(a->queries, a->d))
        spread_queries(&b);
    else
        transpose_queries(&b);
    attend_blocks(&b, &(struct attend_phases){q8_score, q8_softmax, q8_value});
    end_softmax(&b);
}
