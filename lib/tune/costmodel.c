/* The analytical model of the BMC paper. */
#include "tune/costmodel.h"

#include <math.h>

int cost_check(const struct cost *c, struct err *err)
{
    if (c->N < 2)
        return err_set(err, "a context of N = %zu leaves no T to choose; at least 2 are needed", c->N);
    if (!(c->elements > 0) || !isfinite(c->elements))
        return err_set(err, "B * L * D is %g elements; it must be positive", c->elements);
    if (!(c->copy_elem_s > 0) || !isfinite(c->copy_elem_s))
        return err_set(err, "a bandwidth of %g elements a second; it must be positive", c->copy_elem_s);
    if (!(c->sdpa_mac_s > 0) || !isfinite(c->sdpa_mac_s))
        return err_set(err, "%g multiply-accumulates a second; they must be positive", c->sdpa_mac_s);
    if (!(c->growth_s >= 0) || !isfinite(c->growth_s))
        return err_set(err, "C0 of %g seconds; it cannot be negative", c->growth_s);
    if (!(c->shrink > 0) || !isfinite(c->shrink))
        return err_set(err, "G * Q is %g; it must be positive", c->shrink);
    if (!(c->m >= 1) || !(c->k >= c->m) || !isfinite(c->k))
        return err_set(err, "k = %g candidates, m = %g accepted: 1 <= m <= k is expected", c->k, c->m);
    return 0;
}

/* The first term of BMC paper, eq. 5 and 8, without (T + 1): seconds that one more growth adds. */
static double copy_term(const struct cost *c)
{
    return 2 * c->elements * (double)c->N / (c->copy_elem_s * c->shrink);
}

/* Its last term without (1 + 1/T), eq. 5 and 9: N/m steps of k query rows. */
static double sdpa_term(const struct cost *c)
{
    return c->elements * c->k * (double)c->N * (double)c->N / (c->m * c->sdpa_mac_s);
}

double cost_seconds(const struct cost *c, double T)
{
    return copy_term(c) * (T + 1) + T * c->growth_s + sdpa_term(c) * (1 + 1 / T);
}

int cost_closed_T(const struct cost *c, double *T, struct err *err)
{
    if (cost_check(c, err) < 0)
        return -1;
    *T = sqrt(sdpa_term(c) / (copy_term(c) + c->growth_s)); /* eq. 6; eq. 7 when C0 = 0 */
    return isfinite(*T) ? 0 : err_set(err, "the constants give no finite T");
}

int cost_cell_check(const struct cost_cell *cell, struct err *err)
{
    if (curve_check(cell->copy, err) < 0 || curve_check(cell->sdpa, err) < 0 ||
        (cell->alloc && curve_check(cell->alloc, err) < 0))
        return -1;
    if (!(cell->row_bytes > 0) || !isfinite(cell->row_bytes))
        return err_set(err, "a row of %g bytes; it must be positive", cell->row_bytes);
    const struct cost constant = cost_of_cell(cell);
    return cost_check(&constant, err);
}

/* C0 of a growth to `cap` rows: K and V of every layer and sequence are a call each. */
static double growth_s(const struct cost_cell *cell, double cap)
{
    return cell->alloc
               ? 2 * (double)(cell->layers * cell->batch) * curve_at(cell->alloc, cap * cell->row_bytes)
               : 0;
}

static double elements(const struct cost_cell *cell)
{
    return (double)cell->batch * (double)cell->layers * (double)cell->width; /* C1 */
}

struct cost cost_of_cell(const struct cost_cell *cell)
{
    const double cap = (double)cell->N / 2, bytes = cap * cell->row_bytes;
    return (struct cost){
        .N = cell->N,
        .elements = elements(cell),
        .copy_elem_s = curve_at(cell->copy, bytes),
        .sdpa_mac_s = curve_at(cell->sdpa, bytes * (double)cell->batch),
        .growth_s = growth_s(cell, cap),
        .shrink = cell->shrink,
        .k = cell->k,
        .m = cell->m,
    };
}

/* Eq. 4 for growths of r rows. */
static double seconds_by_r(const struct cost_cell *cell, size_t r)
{
    const double C1 = elements(cell);
    double sum = 0;
    for (size_t from = 0; from < cell->N; from += r) {
        const double cap = (double)size_min(from + r, cell->N), rows = cap - (double)from;
        const double bytes = cap * cell->row_bytes;
        sum += 4 * C1 * cap / (curve_at(cell->copy, bytes) * cell->shrink); /* eq. 1 and 8 */
        sum += growth_s(cell, cap);
        sum += rows / cell->m * 2 * C1 * cap * cell->k /
               curve_at(cell->sdpa, bytes * (double)cell->batch); /* eq. 2 and 9 */
    }
    return sum;
}

double cost_cell_seconds(const struct cost_cell *cell, size_t T)
{
    return seconds_by_r(cell, div_up(cell->N, T));
}

/* Of the two powers of two around `T`, within [1, N], the cheaper. */
static size_t round_by_cost(const struct cost_cell *cell, double T)
{
    size_t low = 1;
    while (low * 2 <= cell->N && (double)low * 2 <= T)
        low *= 2;
    const size_t high = low * 2;
    if (high > cell->N || (double)low >= T)
        return low;
    return cost_cell_seconds(cell, high) < cost_cell_seconds(cell, low) ? high : low;
}

int cost_answer(const struct cost_cell *cell, struct cost_answer *answer, struct err *err)
{
    *answer = (struct cost_answer){0};
    if (cost_cell_check(cell, err) < 0)
        return -1;
    const struct cost constant = cost_of_cell(cell);
    if (cost_closed_T(&constant, &answer->closed, err) < 0)
        return -1;
    answer->pow2 = round_by_cost(cell, answer->closed);
    answer->pow2_s = cost_cell_seconds(cell, answer->pow2);
    return 0;
}

void cost_least(const struct cost_cell *cell, struct cost_answer *answer)
{
    /* Every r once: N log N growths in all, where every T would be N^2. */
    const size_t reach = cell->N <= 1 << 15 ? cell->N : 8;
    const size_t from = div_up(cell->N, size_min(answer->pow2 * reach, cell->N));
    const size_t to = size_min(cell->N / size_max(answer->pow2 / reach, 1), cell->N);
    answer->least = 0;
    for (size_t r = from; r <= to; r++) {
        const double seconds = seconds_by_r(cell, r);
        if (!answer->least || seconds < answer->least_s) {
            answer->least = div_up(cell->N, r);
            answer->least_s = seconds;
        }
    }
}
