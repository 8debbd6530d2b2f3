/* Fast quantisation and dequantisation of KV entries: loops that compilers vectorise. */
#include "quant/quant_rows.h"

#include <float.h>

#include "quant/quant_types.h"

enum { NIBBLES = QK_GROUP / 2 };

/* x + round_magic rounds x, |x| < 2^22, to the nearest integer, ties to even. */
static const float round_magic = 12582912.f; /* 1.5 * 2^23 */

/* Returns the largest |x|; NaN or infinity if any element is NaN or infinite. */
static float largest(const float *x, size_t n)
{
    uint32_t most = 0; /* the bits of magnitudes compare like their values */
    float value;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    memcpy(&value, &most, sizeof value);
    return value;
}

/* Rounds x to the nearest integer in [low, high]. */
static inline int nearest(float x, float low, float high)
{
    const float clamped = x < low ? low : x > high ? high : x, magic = clamped + round_magic;
    int32_t bits, zero;
    memcpy(&bits, &magic, sizeof bits);
    memcpy(&zero, &round_magic, sizeof zero);
    return bits - zero;
}

/* Quantises a row with one scale for magnitudes up to `most`; other values saturate, at integers from `low` to 127. */
static void quantize_q8c(unsigned char *row, const float *x, size_t n, float most, float low)
{
    const float v_scale = most / 127;
    if (!(most <= FLT_MAX) || v_scale == 0)
        memset(row, 128, n);
    else
        for (size_t i = 0; i < n; i++)
            row[i] = (unsigned char)(nearest(x[i] / v_scale, low, 127) + 128);
    memcpy(row + n, &v_scale, sizeof v_scale);
}

static void dequantize_q8c(float *to, const unsigned char *row, size_t n)
{
    float v_scale;
    memcpy(&v_scale, row + n, sizeof v_scale);
    for (size_t i = 0; i < n; i++)
        to[i] = v_scale * (float)((int)row[i] - 128) + 0.f;
}

/* Finds minimum and maximum of QK_GROUP values, in 8 lanes so that compilers vectorise the loop. */
static void find_range(const float *x, float *least, float *greatest)
{
    enum { WIDE = 8 };
    float low[WIDE], high[WIDE];
    memcpy(low, x, sizeof low);
    memcpy(high, x, sizeof high);
    for (size_t i = WIDE; i < QK_GROUP; i += WIDE)
        for (size_t j = 0; j < WIDE; j++) {
            low[j] = x[i + j] < low[j] ? x[i + j] : low[j];
            high[j] = x[i + j] > high[j] ? x[i + j] : high[j];
        }
    for (size_t j = 1; j < WIDE; j++) {
        low[0] = low[j] < low[0] ? low[j] : low[0];
        high[0] = high[j] > high[0] ? high[j] : high[0];
    }
    *least = low[0];
    *greatest = high[0];
}

/* Values from `low` to `high`. */
struct value_range {
    float low, high;
};

/* The range of QK_GROUP values; NaN if one is not finite. */
static struct value_range range_of(const float *x)
{
    struct value_range range;
    find_range(x, &range.low, &range.high);
    if (!(largest(x, QK_GROUP) <= FLT_MAX))
        range.high = NAN;
    return range;
}

/* Quantises a group of QK_GROUP values, of which `some` exist, to 4 bits each in q_bytes, with an f16 scale and
 * an f16 minimum, which go to `scale` and `offset`. Values outside `range` saturate. */
static void quantize_group(unsigned char *q_bytes, unsigned char *scale, unsigned char *offset,
                           const float *x, size_t some, struct value_range range)
{
    int q[QK_GROUP] = {0};
    const float v_scale = quant_store_f16(scale, (range.high - range.low) / 15),
                min = quant_store_f16(offset, range.low);
    if (v_scale > 0)
        for (size_t i = 0; i < QK_GROUP; i++)
            q[i] = nearest((x[i] - min) / v_scale, 0, 15);
    for (size_t i = some; i < QK_GROUP; i++)
        q[i] = 0;
    for (size_t i = 0; i < NIBBLES; i++)
        q_bytes[i] = (unsigned char)(q[i] | q[NIBBLES + i] << 4);
}

/* Quantises x[many], the values of a row of n from number `first` on, a multiple of QK_GROUP: in the given range,
 * or each group in its own if that is NULL. */
static void quantize_q4(unsigned char *row, size_t n, size_t first, const float *x, size_t many,
                        const struct value_range *range)
{
    const size_t groups = first / QK_GROUP;
    unsigned char *q = row + groups * NIBBLES,
                  *scale = row + quant_row_scales_at(DTYPE_Q4_1, n, SCALE_MAIN) + 2 * groups,
                  *offset = row + quant_row_scales_at(DTYPE_Q4_1, n, SCALE_MIN) + 2 * groups;
    for (size_t i = 0; i < many; i += QK_GROUP, q += NIBBLES, scale += 2, offset += 2) {
        float group[QK_GROUP];
        const size_t some = size_min(QK_GROUP, many - i);
        memcpy(group, x + i, some * sizeof *x);
        for (size_t j = some; j < QK_GROUP; j++)
            group[j] = group[0];
        quantize_group(q, scale, offset, group, some, range ? *range : range_of(group));
    }
}

void quant_rows_quantize_range(void *row, enum dtype type, const float *x, size_t n, float low,
                               float high)
{
    const struct value_range range = {low, high};
    if (!(largest(x, n) <=
          FLT_MAX)) /* keep NaN and infinity: without a range they make the scale NaN */
        quant_rows_quantize(row, type, x, n);
    else if (type == DTYPE_Q8_CHANNEL)
        quantize_q8c(row, x, n, fmaxf(fabsf(low), fabsf(high)), -127);
    else
        quantize_q4(row, n, 0, x, n, &range);
}

static void dequantize_q4(float *to, const unsigned char *row, size_t n)
{
    const unsigned char *scale = row + quant_row_scales_at(DTYPE_Q4_1, n, SCALE_MAIN),
                        *offset = row + quant_row_scales_at(DTYPE_Q4_1, n, SCALE_MIN);
    for (size_t i = 0; i < n; i += QK_GROUP, row += NIBBLES, scale += 2, offset += 2) {
        float group[QK_GROUP];
        const float v_scale = quant_load_f16(scale), min = quant_load_f16(offset);
        for (size_t j = 0; j < NIBBLES; j++) { /* 11 bits of scale times 4 bits: exact */
            group[j] = v_scale * (float)(row[j] & 15) + min;
            group[NIBBLES + j] = v_scale * (float)(row[j] >> 4) + min;
        }
        memcpy(to + i, group, size_min(QK_GROUP, n - i) * sizeof *to);
    }
}

bool quant_rows_dequantize(float *to, enum dtype type, const void *row, size_t n)
{
    if (type == DTYPE_Q8_CHANNEL)
        dequantize_q8c(to, row, n);
    else if (type == DTYPE_Q4_1)
        dequantize_q4(to, row, n);
    return type == DTYPE_Q8_CHANNEL || type == DTYPE_Q4_1;
}

bool quant_rows_quantize(void *row, enum dtype type, const float *x, size_t n)
{
    if (type == DTYPE_Q8_CHANNEL)
        quantize_q8c(row, x, n, largest(x, n), -128);
    else if (type == DTYPE_Q4_1)
        quantize_q4(row, n, 0, x, n, NULL);
    return type == DTYPE_Q8_CHANNEL || type == DTYPE_Q4_1;
}
