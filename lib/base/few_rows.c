/* Rows of the types that caches have, made and widened quickly: loops that compilers turn into vectors. */
#include "base/few_rows.h"

#include <float.h>
#include <math.h>

#include "base/few_bits.h"

enum { NIBBLES = FEW_GROUP / 2 };

/* Added to a number below 2^22 it leaves the nearest whole one, ties to even. */
static const float round_magic = 12582912.f; /* 1.5 * 2^23 */

/* ---- q8c ---- */

/* The largest magnitude; NaN or infinite where a value is. */
static float largest(const float *x, size_t n)
{
    uint32_t most = 0; /* of magnitudes, whose bits are in the order of their values */
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

/* The nearest whole number from low to high. */
static inline int nearest(float x, float low, float high)
{
    const float clamped = x < low ? low : x > high ? high : x, magic = clamped + round_magic;
    int32_t bits, zero;
    memcpy(&bits, &magic, sizeof bits);
    memcpy(&zero, &round_magic, sizeof zero);
    return bits - zero;
}

static void narrow_q8c(unsigned char *row, const float *x, size_t n)
{
    const float most = largest(x, n), step = most / 127;
    if (!(most <= FLT_MAX) || step == 0)
        memset(row, 128, n);
    else
        for (size_t i = 0; i < n; i++)
            row[i] = (unsigned char)(nearest(x[i] / step, -128, 127) + 128);
    memcpy(row + n, &step, sizeof step);
}

static void widen_q8c(float *to, const unsigned char *row, size_t n)
{
    float step;
    memcpy(&step, row + n, sizeof step);
    for (size_t i = 0; i < n; i++)
        to[i] = step * (float)((int)row[i] - 128) + 0.f;
}

/* ---- q4 ---- */

/* The least and the greatest of a group; lanes of their own, as vectors have them. */
static void find_range(const float *x, float *least, float *greatest)
{
    enum { WIDE = 8 };
    float low[WIDE], high[WIDE];
    memcpy(low, x, sizeof low);
    memcpy(high, x, sizeof high);
    for (size_t i = WIDE; i < FEW_GROUP; i += WIDE)
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

/* A whole group; `scale` and `offset` are where its planes have it. */
static void narrow_group(unsigned char *codes, unsigned char *scale, unsigned char *offset,
                         const float *x)
{
    float low, high;
    int code[FEW_GROUP] = {0};
    find_range(x, &low, &high);
    if (!(largest(x, FEW_GROUP) <= FLT_MAX))
        high = NAN;
    const float step = few_put_f16(scale, (high - low) / 15), base = few_put_f16(offset, low);
    if (step > 0)
        for (size_t i = 0; i < FEW_GROUP; i++)
            code[i] = nearest((x[i] - base) / step, 0, 15);
    for (size_t i = 0; i < NIBBLES; i++)
        codes[i] = (unsigned char)(code[i] | code[NIBBLES + i] << 4);
}

static void narrow_q4(unsigned char *row, const float *x, size_t n)
{
    unsigned char *scale = row + few_plane_at(DTYPE_Q4, n, FEW_SCALE),
                  *offset = row + few_plane_at(DTYPE_Q4, n, FEW_LOW);
    for (size_t i = 0; i < n; i += FEW_GROUP, row += NIBBLES, scale += 2, offset += 2) {
        float group[FEW_GROUP];
        const size_t many = size_min(FEW_GROUP, n - i);
        memcpy(group, x + i, many * sizeof *x);
        for (size_t j = many; j < FEW_GROUP; j++)
            group[j] = group[0];
        narrow_group(row, scale, offset, group);
        for (size_t j = many; j < FEW_GROUP; j++) /* what is behind the row is 0 */
            row[j % NIBBLES] &= j < NIBBLES ? 0xf0 : 0x0f;
    }
}

static void widen_q4(float *to, const unsigned char *row, size_t n)
{
    const unsigned char *scale = row + few_plane_at(DTYPE_Q4, n, FEW_SCALE),
                        *offset = row + few_plane_at(DTYPE_Q4, n, FEW_LOW);
    for (size_t i = 0; i < n; i += FEW_GROUP, row += NIBBLES, scale += 2, offset += 2) {
        float group[FEW_GROUP];
        const float step = few_f16(scale), base = few_f16(offset);
        for (size_t j = 0; j < NIBBLES; j++) { /* the product is exact: 11 and 4 bits */
            group[j] = step * (float)(row[j] & 15) + base;
            group[NIBBLES + j] = step * (float)(row[j] >> 4) + base;
        }
        memcpy(to + i, group, size_min(FEW_GROUP, n - i) * sizeof *to);
    }
}

/* ---- */

bool few_rows_widen(float *to, enum dtype type, const void *row, size_t n)
{
    if (type == DTYPE_Q8C)
        widen_q8c(to, row, n);
    else if (type == DTYPE_Q4)
        widen_q4(to, row, n);
    return type == DTYPE_Q8C || type == DTYPE_Q4;
}

bool few_rows_narrow(void *row, enum dtype type, const float *x, size_t n)
{
    if (type == DTYPE_Q8C)
        narrow_q8c(row, x, n);
    else if (type == DTYPE_Q4)
        narrow_q4(row, x, n);
    return type == DTYPE_Q8C || type == DTYPE_Q4;
}
