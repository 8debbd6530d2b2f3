/* Packed weights of few bits in registers: lines of codes, and the vectors of their steps and bases. Included by a set's
 * file after set_vec.h; what it computes is that of set_few.h to the bit. */
#include "base/pack.h"

/* A cell is 32 inputs of 16 outputs: 8 lines of codes, a byte each, of 4 inputs. */
enum { CELL_LINES = FEW_GROUP / 4, HALF_LINES = CELL_LINES / 2, CELL_BYTES = FEW_GROUP * LANES };

INLINE vi vi_set1(int32_t x) { return x - (vi){0}; }

INLINE const unsigned char *cell_at(enum dtype type, const struct panel *w, size_t block, size_t k)
{
    return (const unsigned char *)w->w + block * w->block_bytes + pack_codes(type, k);
}

/* Register g of line j of a cell. */
INLINE vu load_line(enum dtype type, const unsigned char *cell, int j, int g)
{
    const unsigned char *at = cell + g * VW * 4;
    if (few_bits[type].bits == 8)
        return vu_load(at + j * PACK_LINE);
    const vu low = vu_load(at + j / 2 * PACK_LINE) >> j % 2 * 4 & 0x0f0f0f0f;
    if (few_bits[type].bits == 4)
        return low;
    const vu high = vu_load(at + (CELL_LINES / 2 + j / HALF_LINES) * PACK_LINE);
    const int quarter = j % HALF_LINES;
    return low | ((quarter < 2 ? high << (4 - 2 * quarter) : high >> (2 * quarter - 4)) & 0x30303030);
}

/* Of every line. */
INLINE void load_lines(enum dtype type, vu line[CELL_LINES], const unsigned char *cell, int g)
{
    UNROLL(for (int j = 0; j < CELL_LINES; j++))
    line[j] = load_line(type, cell, j, g);
}

struct few_vectors {
    vf step, base;
};

/* A whole number below 2^22 that is added to WHOLE_BITS makes the bits of WHOLE_FLOAT and itself: no conversion is needed, and one
 * fma() with `away`, -WHOLE_FLOAT steps, makes step times it of them, rounded once. */
enum { WHOLE_BITS = 0x4b400000 };
#define WHOLE_FLOAT 12582912.f

INLINE vf steps_away(vf step) { return step * vf_set1(-WHOLE_FLOAT); }
INLINE vf times_step(vi whole, vf step, vf away) { return vf_fma((vf)whole, step, away); }

INLINE vf load_small(bool with_sign, const unsigned char *at)
{
    return __builtin_convertvector(with_sign ? vi_load_i8(at) : vi_load_u8(at), vf);
}

INLINE vf load_f16s(const unsigned char *at) { return vf_load_f16((const f16 *)(const void *)at); }

/* Steps and bases of outputs [g * VW, (g + 1) * VW) of a block at input k of the range. */
INLINE struct few_vectors load_values(enum dtype type, const struct panel *w, size_t block, size_t k,
                                      int g)
{
    const struct few_bits *few = &few_bits[type];
    const unsigned char *at[FEW_PLANES];
    for (int p = 0; p < FEW_PLANES; p++) {
        const size_t i = few->plane[p].every ? (w->from + k) / few->plane[p].every : 0;
        at[p] =
            w->plane[p] + block * w->block_bytes + (i * LANES + (size_t)g * VW) * few->plane[p].bytes;
    }
    struct few_vectors v = {{0}, {0}};
    if (few->plane[FEW_SCALE].bytes == 4)
        v.step = vf_load((const float *)(const void *)at[FEW_SCALE]);
    else if (few->plane[FEW_SCALE].bytes == 2)
        v.step = load_f16s(at[FEW_SCALE]);
    else
        v.step = load_f16s(at[FEW_D]) * load_small(few->zero, at[FEW_SCALE]);
    if (few->offset)
        v.base = load_f16s(at[FEW_LOW]);
    else if (few->plane[FEW_LOW].bytes)
        v.base = -(load_f16s(at[FEW_DMIN]) * load_small(false, at[FEW_LOW]));
    return v;
}
