/* bmc-prof compare: ratios, confidence intervals and verdicts against values computed by hand; the
 * reader of its input. */
#include "prof/compare.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"
#include "prof/samples.h"

/* ---- ranks ---- */

/* Rank-sum test: change_rank(a, b) is the number of values u for which the statistic U is at most u
 * in no more than one in 40 of the C(a+b, a) orders of a and b rounds. */
static void test_ranks(void)
{
    static const struct {
        size_t a, b, k;
        const char *why;
    } cases[] = {
        {1, 1, 0, "2 orders"},
        {3, 3, 0, "20 orders: 1 in 20"},
        {3, 4, 0, "35 orders: 1 in 35"},
        {3, 5, 1, "56 orders: 1 in 56, with U = 1 2 in 56"},
        {4, 4, 1, "70 orders: 1 in 70, with U = 1 2 in 70"},
        {5, 5, 3, "252 orders: 1, 2, 4 of them are 6.3 at most, 7 are not"},
        {1, 38, 0, "39 orders"},
        {1, 39, 1, "40 orders: 1 in 40"},
        {6, 6, 6, "critical value 5 of the tables"},
        {8, 8, 14, "13"},
        {10, 10, 24, "23"},
        {20, 20, 128, "127"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const size_t k = change_rank(cases[i].a, cases[i].b);
        check(k == cases[i].k, "%zu and %zu rounds: rank %zu, %zu wanted (%s)", cases[i].a, cases[i].b,
              k, cases[i].k, cases[i].why);
        check(change_rank(cases[i].b, cases[i].a) == k, "%zu and %zu rounds: not symmetric", cases[i].a,
              cases[i].b);
    }
    /* 64 * 64 / 2 - 1.96 sqrt(64 * 64 * 129 / 12) = 1636.7 */
    check(change_rank(64, 64) == 1636, "64 and 64 rounds: rank %zu", change_rank(64, 64));
    for (size_t a = 1; a <= COMPARE_ROUNDS; a++)
        for (size_t b = 1; b <= COMPARE_ROUNDS; b++)
            check(change_rank(a, b) <= (a * b + 1) / 2, "%zu and %zu rounds: rank %zu", a, b,
                  change_rank(a, b));
}

/* ---- ratios ---- */

static void test_ratios(void)
{
    /* Four rounds each: the interval is the whole range. 23 / 11.5; 20 / 13 and 26 / 10. */
    const double a[] = {13, 10, 12, 11}, b[] = {26, 22, 20, 24};
    struct change r = change_of(a, 4, b, 4);
    check(r.there && r.bounded && near(r.value, 2, 1e-15), "ratio of medians: %g", r.value);
    check(near(r.lo, 20.0 / 13, 1e-15) && near(r.hi, 2.6, 1e-15), "interval: %g to %g", r.lo, r.hi);
    check(a[0] == 13 && b[0] == 26, "the rounds were reordered");
    /* Five rounds each, 1, 2, 4, 8, 16: the ratio 2^d occurs 5 - |d| times, so the third is 1/8
     * (1/16, 1/8, 1/8). */
    const double c[] = {1, 2, 4, 8, 16};
    r = change_of(c, 5, c, 5);
    check(r.value == 1 && r.lo == 0.125 && r.hi == 8, "powers of two: %g, %g to %g", r.value, r.lo,
          r.hi);
    r = change_of(c, 3, c, 3);
    check(r.there && !r.bounded && r.value == 1, "three rounds have no interval");
    r = change_of((double[]){0, 1}, 2, c, 5);
    check(!r.there, "a ratio with 0");
    r = change_of(c, 5, (double[]){1, 2, 3, 4, 0}, 5);
    check(!r.there, "a ratio of 0");
}

/* Published critical values of the two-sided signed-rank test at 5 %; the confidence interval
 * begins at the next rank. */
static void test_pair_ranks(void)
{
    static const struct {
        size_t n;
        int critical; /* -1: none */
    } cases[] = {{1, -1},  {5, -1},  {6, 0},   {7, 2},   {8, 3},   {9, 5},   {10, 8},
                 {11, 10}, {12, 13}, {13, 17}, {14, 21}, {15, 25}, {20, 52}, {25, 89}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const size_t k = change_pair_rank(cases[i].n);
        check(k == (size_t)(cases[i].critical + 1), "%zu pairs: rank %zu, critical value %d",
              cases[i].n, k, cases[i].critical);
    }
    for (size_t n = 6; n <= COMPARE_ROUNDS; n++)
        check(change_pair_rank(n) < n * (n + 1) / 4, "%zu pairs: rank %zu", n, change_pair_rank(n));
}

static void test_pairs(void)
{
    /* Ratios 2, 4 .. 64 have the logarithms 1 to 6; means of pairs of these are 1 to 6 in steps of
     * one half, symmetric about 3.5. */
    const double a[] = {5, 1, 3, 7, 2, 9}, b[] = {10, 4, 24, 112, 64, 576};
    struct change r = change_of_pairs(a, b, 6);
    check(r.there && r.bounded && near(r.value, 11.313708498984761, 1e-12), "ratio %g", r.value);
    check(near(r.lo, 2, 1e-12) && near(r.hi, 64, 1e-12), "interval: %g to %g", r.lo, r.hi);
    r = change_of_pairs(a, b, 5);
    check(r.there && !r.bounded && near(r.value, 8, 1e-12), "five pairs: no interval, ratio %g",
          r.value);
    /* Variation that both rounds of a pair have in common does not widen the interval. */
    const double c[] = {1, 100, 7, 30, 2, 1000}, d[] = {1.1, 110, 7.7, 33, 2.2, 1100};
    r = change_of_pairs(c, d, 6);
    check(near(r.lo, 1.1, 1e-12) && near(r.hi, 1.1, 1e-12), "interval: %g to %g", r.lo, r.hi);
    r = change_of_pairs((double[]){0, 1, 1, 1, 1, 1}, c, 6);
    check(!r.there, "a ratio with 0");
}

static void expect_verdict(double lo, double hi, bool less_is_better, double tolerance,
                           enum verdict want)
{
    const struct change r = {true, (lo + hi) / 2, true, lo, hi};
    const enum verdict got = change_verdict(&r, less_is_better, tolerance);
    check(got == want, "%g to %g, %s is better, tolerance %g: %s, %s wanted", lo, hi,
          less_is_better ? "less" : "more", tolerance, verdict_name(got), verdict_name(want));
}

static void test_verdicts(void)
{
    expect_verdict(1.06, 1.2, true, 0.05, VERDICT_WORSE);
    expect_verdict(1.04, 1.2, true, 0.05, VERDICT_UNCLEAR);
    expect_verdict(0.96, 1.04, true, 0.05, VERDICT_SAME);
    expect_verdict(0.8, 0.9, true, 0.05, VERDICT_BETTER);
    expect_verdict(0.8, 0.96, true, 0.05, VERDICT_UNCLEAR);
    expect_verdict(0.8, 1.3, true, 0.05, VERDICT_UNCLEAR);
    expect_verdict(1.06, 1.2, false, 0.05, VERDICT_BETTER);
    expect_verdict(0.8, 0.9, false, 0.05, VERDICT_WORSE);
    expect_verdict(0.94, 0.951, false, 0.05, VERDICT_WORSE); /* 1 / 0.951 = 1.0515 */
    expect_verdict(0.94, 0.953, false, 0.05, VERDICT_UNCLEAR);
    expect_verdict(0.5, 0.6, false, 1, VERDICT_SAME); /* half the rate is twice the time */
    expect_verdict(0.4, 0.49, false, 1, VERDICT_WORSE);
    expect_verdict(1.001, 1.002, true, 0, VERDICT_WORSE);
    expect_verdict(1, 1, true, 0, VERDICT_SAME);
    const struct change none = {false, 0, false, 0, 0}, unbounded = {true, 9, false, 0, 0};
    check(change_verdict(&none, true, 0.05) == VERDICT_NONE, "a verdict without a ratio");
    check(change_verdict(&unbounded, true, 0.05) == VERDICT_NONE, "a verdict without an interval");
}

static void test_directions(void)
{
    bool less;
    check(figure_direction("total_ms", &less) && less, "times");
    check(figure_direction("tok_s", &less) && !less, "rates");
    check(figure_direction("tok_s_end_to_end", &less) && !less, "rates, end to end");
    check(!figure_direction("", &less) && !figure_direction("_ms", &less) &&
              !figure_direction("kv_peak_bytes", &less),
          "names of neither");
}

/* ---- the reader ---- */

static void refuse(const char *text, const char *sentence)
{
    struct measured m;
    struct err err = {0};
    check(measured_parse(&m, text, strlen(text), "F", &err) < 0 && strstr(err.text, sentence),
          "%s -> %s, in place of %s", text, err.text, sentence);
}

static void test_reader(void)
{
    static const char good[] =
        "{\"rows\": [{\"policy\": \"bmc\", \"batch\": 2, \"T\": 8, \"version\": \"1\", "
        "\"model_id\": "
        "\"x\", "
        "\"shape\": \"/a\", \"roof_share\": 0.5, \"lockstep\": false, \"none\": null, "
        "\"samples\": {\"tok_s\": [1, 2.5]}}]}";
    struct measured m;
    struct err err = {0};
    double round[COMPARE_ROUNDS];
    const struct measured_row *found;
    if (!check(measured_parse(&m, good, strlen(good), "F", &err) == 0, "%s", err.text))
        return;
    char *what = json_dumps(m.row[0].what, JSON_COMPACT);
    check(what && strcmp(what, "{\"policy\":\"bmc\",\"batch\":2,\"lockstep\":false}") == 0, "what: %s",
          what);
    check(measured_rounds(&m.row[0], "tok_s", round) == 2 && round[0] == 1 && round[1] == 2.5,
          "rounds");
    check(measured_rounds(&m.row[0], "other_ms", round) == 0, "rounds of nothing");
    check(measured_find(&m, &m.row[0], &found, &err) == 0 && found == &m.row[0], "find");
    free(what);
    measured_release(&m);
    refuse("", "not valid JSON");
    refuse("[]", "\"rows\" is missing");
    refuse("{\"rows\": {}}", "\"rows\" is an object");
    refuse("{\"rows\": []}", "\"rows\" is empty");
    refuse("{\"rows\": [3]}", "F: row 1: is an integer");
    refuse("{\"rows\": [{}]}", "F: row 1: has no rounds");
    refuse("{\"rows\": [{\"samples\": []}]}", "found an array");
    refuse("{\"rows\": [{\"samples\": {}}]}", "has no rounds");
    refuse("{\"rows\": [{\"samples\": {\"tok_s\": 3}}]}", "found an integer of 0");
    refuse("{\"rows\": [{\"samples\": {\"tok_s\": []}}]}", "found an array of 0");
    refuse("{\"rows\": [{\"samples\": {\"tok_s\": [\"1\"]}}]}", "has a string among");
    refuse("{\"rows\": [{\"samples\": {\"tok_s\": [-1]}}]}", "has -1, which");
    refuse("{\"rows\": [{\"samples\": {\"tok_s\": [1e300]}}]}", "has 1e+300, which");
    refuse("{\"rows\": [{\"samples\": {\"tok_s\": [1e999]}}]}", "not valid JSON");
    refuse("{\"rows\": [{\"samples\": {\"tok_s\": [NaN]}}]}", "not valid JSON");
    refuse("{\"rows\": [{\"samples\": {\"frob\": [1]}}]}", "neither a time");
    refuse("{\"rows\": [{\"a\": 1, \"samples\": {\"x_ms\": [1]}}, {\"a\": 2, \"samples\": {\"x_ms\": "
           "[1]}},"
           " {\"a\": 1, \"samples\": {\"x_ms\": [2]}}]}",
           "F: row 3: measured the same as row 1");
}

int main(void)
{
    test_ranks();
    test_ratios();
    test_pair_ranks();
    test_pairs();
    test_verdicts();
    test_directions();
    test_reader();
    return check_result();
}
