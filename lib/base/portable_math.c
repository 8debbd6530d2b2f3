/* The exponential function and the logarithm from basic operations. */
#include "base/portable_math.h"

/* ln 2 as the sum of its leading 37 bits, whose products with exponents are exact, and of the rest. */
#define LN2_HIGH    0x1.62e42fefap-1
#define LN2_LOW     0x1.cf79abc9e3b39p-40
#define INVERSE_LN2 0x1.71547652b82fep+0

double portable_exp(double x)
{
    static const double term[] = {
        1,          1 / 2.,      1 / 6.,       1 / 24.,       1 / 120.,       1 / 720.,       1 / 5040.,
        1 / 40320., 1 / 362880., 1 / 3628800., 1 / 39916800., 1 / 479001600., 1 / 6227020800.};
    if (!(x > -746)) /* below half the least subnormal number; or NaN */
        return x <= -746 ? 0 : x;
    if (x > 710)
        return INFINITY;
    const double k = (double)(int)(x * INVERSE_LN2 + (x < 0 ? -0.5 : 0.5));
    const double r =
        x - k * LN2_HIGH - k * LN2_LOW; /* |r| <= ln 2 / 2: terms beyond r^13 are below 2^-57 */
    double sum = 0;
    for (size_t i = ARRAY_LEN(term); i-- > 0;)
        sum = (sum + term[i]) * r;
    if (fabs(k) > 1021)
        return ldexp(1 + sum, (int)k);
    const uint64_t bits = (uint64_t)(1023 + (int)k)
                          << 52; /* 2^k, as ldexp() takes a third of the time */
    double power;
    memcpy(&power, &bits, sizeof power);
    return (1 + sum) * power;
}

double portable_log(double x)
{
    int k;
    if (!(x > 0) || isinf(x))
        return x == 0 ? -INFINITY : x > 0 ? x : NAN;
    double m = frexp(x, &k);
    if (m < 0x1.6a09e667f3bcdp-1) { /* 1 / sqrt(2) */
        m *= 2;
        k--;
    }
    /* log m = 2 artanh(f) = 2 (f + f^3 / 3 + ..) with |f| < 0.172: terms beyond f^21 are below 2^-59 f */
    const double f = (m - 1) / (m + 1), square = f * f;
    double sum = 0;
    for (int i = 21; i > 1; i -= 2)
        sum = (sum + 2. / i) * square;
    return k * LN2_HIGH + (2 * f + (f * sum + k * LN2_LOW));
}

double portable_pow(double x, double y) { return y == 0 ? 1 : portable_exp(y * portable_log(x)); }
