/* Rows of few bits: widened, made, checked. */
#include "base/few_bits.h"

#include <math.h>

void few_widen(float *to, enum dtype type, const void *row, size_t n)
{
    const size_t group = few_group(type, n);
    for (size_t from = 0; from < n; from += group) {
        const struct few_values v = few_row_values(type, row, n, from);
        for (size_t i = from; i < size_min(from + group, n); i++)
            to[i] = few_value(type, v, few_code(type, row, i));
    }
}

static bool f16_finite(const unsigned char *at, size_t n)
{
    bool full = false;
    for (size_t i = 0; i < n; i++) {
        f16 x;
        memcpy(&x, at + i * sizeof x, sizeof x);
        full |= (x & 0x7c00) == 0x7c00;
    }
    return !full;
}

/* Of an f16 that is finite all multiples that a code and a scale of 8 bits make are finite, too; of an f32 it depends. */
bool few_finite(enum dtype type, const void *row, size_t n)
{
    for (size_t p = 0; p < FEW_PLANES; p++) {
        const struct few_plane plane = few_bits[type].plane[p];
        if (plane.bytes == sizeof(f16) &&
            !f16_finite((const unsigned char *)row + few_plane_at(type, n, p), few_count(plane, n)))
            return false;
    }
    for (size_t i = 0; few_bits[type].plane[FEW_SCALE].bytes == sizeof(float) && i < n; i++)
        if (!isfinite(few_value(type, few_row_values(type, row, n, i), few_code(type, row, i))))
            return false;
    return true;
}

/* ---- the simplest rule ---- */

/* Comparisons in place of fminf() and fmaxf(), which are calls; the first where the second is no number. */
static inline float lesser(float a, float b) { return b < a ? b : a; }
static inline float greater(float a, float b) { return b > a ? b : a; }

/* The nearest code; a step of 0 has only 0s to hold. */
static unsigned nearest(float x, struct few_values v, const struct few_bits *few)
{
    const float magic = 12582912.f; /* 1.5 * 2^23: rounds what is below 2^22 to a whole number */
    const float most = (float)((1 << few->bits) - 1);
    const float whole = ((x - v.base) / v.step + magic) - magic;
    const float code = v.step == 0 ? few->zero : whole + (float)few->zero;
    return (unsigned)lesser(most, greater(0, code));
}

/* Step and base of one group as its planes store them. The lowest code of a type with a zero is left out, so that both
 * signs reach equally far. */
static struct few_values choose(enum dtype type, unsigned char *scale, unsigned char *offset,
                                const float *x, size_t n)
{
    const struct few_bits *few = &few_bits[type];
    float low = INFINITY, high = -INFINITY, most = 0;
    for (size_t i = 0; i < n; i++) {
        low = lesser(low, x[i]);
        high = greater(high, x[i]);
        most = greater(most, fabsf(x[i]));
    }
    struct few_values v = {few->offset ? (high - low) / (float)((1 << few->bits) - 1)
                                       : most / (float)((1 << few->bits) - 1 - few->zero),
                           0};
    if (few->plane[FEW_SCALE].bytes == 4)
        memcpy(scale, &v.step, sizeof v.step);
    else
        v.step = few_put_f16(scale, v.step);
    if (few->offset)
        v.base = few_put_f16(offset, low);
    return v;
}

void few_narrow(void *row, enum dtype type, const float *x, size_t n)
{
    const size_t group = few_group(type, n);
    unsigned char *codes = row, *scale = codes + few_plane_at(type, n, FEW_SCALE),
                  *offset = codes + few_plane_at(type, n, FEW_LOW);
    memset(codes, 0, few_code_bytes(type, n));
    for (size_t from = 0; from < n; from += group) {
        const size_t many = size_min(group, n - from);
        const struct few_values v = choose(type, scale, offset, x + from, many);
        for (size_t i = from; i < from + many; i++)
            few_set_code(type, codes, i, nearest(x[i], v, &few_bits[type]));
        scale += few_bits[type].plane[FEW_SCALE].bytes;
        offset += few_bits[type].plane[FEW_LOW].bytes;
    }
}
