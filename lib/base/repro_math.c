/* Elementary functions by range reduction and Taylor polynomials, in double. */
#include "base/repro_math.h"

#include <float.h>

#include "base/base.h"

/* Adding and subtracting it rounds |x| < 2^51 to an integer, ties to even. */
#define ROUNDER 0x1.8p52
/* ln 2 = LN2_HIGH + LN2_LOW, the first of 32 bits: integers up to 2^21 times it are exact. */
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW  0x1.a39ef35793c76p-33

/* Sum of c[i] x^i, i < n. */
static double polynomial(const double *c, size_t n, double x)
{
    double sum = 0;
    while (n-- > 0)
        sum = sum * x + c[n];
    return sum;
}

static double bits_to_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x = n ln 2 + r; e^r is its Taylor polynomial. */
double repro_exp(double x)
{
    static const double factor[] = {1,
                                    1,
                                    1.0 / 2,
                                    1.0 / 6,
                                    1.0 / 24,
                                    1.0 / 120,
                                    1.0 / 720,
                                    1.0 / 5040,
                                    1.0 / 40320,
                                    1.0 / 362880,
                                    1.0 / 3628800,
                                    1.0 / 39916800,
                                    1.0 / 479001600,
                                    1.0 / 6227020800};
    if (!(x < 710)) /* NaN, too */
        return x * INFINITY;
    if (x < -746)
        return 0;
    const double n = (x * 0x1.71547652b82fep+0 + ROUNDER) - ROUNDER;
    const double r = (x - n * LN2_HIGH) - n * LN2_LOW;
    const int half = (int)n / 2, rest = (int)n - half; /* 2^n itself may be no normal number */
    return polynomial(factor, ARRAY_LEN(factor), r) * bits_to_double((uint64_t)(1023 + half) << 52) *
           bits_to_double((uint64_t)(1023 + rest) << 52);
}

/* x = m 2^n with m near 1; log m = 2 atanh s with s = (m - 1) / (m + 1), by its Taylor series. */
double repro_log(double x)
{
    static const double factor[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                    2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
    int n;
    if (!(x > 0))
        return x == 0 ? -INFINITY : NAN;
    if (x > DBL_MAX)
        return x;
    double m = frexp(x, &n);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        n--;
    }
    /* log m = f - f^2 / 2 + s (f^2 / 2 + terms): f is exact, and so the largest error is that of the rest */
    const double f = m - 1, s = f / (m + 1), square = s * s, half = f * f / 2;
    const double rest = s * (half + square * polynomial(factor, ARRAY_LEN(factor), square));
    return n * LN2_HIGH + (f - (half - (rest + n * LN2_LOW)));
}

/* What rounding 1 + x lost is a factor of 1 + x, so that of the logarithm's argument (Kahan). */
double repro_log1p(double x)
{
    const double sum = 1 + x;
    return sum > 1 && sum <= DBL_MAX ? repro_log(sum) * (x / (sum - 1)) : sum == 1 ? x : repro_log(sum);
}

double repro_pow(double x, double y) { return y == 0 ? 1 : repro_exp(y * repro_log(x)); }

double repro_tanh(double x)
{
    const double size = fabs(x), square = x * x;
    if (size < 0x1p-8) /* where the quotient would lose digits: Taylor's series */
        return x * (1 - square * (1.0 / 3 - square * (2.0 / 15 - square * (17.0 / 315))));
    return copysign(1 - 2 / (repro_exp(2 * size) + 1), x);
}

double repro_sigmoid(double x) { return 1 / (1 + repro_exp(-x)); }

/* x = n pi / 2 + r, with pi / 2 in three parts, of which n times the first two is exact; Taylor's series of r. */
void repro_sincos(double x, double *sine, double *cosine)
{
    static const double of_sine[] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
    static const double of_cosine[] = {
        -1.0 / 2,       1.0 / 24,        -1.0 / 720,         1.0 / 40320,
        -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000};
    const double n = (x * 0x1.45f306dc9c883p-1 + ROUNDER) - ROUNDER;
    const double r = ((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a6p-34) - n * 0x1.3198a2e037073p-69;
    const double square = r * r;
    const double s = r + r * (square * polynomial(of_sine, ARRAY_LEN(of_sine), square));
    const double c = 1 + square * polynomial(of_cosine, ARRAY_LEN(of_cosine), square);
    const int quarter = fabs(n) < 0x1p30 ? (int)n & 3 : 0;
    *sine = quarter & 1 ? c : s;
    *cosine = quarter & 1 ? s : c;
    if (quarter & 2)
        *sine = -*sine;
    if (quarter == 1 || quarter == 2)
        *cosine = -*cosine;
}

/* 1/2 + density(x) (x + x^3 / 3 + x^5 / (3 5) + ..) */
double repro_normal(double x)
{
    double term = x, sum = x;
    for (int n = 3; n < 401; n += 2) {
        term *= x * x / n;
        sum += term;
    }
    return 0.5 + repro_exp(-x * x / 2) * 0x1.9884533d43651p-2 * sum;
}
