/* A second implementation of quantised types, for tests: random matrices of codes and scales, their
 * values, and their bytes in row and packed layout, as described by quant/quant_types.h and
 * quant/pack.h. */
#ifndef BMC_TEST_FEW_REF_H
#define BMC_TEST_FEW_REF_H

#include <string.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "check.h"

/* A second table of the types: bytes of each scale or minimum, and how many inputs share it. */
static const struct quant_ref {
    enum dtype type;
    int bits, zero;
    struct {
        size_t bytes, every;
    } scale, low, d, dmin;
    bool signed_scale;
    bool codebook; /* codes are indices into quant_codebook */
    bool power;    /* of mxfp4: scales are exponents, and codes the values of FP4 */
    /* of nvfp4: scales are numbers of 4 bits of exponent and 3 of fraction, codes as in mxfp4 */
    bool e4m3;
    bool zeros;       /* minimums are integers, of which each counts as minus the scale */
    bool ternary;     /* codes are 0 to 2, packed as digits */
    bool half_scales; /* a scale byte has the scale in its low half, the minimum in its high half */
} quant_refs[] = {
    {DTYPE_Q8_0, 8, 128, {2, 32}, {0, 1}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q8_CHANNEL, 8, 128, {4, SIZE_MAX}, {0, 1}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q4_1, 4, 0, {2, 32}, {2, 32}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q4_0, 4, 8, {2, 32}, {0, 1}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q4_K, 4, 0, {1, 32}, {1, 32}, {2, 256}, {2, 256}, .signed_scale = false},
    {DTYPE_Q6_K, 6, 32, {1, 16}, {0, 1}, {2, 256}, {0, 1}, .signed_scale = true},
    {DTYPE_Q8_2L, 8, 128, {1, 16}, {1, 16}, {2, 256}, {2, 256}, .signed_scale = true},
    {DTYPE_Q5_0, 5, 16, {2, 32}, {0, 1}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q5_1, 5, 0, {2, 32}, {2, 32}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q5_K, 5, 0, {1, 32}, {1, 32}, {2, 256}, {2, 256}, .signed_scale = false},
    {DTYPE_Q3_K, 3, 4, {1, 16}, {0, 1}, {2, 256}, {0, 1}, .signed_scale = true},
    {DTYPE_Q2_K, 2, 0, {1, 16}, {0, 1}, {2, 256}, {2, 256}, .half_scales = true},
    {DTYPE_IQ4_NL, 4, 0, {2, 32}, {0, 1}, {0, 1}, {0, 1}, .codebook = true},
    {DTYPE_IQ4_XS, 4, 0, {1, 32}, {0, 1}, {2, 256}, {0, 1}, .signed_scale = true, .codebook = true},
    {DTYPE_MXFP4, 4, 0, {1, 32}, {0, 1}, {0, 1}, {0, 1}, .power = true},
    {DTYPE_NVFP4, 4, 0, {1, 16}, {0, 1}, {0, 1}, {0, 1}, .e4m3 = true},
    {DTYPE_Q1_0, 1, 1, {2, 128}, {0, 1}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q2_0, 2, 1, {2, 64}, {0, 1}, {0, 1}, {0, 1}, .signed_scale = false},
    {DTYPE_Q4_Z32, 4, 0, {2, 32}, {1, 32}, {0, 1}, {0, 1}, .zeros = true},
    {DTYPE_Q4_Z128, 4, 0, {2, 128}, {1, 128}, {0, 1}, {0, 1}, .zeros = true},
    {DTYPE_TQ2_0, 2, 1, {0, 32}, {0, 1}, {2, 256}, {0, 1}, .signed_scale = false},
    {DTYPE_TQ1_0, 2, 1, {0, 32}, {0, 1}, {2, 256}, {0, 1}, .ternary = true},
};

/* The 16 values of IQ4_NL and IQ4_XS. */
static const int quant_codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

enum { QUANT_MOST_IN = 1200, QUANT_MOST_OUT = 64, QUANT_MOST_NUMBERS = QUANT_MOST_IN / 16 };

/* A matrix of codes, and the bits of its numbers of four kinds: scale, low, d, dmin. */
struct quant_matrix {
    const struct quant_ref *ref;
    size_t out, in;
    uint8_t code[QUANT_MOST_OUT][QUANT_MOST_IN];
    uint32_t number[4][QUANT_MOST_OUT][QUANT_MOST_NUMBERS];
};

static inline size_t ref_bytes(const struct quant_ref *r, int plane)
{
    return (const size_t[]){r->scale.bytes, r->low.bytes, r->d.bytes, r->dmin.bytes}[plane];
}

static inline size_t ref_every(const struct quant_ref *r, int plane)
{
    return (const size_t[]){r->scale.every, r->low.every, r->d.every, r->dmin.every}[plane];
}

/* How many numbers of one kind (`plane`) n inputs have. */
static inline size_t ref_numbers(const struct quant_ref *r, int plane, size_t n)
{
    return ref_bytes(r, plane) ? (n - 1) / ref_every(r, plane) + 1 : 0;
}

/* ---- random ones ---- */

static uint64_t quant_state;

/* xorshift (Marsaglia, 2003) */
static inline uint32_t quant_random(void)
{
    quant_state ^= quant_state << 13;
    quant_state ^= quant_state >> 7;
    quant_state ^= quant_state << 17;
    return (uint32_t)(quant_state >> 20);
}

/* Uniform in [-1, 1). */
static inline float quant_uniform(void) { return (float)(quant_random() >> 8) * 0x1p-23f - 1; }

/* How codes are drawn: at random, all the lowest, all the highest, or these two in turns of 3. */
enum quant_draw { DRAW_ANY, DRAW_LOWEST, DRAW_HIGHEST, DRAW_TURNS, DRAWS };

static inline uint8_t draw_code(const struct quant_ref *r, enum quant_draw draw, size_t k)
{
    const unsigned most = r->ternary ? 2 : (1u << r->bits) - 1;
    const bool high = draw == DRAW_HIGHEST || (draw == DRAW_TURNS && k / 3 % 2);
    return (uint8_t)(draw == DRAW_ANY ? quant_random() % (most + 1) : high ? most : 0);
}

/* An exponent of a scale: of a number from 2^-9 to 2^-5. */
static inline uint32_t draw_exponent(void) { return 118 + quant_random() % 5; }

/* A random number of `bytes` bytes: a byte, or an f16 or f32 of either sign from 2^-9 to 2^-5. */
static inline uint32_t draw_number(size_t bytes)
{
    const float x = (quant_random() % 2 ? 1.f : -1.f) *
                    ldexpf(1 + quant_uniform() / 2, -6 - (int)(quant_random() % 3));
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bytes == 1 ? quant_random() & 255 : bytes == 2 ? f16_from_f32(x) : bits;
}

static inline void quant_draw(struct quant_matrix *m, const struct quant_ref *r, size_t out, size_t in,
                              enum quant_draw draw)
{
    m->ref = r;
    m->out = out;
    m->in = in;
    for (size_t o = 0; o < out; o++) {
        for (size_t k = 0; k < in; k++)
            m->code[o][k] = draw_code(r, draw, k);
        for (int p = 0; p < 4; p++)
            for (size_t i = 0; i < ref_numbers(r, p, in); i++)
                m->number[p][o][i] = r->power ? draw_exponent() : draw_number(ref_bytes(r, p));
    }
}

/* ---- what they stand for ---- */

/* The value of an f16 by its definition. */
static inline double f16_value(uint32_t bits)
{
    const int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    const double x = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return bits >> 15 ? -x : x;
}

static inline double number_of(const struct quant_matrix *m, int plane, size_t o, size_t k)
{
    if (m->ref->half_scales && plane < 2)
        return m->number[0][o][k / ref_every(m->ref, 0)] >> 4 * plane & 15;
    const size_t bytes = ref_bytes(m->ref, plane);
    const uint32_t bits = m->number[plane][o][k / ref_every(m->ref, plane)];
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    if (m->ref->power)
        return ldexp(1, (int)bits - 127);
    if (m->ref->e4m3) {
        const int exponent = (int)(bits >> 3 & 15), fraction = (int)(bits & 7);
        return exponent ? ldexp(8 + fraction, exponent - 10) : ldexp(fraction, -9);
    }
    if (bytes == 1)
        return plane == 0 && m->ref->signed_scale ? (double)(int8_t)bits : (double)bits;
    return bytes == 2 ? f16_value(bits) : (double)wide;
}

/* The scale of an element, in mxfp4 and nvfp4 of twice its code's value; products of an f16 and a byte are exact. */
static inline float step_of(const struct quant_matrix *m, size_t o, size_t k)
{
    if (m->ref->power || m->ref->e4m3)
        return (float)(number_of(m, 0, o, k) / 2);
    if (!m->ref->scale.bytes)
        return (float)number_of(m, 2, o, k);
    return (float)(number_of(m, 0, o, k) * (m->ref->d.bytes ? number_of(m, 2, o, k) : 1));
}

static inline float base_of(const struct quant_matrix *m, size_t o, size_t k)
{
    if (!m->ref->low.bytes && !m->ref->half_scales)
        return 0;
    if (m->ref->zeros)
        return (float)-(number_of(m, 0, o, k) * number_of(m, 1, o, k));
    return (float)(m->ref->d.bytes ? -(number_of(m, 3, o, k) * number_of(m, 1, o, k))
                                   : number_of(m, 1, o, k));
}

/* An element of the OCP's FP4: sign, 2 bits of exponent, a bit of fraction. */
static inline float fp4_of(unsigned code)
{
    const int exponent = (int)(code >> 1 & 3), fraction = (int)(code & 1);
    const float x = exponent ? ldexpf(2 + (float)fraction, exponent - 2) : (float)fraction / 2;
    return code & 8 ? -x : x;
}

static inline int whole_of(const struct quant_matrix *m, size_t o, size_t k)
{
    if (m->ref->bits == 1)
        return m->code[o][k] ? 1 : -1;
    if (m->ref->power || m->ref->e4m3)
        return (int)(2 * fp4_of(m->code[o][k]));
    return m->ref->codebook ? quant_codebook[m->code[o][k]] : m->code[o][k] - m->ref->zero;
}

static inline float value_of(const struct quant_matrix *m, size_t o, size_t k)
{
    return fmaf(step_of(m, o, k), (float)whole_of(m, o, k), base_of(m, o, k));
}

/* ---- how they lie ---- */

static inline unsigned char *put_number(unsigned char *at, const struct quant_matrix *m, int plane,
                                        size_t o, size_t i)
{
    const bool there = o < m->out && i < ref_numbers(m->ref, plane, m->in);
    for (size_t b = 0; b < ref_bytes(m->ref, plane); b++)
        *at++ = (unsigned char)(there ? m->number[plane][o][i] >> 8 * b : 0);
    return at;
}

static inline unsigned code_or_0(const struct quant_matrix *m, size_t o, size_t k)
{
    return o < m->out && k < m->in ? m->code[o][k] : 0;
}

/* Writes output o in row layout; returns the end. */
static inline unsigned char *put_row(unsigned char *at, const struct quant_matrix *m, size_t o)
{
    if (m->ref->bits != 4)
        for (size_t k = 0; k < m->in; k++)
            *at++ = m->code[o][k];
    else
        for (size_t k = 0; k < m->in; k += 32)
            for (size_t i = 0; i < 16; i++)
                *at++ = (unsigned char)(code_or_0(m, o, k + i) | code_or_0(m, o, k + 16 + i) << 4);
    for (int p = 0; p < 4; p++)
        for (size_t i = 0; i < ref_numbers(m->ref, p, m->in); i++)
            at = put_number(at, m, p, o, i);
    return at;
}

/* The same of ternary types. 64 bytes of inputs j, 4 + j .. 16 + j: five digits d of a number as
 * 256 / 243 of it, rounded up. Then the other three digits: 4 bits of the number each, two bytes for an
 * output, and the fifth bits, half a byte for an output: outputs 0 to 7 in lower halves. */
static inline unsigned char *put_ternary(unsigned char *at, const struct quant_matrix *m, size_t o,
                                         size_t k)
{
    memset(at + 64, 0, 40);
    for (size_t lane = 0; lane < 16; lane++)
        for (size_t j = 0; j < 4; j++) {
            unsigned five = 0, three = 0;
            for (size_t i = 0; i < 5; i++)
                five = 3 * five + code_or_0(m, o + lane, k + 4 * i + j);
            for (size_t i = 5; i < 8; i++)
                three = 3 * three + code_or_0(m, o + lane, k + 4 * i + j);
            at[4 * lane + j] = (unsigned char)ceil(five * 256 / 243.0);
            at[64 + 2 * lane + j / 2] |= (unsigned char)((three & 15) << 4 * (j % 2));
            at[96 + lane % 8] |= (unsigned char)((three >> 4) << (4 * (lane / 8) + j));
        }
    return at + 104;
}

/* Writes the codes of a packed block of 16 outputs from `o` for inputs [k, k + 32); returns the
 * end. */
static inline unsigned char *put_cell(unsigned char *at, const struct quant_matrix *m, size_t o,
                                      size_t k)
{
    const int bits = m->ref->bits;
    if (m->ref->ternary)
        return put_ternary(at, m, o, k);
    for (int width = 8, from = 0; width; width /= 2) { /* bits [from, from + width) of the codes */
        if (!(bits & width))
            continue;
        const size_t a_byte = 8 / (size_t)width; /* codes in a byte, which are 4 inputs apart */
        for (size_t i = 0; i < 32; i += 4 * a_byte)
            for (size_t byte = 0; byte < 64; byte++, at++) {
                *at = 0;
                for (size_t j = 0; j < a_byte; j++)
                    *at |=
                        (unsigned char)((code_or_0(m, o + byte / 4, k + i + 4 * j + byte % 4) >> from &
                                         ((1u << width) - 1))
                                        << (int)j * width);
            }
        from += width;
    }
    return at;
}

/* Writes all blocks in packed layout, each padded to a multiple of 64 bytes; returns the end. */
static inline unsigned char *put_packed(unsigned char *at, const struct quant_matrix *m)
{
    const unsigned char *begin = at;
    const size_t padded = (m->in + 31) / 32 * 32;
    for (size_t o = 0; o < m->out; o += 16) {
        for (size_t k = 0; k < padded; k += 32)
            at = put_cell(at, m, o, k);
        for (int p = 0; p < 4; p++)
            for (size_t i = 0; i < ref_numbers(m->ref, p, padded); i++)
                for (size_t lane = 0; lane < 16; lane++)
                    at = put_number(at, m, p, o + lane, i);
        while ((at - begin) % 64)
            *at++ = 0;
    }
    return at;
}

#endif
