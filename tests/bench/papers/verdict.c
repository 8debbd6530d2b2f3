/* Judges claims. */
#include "verdict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/stat.h"

enum { MOST_SAMPLES = 1000 };

/* A size agrees if the interval reaches the paper's within this factor; "equal" needs all of the
 * interval within EQUAL. */
static const double AGREES = 1.25, EQUAL = 1.1;

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double verdict_coverage(size_t n, size_t k)
{
    double term = exp2(-(double)n), below = 0;
    for (size_t i = 0; i < k; i++) {
        below += term;
        term *= (double)(n - i) / (double)(i + 1);
    }
    return fmax(100 * (1 - 2 * below), 0);
}

static int read_ratio(const json_t *claim, struct ratio *r, struct err *err)
{
    const json_t *samples = json_object_get(claim, "samples");
    const bool exact = json_is_true(json_object_get(claim, "exact"));
    double x[MOST_SAMPLES];
    const size_t n = json_array_size(samples);
    if (n > MOST_SAMPLES)
        return err_set(err, "a claim has %zu samples: at most %d", n, MOST_SAMPLES);
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(samples, i);
        x[i] = json_number_value(value);
        if (!json_is_number(value) || !isfinite(x[i]) || x[i] <= 0)
            return err_set(err, "sample %zu of a claim is not a positive number", i);
    }
    *r = (struct ratio){.median = NAN, .lo = NAN, .hi = NAN, .n = n};
    if (n == 0)
        return 0;
    qsort(x, n, sizeof *x, ascending);
    size_t k = 1;
    while (2 * (k + 1) <= n && verdict_coverage(n, k + 1) >= 95)
        k++;
    r->median = stat_quantile(x, n, 0.5);
    r->lo = x[k - 1];
    r->hi = x[n - k];
    r->coverage = exact ? 100 : (int)verdict_coverage(n, k);
    return 0;
}

/* The paper's ratio, and the direction of its claim: 1 above 1, -1 below 1, 0 equal. */
static int read_paper(const json_t *claim, struct judged *j, int *direction, struct err *err)
{
    const json_t *paper = json_object_get(claim, "paper"), *given = json_object_get(claim, "direction");
    j->paper_lo = j->paper_hi = NAN;
    if (json_array_size(paper) == 2) {
        j->paper_lo = json_number_value(json_array_get(paper, 0));
        j->paper_hi = json_number_value(json_array_get(paper, 1));
        if (!(j->paper_lo > 0 && j->paper_lo <= j->paper_hi && isfinite(j->paper_hi)))
            return err_set(err, "a claim's \"paper\" is not an ascending pair of positive numbers");
        *direction = j->paper_lo > 1 ? 1 : j->paper_hi < 1 ? -1 : 0;
        if (!json_is_integer(given))
            return 0;
    }
    if (!json_is_integer(given) || llabs(json_integer_value(given)) > 1)
        return err_set(err, "a claim needs \"paper\": [LEAST, LARGEST] or \"direction\": 1, -1 or 0");
    *direction = (int)json_integer_value(given);
    return 0;
}

/* True if the interval reaches [lo, hi] within `factor`. */
static bool reaches(const struct ratio *r, double lo, double hi, double factor)
{
    return r->hi * factor >= lo && r->lo <= hi * factor;
}

/* The outcome of a claim that the ratio is in [lo, hi]. */
static enum outcome judge_equality(const struct ratio *r, double lo, double hi)
{
    if (r->lo * EQUAL >= lo && r->hi <= hi * EQUAL)
        return OUTCOME_HOLDS;
    return reaches(r, lo, hi, EQUAL) ? OUTCOME_UNDECIDED : OUTCOME_FAILS;
}

int verdict_judge(const json_t *claim, struct judged *j, struct err *err)
{
    int direction = 0;
    if (read_ratio(claim, &j->ratio, err) < 0 || read_paper(claim, j, &direction, err) < 0)
        return -1;
    const struct ratio *r = &j->ratio;
    const bool sized = isfinite(j->paper_lo);
    if (r->coverage < 50) {
        j->outcome = OUTCOME_NOTHING;
        return 0;
    }
    if (direction == 0) {
        j->outcome = judge_equality(r, sized ? j->paper_lo : 1, sized ? j->paper_hi : 1);
        return 0;
    }
    const bool agrees = direction > 0 ? r->lo > 1 : r->hi < 1;
    const bool contradicts = direction > 0 ? r->hi <= 1 : r->lo >= 1;
    const bool size = !sized || reaches(r, j->paper_lo, j->paper_hi, AGREES);
    j->outcome = agrees           ? size ? OUTCOME_HOLDS : OUTCOME_IN_PART
                 : contradicts    ? OUTCOME_FAILS
                 : sized && !size ? OUTCOME_FAILS
                                  : OUTCOME_UNDECIDED;
    return 0;
}

enum outcome verdict_of_all(const struct judged *judged, size_t n)
{
    size_t count[OUTCOME_NOTHING + 1] = {0};
    for (size_t i = 0; i < n; i++)
        count[judged[i].outcome]++;
    if (count[OUTCOME_NOTHING] == n)
        return OUTCOME_NOTHING;
    if (count[OUTCOME_HOLDS] + count[OUTCOME_IN_PART] + count[OUTCOME_FAILS] == 0)
        return OUTCOME_UNDECIDED;
    if (count[OUTCOME_IN_PART] == 0 && count[OUTCOME_FAILS] == 0)
        return OUTCOME_HOLDS;
    return count[OUTCOME_HOLDS] + count[OUTCOME_IN_PART] == 0 ? OUTCOME_FAILS : OUTCOME_IN_PART;
}

const char *verdict_name(enum outcome outcome)
{
    static const char *const names[] = {"holds", "holds in part", "does not hold", "undecided",
                                        "not measured"};
    return names[outcome];
}
