/* Values and lossless transcoding of matrices whose integers and scales are separate tensors. */
#include "format/split_weights.h"

#include <math.h>

#include "quant/quant_types.h"

#define SPLIT(type, elements) [DTYPE_##type] = {#type, 0, elements, 1, NULL, NULL, DTYPE_##type}

const struct block_type *split_type(enum dtype stored)
{
    static const struct block_type types[DTYPE_COUNT] = {
        SPLIT(F32, 1),      SPLIT(BF16, 1),  SPLIT(Q4_0, 32),       SPLIT(Q4_Z32, 32),
        SPLIT(Q4_Z128, 32), SPLIT(Q8_0, 32), SPLIT(Q8_CHANNEL, 32), SPLIT(TQ2_0, 256),
    };
    return &types[stored];
}

/* ---- elements ---- */

static uint32_t load_unit(const unsigned char *at, size_t bytes)
{
    return bytes == 1 ? *at
                      : at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static unsigned integer_at(const struct packed_integers *p, size_t row, size_t column)
{
    const size_t plane = p->plane ? row / p->plane : 0;
    const size_t unit = ((row - plane * p->plane) >> p->row_shift) * p->row_step +
                        (column >> p->column_shift) * p->column_step;
    const size_t place =
        plane + (row & ((1u << p->row_shift) - 1)) + (column & ((1u << p->column_shift) - 1));
    const uint32_t bits = load_unit(p->data + unit * p->unit_bytes, p->unit_bytes);
    return (bits >> p->bits * (p->order ? p->order[place] : place) & ((1u << p->bits) - 1)) ^ p->flip;
}

/* A number with sign, 4 bits of exponent, biased by 7, and 3 of fraction; the largest one of either sign is NaN. */
static float e4m3_value(unsigned x)
{
    const float half = (x & 127) == 127 ? NAN : quant_e4m3_half(x);
    return x & 128 ? -(2 * half) : 2 * half;
}

static float load_scale(const struct split_weights *s, size_t at)
{
    float x;
    if (s->scale_type == DTYPE_F32) {
        memcpy(&x, s->scale + at * sizeof x, sizeof x);
        return x;
    }
    f16 half;
    memcpy(&half, s->scale + at * sizeof half, sizeof half);
    return s->scale_type == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static size_t group_at(const struct split_weights *s, size_t column)
{
    return s->group_of ? load_unit(s->group_of + 4 * column, 4) : column / s->column_block;
}

static float scale_at(const struct split_weights *s, size_t row, size_t group)
{
    const float scale =
        load_scale(s, row / s->row_block * s->scale_row_step + group * s->scale_column_step);
    return s->inverse ? 1 / scale : scale;
}

static int zero_at(const struct split_weights *s, size_t row, size_t group)
{
    return (int)(s->zero_point + (s->zero.data ? integer_at(&s->zero, row, group) : 0));
}

static void row_values(float *x, const struct split_weights *s, size_t row, size_t first, size_t n)
{
    size_t group = SIZE_MAX;
    float scale = 0;
    int zero = 0;
    for (size_t i = 0; i < n; i++) {
        const size_t own = group_at(s, first + i);
        const unsigned q = integer_at(&s->q, row, first + i);
        if (own != group) {
            group = own;
            scale = scale_at(s, row, group);
            zero = s->e4m3 ? 0 : zero_at(s, row, group);
        }
        x[i] = scale * (s->e4m3 ? e4m3_value(q) : (float)((int)q - zero));
    }
}

void split_values(float *x, const struct split_weights *s, size_t at, size_t step, size_t n)
{
    for (size_t i = 0, some; i < n; i += some, at += some * step) {
        some = step == 1 ? size_min(n - i, s->columns - at % s->columns) : 1;
        row_values(x + i, s, at / s->columns, at % s->columns, some);
    }
}

void split_row(unsigned char *to, enum dtype type, const struct split_weights *s, size_t row)
{
    const enum scale_kind which = quant_types[type].scales[SCALE_MAIN].bytes ? SCALE_MAIN : SCALE_D;
    const size_t n = s->columns, scales = quant_row_scales_at(type, n, which),
                 zeros = quant_row_scales_at(type, n, SCALE_MIN);
    const struct scale_array array = quant_types[type].scales[which];
    memset(to, 0, quant_row_q_bytes(type, n));
    for (size_t i = 0; i < n; i++)
        quant_row_set_q(type, to, i, integer_at(&s->q, row, i));
    for (size_t i = 0; i < scale_count(array, n); i++) {
        const size_t group = group_at(s, i * array.every);
        const float scale = scale_at(s, row, group);
        if (array.bytes == sizeof scale)
            memcpy(to + scales + i * sizeof scale, &scale, sizeof scale);
        else
            quant_store_f16(to + scales + i * array.bytes, scale);
        if (quant_types[type].zeros)
            to[zeros + i] = (unsigned char)zero_at(s, row, group);
    }
}

/* ---- the type that holds a matrix ---- */

static size_t groups_of(const struct split_weights *s) { return div_up(s->columns, s->column_block); }

/* True if all scales are numbers of f16. */
static bool scales_fit_f16(const struct split_weights *s)
{
    for (size_t row = 0; row < s->rows && (s->scale_type != DTYPE_F16 || s->inverse);
         row += s->row_block)
        for (size_t g = 0; g < groups_of(s); g++) {
            const float x = scale_at(s, row, g);
            if (f16_to_f32(f16_from_f32(x)) != x)
                return false;
        }
    return true;
}

/* True if the product of any scale and a number of E4M3, 4 significant bits from 2^-9 to 448, is a normal number of
 * bf16, which has 8 of them: scales of up to 4, from 2^-116 to 2^118. */
static bool products_fit_bf16(const struct split_weights *s)
{
    for (size_t row = 0; row < s->rows; row += s->row_block)
        for (size_t g = 0; g < groups_of(s); g++) {
            const float x = scale_at(s, row, g);
            uint32_t bits;
            memcpy(&bits, &x, sizeof bits);
            if (bits & 0xfffff || fabsf(x) < 0x1p-116f || !(fabsf(x) <= 0x1p118f))
                return false;
        }
    return true;
}

static bool zeros_are(const struct split_weights *s, int zero)
{
    for (size_t row = 0; row < s->rows; row++)
        for (size_t g = 0; g < (s->zero.data ? groups_of(s) : 1); g++)
            if (zero_at(s, row, g) != zero)
                return false;
    return true;
}

/* Of integers -1, 0 and 1 with one scale. */
static enum dtype choose_ternary(const struct split_weights *s)
{
    if (s->columns % 256 == 0 && scales_fit_f16(s))
        return DTYPE_TQ2_0;
    return s->scale_type == DTYPE_BF16 && !s->inverse ? DTYPE_BF16 : DTYPE_F32;
}

enum dtype split_choose(const struct split_weights *s)
{
    const bool whole_rows = s->column_block >= s->columns;
    if (s->e4m3)
        return products_fit_bf16(s) ? DTYPE_BF16 : DTYPE_F32;
    if (s->q.plane)
        return choose_ternary(s);
    if (s->group_of || (!whole_rows && s->column_block % QK_GROUP) || s->columns % QK_GROUP)
        return DTYPE_F32;
    if (s->q.bits == 8) {
        if (!zeros_are(s, 128))
            return DTYPE_F32;
        return whole_rows ? DTYPE_Q8_CHANNEL : scales_fit_f16(s) ? DTYPE_Q8_0 : DTYPE_F32;
    }
    if (!scales_fit_f16(s))
        return DTYPE_F32;
    if (whole_rows || s->column_block % 128 == 0)
        return DTYPE_Q4_Z128;
    return zeros_are(s, 8) ? DTYPE_Q4_0 : DTYPE_Q4_Z32;
}
