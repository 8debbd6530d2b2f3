/* Template: loads packed quantised weights into registers. Results equal those of dequantize.h.
 *
 * A q tile is 32 inputs of 16 outputs; unpacked, it is 8 lines of 64 bytes: 4 inputs of each
 * output, a byte each. */
#pragma once

#include "kernel/template/grid_lines.h"
#include "kernel/template/ternary_lines.h"

enum { QTILE_LINES = QK_GROUP / 4, QTILE_BYTES = QK_GROUP * NR };

/* Moves bits of every byte from position `from` to position `to`, and clears all but those in `mask`, which is four times
 * the same byte. */
INLINE vu move_bits(vu x, int from, int to, uint32_t mask)
{
#ifdef vu_move_bits
    if (from != to)
        return vu_move_bits(x, from, to, mask);
#endif
    return (from < to ? x << (to - from) : x >> (from - to)) & mask;
}

/* Loads line j (4 inputs) of a q tile for outputs [g * VW, (g + 1) * VW), unpacked to bytes:
 * quant_integer() of every quantised value. */
INLINE vu load_line(enum dtype type, const unsigned char *qtile, int j, int g)
{
    const int bits = quant_types[type].bits;
    const unsigned char *at = qtile + g * VW * 4;
    vu line = {0};
    if (quant_has_grid(type))
        return load_grid_line(type, qtile, j, g);
    if (quant_types[type].ternary)
        return load_ternary_line(qtile, j, g);
    if (bits == 8)
        return vu_load(at + j * PACK_LINE);
#ifdef vu_lookup_low
    if (quant_types[type].codebook)
        return vu_lookup_low(quant_codebooks[quant_types[type].codebook],
                             vu_load(at + j / 2 * PACK_LINE) >> j % 2 * 4);
#endif
    if (bits & 4)
        line = move_bits(vu_load(at + j / 2 * PACK_LINE), j % 2 * 4, 0, 0x0f0f0f0f);
    if (quant_types[type].codebook)
        return vu_lookup(quant_codebooks[quant_types[type].codebook], line);
    at += (bits & 4) * PACK_LINE;
    if (bits & 2)
        line |=
            move_bits(vu_load(at + j / 4 * PACK_LINE), j % 4 * 2, bits & 4, 0x03030303u << (bits & 4));
    at += (bits & 2) * PACK_LINE;
    if (bits & 1)
        line |= move_bits(vu_load(at), j, bits == 1 ? 1 : bits & 6,
                          0x01010101u << (bits == 1 ? 1 : bits & 6));
    return line;
}

INLINE void load_lines(enum dtype type, vu line[QTILE_LINES], const unsigned char *qtile, int g)
{
    UNROLL(for (int j = 0; j < QTILE_LINES; j++))
    line[j] = load_line(type, qtile, j, g);
}

/* Scales an integer sum without conversion: n = MAGIC_BITS + sum, |sum| < 2^22, are the bits of the
 * float MAGIC_FLOAT + sum, and fma(n, scale, -MAGIC_FLOAT * scale) is sum * scale, rounded once. */
INLINE vf magic_term(vf scale) { return scale * vf_set1(-MAGIC_FLOAT); }
INLINE vf scale_magic_int(vi n, vf scale, vf term) { return vf_fma((vf)n, scale, term); }

INLINE vf load_int8_scale(bool with_sign, const unsigned char *at)
{
    return vf_of(with_sign ? vi_load_i8(at) : vi_load_u8(at));
}

INLINE vf load_f16_scale(const unsigned char *at) { return vf_load_f16((const f16 *)(const void *)at); }

/* quant_power() of VW bytes: the second of the powers is the larger one, unless the exponent is 0 or 1. */
INLINE vf load_power_scale(const unsigned char *at)
{
    const vi exponent = vi_load_u8(at);
    return vf_max((vf)(vi_set1(0x200000) << (exponent & 1)), (vf)((exponent - 1) << 23));
}

/* quant_e4m3_half() of VW bytes. */
INLINE vf load_e4m3_scale(const unsigned char *at)
{
#ifdef vf_load_e4m3_half
    return vf_load_e4m3_half(at);
#else
    const vi x = vi_load_u8(at), exponent = x >> 3 & 15, small = exponent < 1;
    return vf_of((x & 7) + (~small & 8)) * (vf)((exponent - small + 116) << 23);
#endif
}

struct qscale_vec {
    vf scale, min;
};

/* Of VW outputs, d and dmin, which 256 inputs share; or scale and min of a type with wide_groups(). */
struct qsuper_vec {
    vf d, dmin;
};

/* True if more than a q tile shares a scale. */
INLINE bool wide_groups(enum dtype type)
{
    const struct scale_array *scales = quant_types[type].scales;
    return !scales[SCALE_D].bytes && scales[SCALE_MAIN].every > QK_GROUP;
}

/* The element of scale array p for output g * VW of a weight block and input w->k_begin + k. */
INLINE const unsigned char *scale_at(enum dtype type, const struct panel *w, size_t block, size_t k,
                                     int g, enum scale_kind p)
{
    const struct scale_array scales = quant_types[type].scales[p];
    const size_t i = scales.every ? (w->k_begin + k) / scales.every : 0;
    return w->scales[p] + block * w->block_bytes + (i * NR + (size_t)g * VW) * scales.bytes;
}

/* Loads what outputs [g * VW, (g + 1) * VW) have for input w->k_begin + k and its neighbours; zeros in types
 * that lack it. */
INLINE struct qsuper_vec load_qsuper(enum dtype type, const struct panel *w, size_t block, size_t k,
                                     int g)
{
    struct qsuper_vec v = {{0}, {0}};
    if (wide_groups(type))
        v.d = load_f16_scale(scale_at(type, w, block, k, g, SCALE_MAIN));
    if (wide_groups(type) && quant_types[type].zeros)
        v.dmin = -(v.d * load_int8_scale(false, scale_at(type, w, block, k, g, SCALE_MIN)));
    if (quant_types[type].scales[SCALE_D].bytes)
        v.d = load_f16_scale(scale_at(type, w, block, k, g, SCALE_D));
    if (quant_types[type].scales[SCALE_DMIN].bytes)
        v.dmin = load_f16_scale(scale_at(type, w, block, k, g, SCALE_DMIN));
    return v;
}

/* Computes scales and mins of outputs [g * VW, (g + 1) * VW) of a weight block, for the quant group of
 * input w->k_begin + k. */
INLINE struct qscale_vec load_qgroup(enum dtype type, const struct panel *w, size_t block, size_t k,
                                     int g, struct qsuper_vec super)
{
    const struct quant_types *quant = &quant_types[type];
    const unsigned char *at = scale_at(type, w, block, k, g, SCALE_MAIN),
                        *min_at = scale_at(type, w, block, k, g, SCALE_MIN);
    struct qscale_vec v = {{0}, {0}};
    if (wide_groups(type))
        return (struct qscale_vec){super.d, super.dmin};
    if (quant->grid.unit)
        v.scale = super.d * load_grid_scale(type, w, block, k, g, at);
    else if (quant->scales[SCALE_D].bytes && !quant->scales[SCALE_MAIN].bytes)
        v.scale = super.d;
    else if (quant->power)
        v.scale = load_power_scale(at);
    else if (quant->e4m3)
        v.scale = load_e4m3_scale(at);
    else if (quant->scales[SCALE_MAIN].bytes == 4)
        v.scale = vf_load((const float *)(const void *)at);
    else if (quant->scales[SCALE_MAIN].bytes == 2)
        v.scale = load_f16_scale(at);
    else if (quant->paired) {
        const vi both = vi_load_u8(at);
        v.scale = super.d * vf_of(both & 15);
        v.min = -(super.dmin * vf_of(both >> 4));
    } else
        v.scale = super.d * load_int8_scale(quant->zero_point, at);
    if (quant->offset)
        v.min = load_f16_scale(min_at);
    else if (quant->zeros)
        v.min = -(v.scale * load_int8_scale(false, min_at));
    else if (quant->scales[SCALE_MIN].bytes)
        v.min = -(super.dmin * load_int8_scale(false, min_at));
    return v;
}

INLINE struct qscale_vec load_qscale(enum dtype type, const struct panel *w, size_t block, size_t k,
                                     int g)
{
    return load_qgroup(type, w, block, k, g, load_qsuper(type, w, block, k, g));
}
