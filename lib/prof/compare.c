/* Ratios of two measurements, with confidence intervals. */
#include "prof/compare.h"

#include "report/stat.h"

enum { EXACT_PAIRS = 400 };

static const double ONE_SIDE = 0.025; /* tail probability on each side of the 95 % interval */

/* Number of values u = 0, 1, .. with P(U <= u) <= 0.025. U, Wilcoxon's rank sum statistic, counts
 * the pairs in which the value of sample a is larger. p[i][j](u) is P(U = u) for samples of i and j
 * values: the largest of all belongs to a with probability i / (i + j), and then exceeds all j
 * values of b, so p[i][j](u) = i/(i+j) p[i-1][j](u-j) + j/(i+j) p[i][j-1](u). */
static size_t exact_rank(size_t n_a, size_t n_b)
{
    double p[COMPARE_ROUNDS + 1][EXACT_PAIRS / 2 + 1] = {{0}}, sum = 0;
    const size_t half = n_a * n_b / 2;
    for (size_t j = 0; j <= n_b; j++)
        p[j][0] = 1;
    for (size_t i = 1; i <= n_a; i++)
        for (size_t j = 1; j <= n_b; j++) {
            const double from_a = (double)i / (double)(i + j);
            for (size_t u = half + 1; u-- > 0;)
                p[j][u] = (u >= j ? from_a * p[j][u - j] : 0) + (1 - from_a) * p[j - 1][u];
        }
    for (size_t u = 0; u <= half; u++) {
        sum += p[n_b][u];
        if (sum > ONE_SIDE + 1e-12) /* 1e-12 allows for rounding: exactly 1/40 is within */
            return u;
    }
    return half; /* not reached: P(U <= half) is at least 1/2 */
}

static size_t normal_rank(size_t n_a, size_t n_b)
{
    const double pairs = (double)(n_a * n_b), z = 1.959963984540054;
    return (size_t)floor(pairs / 2 - z * sqrt(pairs * (double)(n_a + n_b + 1) / 12));
}

size_t change_rank(size_t n_a, size_t n_b)
{
    return n_a * n_b <= EXACT_PAIRS ? exact_rank(n_a, n_b) : normal_rank(n_a, n_b);
}

static double median_of(const double *x, size_t n)
{
    double sorted[COMPARE_ROUNDS];
    memcpy(sorted, x, n * sizeof *x);
    return stat_quantile(sorted, n, 0.5);
}

static bool all_positive(const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(x[i] >= 1e-12))
            return false;
    return true;
}

struct change change_of(const double *a, size_t n_a, const double *b, size_t n_b)
{
    double pair[COMPARE_ROUNDS * COMPARE_ROUNDS];
    const size_t k = change_rank(n_a, n_b), pairs = n_a * n_b;
    struct change change = {.there = all_positive(a, n_a) && all_positive(b, n_b)};
    if (!change.there)
        return change;
    change.value = median_of(b, n_b) / median_of(a, n_a);
    change.bounded = k > 0;
    if (!change.bounded)
        return change;
    for (size_t i = 0; i < n_a; i++)
        for (size_t j = 0; j < n_b; j++)
            pair[i * n_b + j] = b[j] / a[i];
    stat_quantile(pair, pairs, 0.5); /* sorts */
    change.lo = pair[k - 1];
    change.hi = pair[pairs - k];
    return change;
}

/* Number of values w = 0, 1, .. with P(W <= w) <= 0.025. W, Wilcoxon's signed rank sum, includes
 * each rank from 1 to n with probability 1/2. */
size_t change_pair_rank(size_t n)
{
    enum { MOST = COMPARE_ROUNDS * (COMPARE_ROUNDS + 1) / 2 };
    double p[MOST + 1] = {1}, sum = 0;
    size_t w = 0;
    for (size_t rank = 1; rank <= n; rank++)
        for (size_t s = rank * (rank + 1) / 2 + 1; s-- > 0;)
            p[s] = (p[s] + (s >= rank ? p[s - rank] : 0)) / 2;
    for (sum = p[0]; sum <= ONE_SIDE + 1e-12; sum += p[w])
        w++;
    return w;
}

struct change change_of_pairs(const double *a, const double *b, size_t n)
{
    double mean[COMPARE_ROUNDS * (COMPARE_ROUNDS + 1) / 2];
    const size_t k = change_pair_rank(n);
    struct change change = {.there = all_positive(a, n) && all_positive(b, n)};
    size_t means = 0;
    for (size_t i = 0; i < n && change.there; i++)
        for (size_t j = 0; j <= i; j++)
            mean[means++] = (log(b[i] / a[i]) + log(b[j] / a[j])) / 2;
    if (!change.there)
        return change;
    change.value = exp(stat_quantile(mean, means, 0.5)); /* sorts */
    change.bounded = k > 0;
    if (change.bounded) {
        change.lo = exp(mean[k - 1]);
        change.hi = exp(mean[means - k]);
    }
    return change;
}

enum verdict change_verdict(const struct change *change, bool less_is_better, double tolerance)
{
    const double most = 1 + tolerance, least = 1 / most;
    if (!change->there || !change->bounded)
        return VERDICT_NONE;
    const double lo = less_is_better ? change->lo : 1 / change->hi;
    const double hi = less_is_better ? change->hi : 1 / change->lo;
    if (lo > most)
        return VERDICT_WORSE;
    if (hi < least)
        return VERDICT_BETTER;
    return lo >= least && hi <= most ? VERDICT_SAME : VERDICT_UNCLEAR;
}

const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {"same", "better", "worse", "unclear", "no interval"};
    return names[verdict];
}

bool figure_direction(const char *name, bool *less_is_better)
{
    const size_t len = strlen(name);
    const bool time = len > 3 && strcmp(name + len - 3, "_ms") == 0;
    *less_is_better = time;
    return time || strncmp(name, "tok_s", 5) == 0;
}
