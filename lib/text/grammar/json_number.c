/* Ranges of numbers as automata over their digits. */
#include "text/grammar/json_number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "text/grammar/json_multiple.h"

/* Digits that a double keeps; digits of 64 bits; digits of a bound after the point. */
enum { DIGITS = 15, MAX_DIGITS = 20, MAX_FRACTION = 18 };

/* ---- digits of one length, between two bounds ---- */

struct digit_range {
    struct grammar *grammar;
    size_t fraction; /* digits after the point */
};

static expr_id digit(struct grammar *g, char first, char last)
{
    return first > last ? EXPR_NONE : expr_range(g, (uint32_t)first, (uint32_t)last);
}

/* n digits, of which the last ones are after the point. */
static expr_id any_digits(const struct digit_range *r, size_t n)
{
    struct grammar *g = r->grammar;
    const size_t after = size_min(n, r->fraction);
    const bool point = r->fraction > 0 && n >= r->fraction;
    return EXPR_SEQ(g, expr_repeat(g, digit(g, '0', '9'), (uint32_t)(n - after), (uint32_t)(n - after)),
                    point ? expr_text(g, ".") : EXPR_EMPTY,
                    expr_repeat(g, digit(g, '0', '9'), (uint32_t)after, (uint32_t)after));
}

/* The digits of n between lo[n] and hi[n]; NULL: no bound. */
static expr_id digits_between(const struct digit_range *r, const char *lo, const char *hi, size_t n)
{
    struct grammar *g = r->grammar;
    const expr_id point = r->fraction && n == r->fraction ? expr_text(g, ".") : EXPR_EMPTY;
    if (n == 0)
        return EXPR_EMPTY;
    if (!lo && !hi)
        return any_digits(r, n);
    const char first = lo ? *lo : '0', last = hi ? *hi : '9';
    if (lo && hi && first == last)
        return EXPR_SEQ(g, point, digit(g, first, first), digits_between(r, lo + 1, hi + 1, n - 1));
    expr_id list[3];
    size_t k = 0;
    if (lo)
        list[k++] = EXPR_SEQ(g, digit(g, first, first), digits_between(r, lo + 1, NULL, n - 1));
    if (hi)
        list[k++] = EXPR_SEQ(g, digit(g, last, last), digits_between(r, NULL, hi + 1, n - 1));
    const expr_id between = digit(g, (char)(first + (lo != NULL)), (char)(last - (hi != NULL)));
    if (between != EXPR_NONE) {
        struct digit_range rest = *r;
        list[k++] = EXPR_SEQ(g, between, digits_between(&rest, NULL, NULL, n - 1));
    }
    return EXPR_SEQ(g, point, expr_alt(g, list, k));
}

/* Numbers n / 10 ^ fraction for n from lo to hi, without sign. */
static expr_id magnitudes(struct grammar *g, uint64_t lo, uint64_t hi, size_t fraction)
{
    const struct digit_range range = {g, fraction};
    struct expr_list list = {0};
    uint64_t power = 1; /* the lowest number of `n` digits */
    for (size_t n = 1; n < MAX_DIGITS && lo <= hi; n++, power *= 10) {
        const uint64_t last = n == MAX_DIGITS - 1 ? UINT64_MAX : power * 10 - 1;
        const uint64_t from = n <= fraction + 1 ? 0 : power; /* leading zeros before the point: one */
        const uint64_t a = lo > from ? lo : from, b = hi < last ? hi : last;
        char low[MAX_DIGITS + 2], high[MAX_DIGITS + 2];
        if (n <= fraction || a > b)
            continue;
        snprintf(low, sizeof low, "%0*llu", (int)n, (unsigned long long)a);
        snprintf(high, sizeof high, "%0*llu", (int)n, (unsigned long long)b);
        expr_list_add(g, &list, digits_between(&range, low, high, n));
    }
    const expr_id id = expr_alt(g, list.id, list.n);
    expr_list_release(&list);
    return id;
}

/* Numbers n / 10 ^ fraction for n from lo to hi. */
static expr_id scaled_range(struct grammar *g, int64_t lo, int64_t hi, size_t fraction)
{
    expr_id list[2];
    size_t n = 0;
    if (lo > hi)
        return EXPR_NONE;
    if (hi >= 0)
        list[n++] = magnitudes(g, lo > 0 ? (uint64_t)lo : 0, (uint64_t)hi, fraction);
    if (lo < 0)
        list[n++] = EXPR_SEQ(g, expr_text(g, "-"),
                             magnitudes(g, hi < 0 ? (uint64_t)-hi : 1, (uint64_t)-lo, fraction));
    return expr_alt(g, list, n);
}

/* ---- bounds ---- */

/* A number digits / 10 ^ fraction. */
struct decimal {
    int64_t digits;
    size_t fraction;
};

/* The shortest decimal of a number; false if it has too many digits. */
static bool read_decimal(const json_t *value, struct decimal *d)
{
    char text[NUMBER_TEXT_SIZE];
    int64_t exponent = 0;
    size_t digits = 0;
    bool negative = false, after = false;
    *d = (struct decimal){0};
    if (json_is_integer(value)) {
        d->digits = json_integer_value(value);
        return d->digits > -1000000000000000000 && d->digits < 1000000000000000000;
    }
    number_text(json_real_value(value), text);
    for (const char *c = text; *c; c++) {
        if (*c == 'e' || *c == 'E') {
            (void)parse_int64(c[1] == '+' ? c + 2 : c + 1, &exponent);
            break;
        }
        negative = negative || *c == '-';
        after = after || *c == '.';
        if (*c < '0' || *c > '9')
            continue;
        if (++digits > 18)
            return false;
        d->digits = d->digits * 10 + (*c - '0');
        d->fraction += after;
    }
    for (; exponent > 0; exponent--) {
        if (d->fraction)
            d->fraction--;
        else if (++digits > 18)
            return false;
        else
            d->digits *= 10;
    }
    for (; d->digits && d->digits % 10 == 0 && d->fraction; d->fraction--)
        d->digits /= 10;
    d->fraction += (size_t)-exponent;
    if (!d->digits)
        d->fraction = 0;
    d->digits = negative ? -d->digits : d->digits;
    return d->fraction <= MAX_FRACTION;
}

static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int64_t power_of_10(size_t n)
{
    int64_t power = 1;
    while (n-- > 0)
        power *= 10;
    return power;
}

/* The lowest (`sign` 1) or highest (-1) n with n / 10 ^ fraction inside a bound; false: beyond 18
 * digits. */
static bool scale(const struct decimal *d, bool exclusive, int sign, size_t fraction, int64_t *n)
{
    const int64_t x = sign * d->digits; /* as a lower bound */
    if (fraction >= d->fraction) {
        if (__builtin_mul_overflow(x, power_of_10(fraction - d->fraction), n))
            return false;
        *n += exclusive;
    } else {
        const int64_t unit = power_of_10(d->fraction - fraction);
        *n = exclusive ? floor_div(x, unit) + 1 : -floor_div(-x, unit);
    }
    *n *= sign;
    return *n > -1000000000000000000 && *n < 1000000000000000000;
}

static expr_id too_many_digits(struct grammar *g)
{
    return grammar_fail(g, "a bound of numbers has more than %d digits", DIGITS);
}

static size_t whole_digits(const struct decimal *d)
{
    int64_t whole = d->digits / power_of_10(d->fraction);
    size_t n = 1;
    for (whole = whole < 0 ? -whole : whole; whole > 9; whole /= 10)
        n++;
    return n;
}

/* The n that two bounds of n / 10 ^ fraction include: [*lo, *high]; false: a bound has too many digits. */
static bool scaled_bounds(const struct number_bound *min, const struct number_bound *max,
                          size_t fraction, int64_t *lo, int64_t *hi)
{
    struct decimal low = {0}, high = {0};
    if ((min->value &&
         (!read_decimal(min->value, &low) || !scale(&low, min->exclusive, 1, fraction, lo))) ||
        (max->value &&
         (!read_decimal(max->value, &high) || !scale(&high, max->exclusive, -1, fraction, hi))))
        return false;
    if (!max->value)
        *hi = power_of_10(size_min(18, size_max(DIGITS, whole_digits(&low) + fraction))) - 1;
    if (!min->value)
        *lo = 1 - power_of_10(size_min(18, size_max(DIGITS, whole_digits(&high) + fraction)));
    return true;
}

expr_id json_integer_range(struct json_grammar *j, const struct number_bound *min,
                           const struct number_bound *max)
{
    int64_t lo = 0, hi = 0;
    if (!min->value && !max->value)
        return json_integer_any(j);
    return scaled_bounds(min, max, 0, &lo, &hi) ? scaled_range(j->grammar, lo, hi, 0)
                                                : too_many_digits(j->grammar);
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Two decimals as multiples of the same power of ten; false: they have too many digits. */
static bool same_fraction(const json_t *x, const json_t *y, int64_t *a, int64_t *b, size_t *fraction)
{
    struct decimal m, n;
    if (!read_decimal(x, &m) || !read_decimal(y, &n))
        return false;
    *fraction = size_max(m.fraction, n.fraction);
    return !__builtin_mul_overflow(m.digits, power_of_10(*fraction - m.fraction), a) &&
           !__builtin_mul_overflow(n.digits, power_of_10(*fraction - n.fraction), b);
}

bool json_is_multiple(const json_t *value, const json_t *factor)
{
    int64_t a, b;
    size_t fraction;
    return same_fraction(value, factor, &a, &b, &fraction) && b && a % b == 0;
}

json_t *json_common_multiple(const json_t *x, const json_t *y)
{
    enum { EXACT_POWER = 22 }; /* of ten, as a double */
    int64_t a, b, product;
    size_t fraction;
    if (!same_fraction(x, y, &a, &b, &fraction) || a <= 0 || b <= 0 ||
        __builtin_mul_overflow(a / common_divisor(a, b), b, &product))
        return NULL;
    if (!fraction)
        return json_integer(product);
    return fraction <= EXACT_POWER && product < (int64_t)1 << 53
               ? json_real((double)product / (double)power_of_10(fraction))
               : NULL;
}

/* Multiples with up to as many digits after the point as the factor has: those with fewer are multiples of a larger
 * factor. */
expr_id json_number_multiples(struct json_grammar *j, const json_t *factor, bool integer,
                              const struct number_bound *min, const struct number_bound *max)
{
    struct grammar *g = j->grammar;
    struct decimal d;
    expr_id list[DIGITS];
    if (!read_decimal(factor, &d) || d.fraction >= DIGITS)
        return grammar_fail(g, "a factor (multipleOf) has more than %d digits", DIGITS);
    for (size_t m = 0; m <= d.fraction; m++) {
        int64_t lo = 0, hi = 0;
        const int64_t own = d.digits / common_divisor(d.digits, power_of_10(d.fraction - m));
        if (!scaled_bounds(min, max, m, &lo, &hi))
            return too_many_digits(g);
        list[m] = integer && m ? EXPR_NONE : json_multiples(g, (uint64_t)own, m, lo, hi);
    }
    return expr_alt(g, list, d.fraction + 1);
}

expr_id json_number_range(struct json_grammar *j, const struct number_bound *min,
                          const struct number_bound *max)
{
    enum { OPEN_WHOLE = 9, OPEN_FRACTION = 6 }; /* digits where no bound says more */
    struct grammar *g = j->grammar;
    struct decimal low = {0}, high = {0};
    struct expr_list list = {0};
    if (!min->value && !max->value)
        return json_number_any(j);
    if ((min->value && !read_decimal(min->value, &low)) ||
        (max->value && !read_decimal(max->value, &high)))
        return too_many_digits(g);
    size_t whole = size_max(whole_digits(&low), whole_digits(&high));
    if (!min->value || !max->value)
        whole = size_max(whole + (whole < DIGITS), OPEN_WHOLE);
    if (whole > DIGITS)
        return too_many_digits(g);
    /* bounds with more digits lose them to the inside of the range */
    const size_t given = size_max(low.fraction, high.fraction);
    const size_t fraction = size_min(size_max(given, OPEN_FRACTION), DIGITS - whole);
    const struct decimal most = {power_of_10(whole) - 1, 0}, least = {1 - power_of_10(whole), 0};
    for (size_t m = 0; m <= fraction; m++) {
        int64_t lo, hi;
        if (!scale(min->value ? &low : &least, min->value && min->exclusive, 1, m, &lo) ||
            !scale(max->value ? &high : &most, max->value && max->exclusive, -1, m, &hi)) {
            expr_list_release(&list);
            return too_many_digits(g);
        }
        expr_list_add(g, &list, scaled_range(g, lo, hi, m));
    }
    const expr_id id = expr_alt(g, list.id, list.n);
    expr_list_release(&list);
    return id;
}
