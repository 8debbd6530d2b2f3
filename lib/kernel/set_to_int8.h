/* Rows become int8. Included by set_int8.h. */

/* Joins the lanes of x, in halves. */
#if VW > 8
#define FOLD_16(x, JOIN) JOIN(x, FLIPPED(x, 8));
#else
#define FOLD_16(x, JOIN)
#endif
#if VW > 4
#define FOLD_8(x, JOIN) JOIN(x, FLIPPED(x, 4));
#else
#define FOLD_8(x, JOIN)
#endif
#define FOLD_LANES(x, JOIN)                                                                            \
    FOLD_16(x, JOIN) FOLD_8(x, JOIN) JOIN(x, FLIPPED(x, 2));                                           \
    JOIN(x, FLIPPED(x, 1))
#define ADD_TO(x, other)  ((x) += (other))
#define MOST_OF(x, other) ((x) = larger(x, other))

INLINE vi larger(vi a, vi b)
{
    const vi above = a > b;
    return (a & above) | (b & ~above);
}

INLINE vi abs_bits(const float *x) { return (vi)vu_load(x) & 0x7fffffff; }

/* The bits of the largest |x| of n: as whole numbers they have the same order, and what is not finite is above all. */
INLINE int32_t most_bits(const float *x, size_t n)
{
    const size_t whole = n / VW * VW;
    int32_t most = 0, bits;
    vi all = {0};
    for (size_t i = 0; i < whole; i += VW)
        all = larger(all, abs_bits(x + i));
    FOLD_LANES(all, MOST_OF);
    most = all[0];
    for (size_t i = whole; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* FEW_HALF codes, and their sum. */
INLINE int32_t codes_of_half(int8_t *code, const float *x, float inverse)
{
    vi sum = {0};
    for (int i = 0; i < FEW_HALF; i += VW) {
        const vi whole = (vi)(vf_load(x + i) * vf_set1(inverse) + vf_set1(WHOLE_FLOAT)) - WHOLE_BITS;
        vi_store_i8(code + i, whole);
        sum += whole;
    }
    FOLD_LANES(sum, ADD_TO);
    return sum[0];
}

/* Less than FEW_HALF of them. */
static int32_t codes_of_rest(int8_t *code, const float *x, size_t n, float inverse)
{
    float padded[FEW_HALF] = {0};
    int8_t codes[FEW_HALF];
    memcpy(padded, x, n * sizeof *x);
    codes_of_half(codes, padded, inverse);
    memcpy(code, codes, n);
    int32_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += code[i];
    return all;
}

/* n numbers that have one scale. */
INLINE void group_to_int8(int8_t *code, float *scale, int32_t *sum, const float *x, size_t n)
{
    const int32_t bits = most_bits(x, n);
    const bool finite = bits < 0x7f800000;
    float most;
    memcpy(&most, &bits, sizeof most);
    /* Nothing is left of numbers so small that it has no end. */
    const float inverse = 127 / most < INFINITY ? 127 / most : 0;
    for (size_t g = 0; g < div_up(n, FEW_GROUP); g++)
        scale[g] = finite ? most / 127 : NAN;
    if (!finite) {
        memset(code, 0, n);
        memset(sum, 0, div_up(n, FEW_HALF) * sizeof *sum);
        return;
    }
    for (; n >= FEW_HALF; n -= FEW_HALF, code += FEW_HALF, x += FEW_HALF)
        *sum++ = codes_of_half(code, x, inverse);
    if (n > 0)
        *sum = codes_of_rest(code, x, n, inverse);
}

static void to_int8(int8_t *code, float *scale, int32_t *sum, const float *x, size_t n, size_t group)
{
    size_t from = 0;
    for (; group == FEW_GROUP && from + FEW_GROUP <= n;
         from += FEW_GROUP) /* a size that compilers know */
        group_to_int8(code + from, scale++, sum + from / FEW_HALF, x + from, FEW_GROUP);
    if (from < n)
        group_to_int8(code + from, scale, sum + from / FEW_HALF, x + from, n - from);
}
