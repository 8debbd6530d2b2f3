/* Least-squares fit of a + b T + c / T, and bootstrap intervals. */
#include "tune/fit.h"

#include "report/stat.h"
#include "decode/sample/rng.h"

enum { DRAWS = 400 };

/* Solves the 3 x 3 system by Gaussian elimination with pivoting; false: singular. */
static bool solve3(double m[3][4])
{
    for (int col = 0; col < 3; col++) {
        int pivot = col;
        for (int row = col + 1; row < 3; row++)
            if (fabs(m[row][col]) > fabs(m[pivot][col]))
                pivot = row;
        if (!(fabs(m[pivot][col]) > 1e-300))
            return false;
        for (int i = 0; i < 4; i++) {
            const double held = m[col][i];
            m[col][i] = m[pivot][i];
            m[pivot][i] = held;
        }
        for (int row = 0; row < 3; row++) {
            const double share = m[row][col] / m[col][col];
            for (int i = col; row != col && i < 4; i++)
                m[row][i] -= share * m[col][i];
        }
    }
    return true;
}

double fit_at(const struct fit *fit, double T) { return fit->a + fit->b * T + fit->c / T; }

/* Sets fit->T. A monotonic curve has no minimum: takes the better end of the measured range. */
static void find_minimum(struct fit *fit, double least_T, double most_T, double max_T)
{
    if (fit->c > 0 && fit->b > 0)
        fit->T = fmin(fmax(sqrt(fit->c / fit->b), 1), max_T);
    else
        fit->T = fit_at(fit, most_T) < fit_at(fit, least_T) ? most_T : least_T;
}

int fit_times(struct fit *fit, const double *T, const double *time, size_t n, double max_T,
              struct err *err)
{
    double m[3][4] = {{0}}, least_T = INFINITY, most_T = 0;
    size_t different = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_new = true;
        for (size_t j = 0; j < i; j++)
            is_new = is_new && T[j] != T[i];
        different += is_new;
        least_T = fmin(least_T, T[i]);
        most_T = fmax(most_T, T[i]);
        if (!(time[i] > 0) || !isfinite(time[i]) || !(T[i] >= 1) || !isfinite(T[i]))
            return err_set(err, "T = %g took %g ms: that cannot be fitted", T[i], time[i]);
    }
    if (different < 3)
        return err_set(err, "%zu different T were measured; a fit needs at least 3", different);
    for (size_t i = 0; i < n; i++) {
        const double x[3] = {1, T[i], 1 / T[i]}, weight = 1 / (time[i] * time[i]);
        for (int row = 0; row < 3; row++) {
            for (int col = 0; col < 3; col++)
                m[row][col] += weight * x[row] * x[col];
            m[row][3] += weight * x[row] * time[i];
        }
    }
    if (!solve3(m))
        return err_set(err, "the measured times cannot be fitted");
    *fit = (struct fit){m[0][3] / m[0][0], m[1][3] / m[1][1], m[2][3] / m[2][2], 0};
    find_minimum(fit, least_T, most_T, max_T);
    return isfinite(fit_at(fit, fit->T)) ? 0 : err_set(err, "the measured times cannot be fitted");
}

/* The median over the drawn rounds of time i, relative to time j; NO_TIME: as it is. */
enum { NO_TIME = -1 };
static double median_of(const double *time, size_t stride, const size_t *round, size_t rounds, size_t i,
                        size_t j)
{
    double x[FIT_MAX_ROUNDS];
    for (size_t r = 0; r < rounds; r++) {
        const double *of_round = time + round[r] * stride;
        x[r] = of_round[i] / (j == (size_t)NO_TIME ? 1 : of_round[j]);
    }
    return stat_quantile(x, rounds, 0.5);
}

/* Draw 0 is of all rounds, as they are; the others are of the bootstrap. */
static void draw_rounds(size_t *round, size_t rounds, uint64_t seed, size_t draw)
{
    for (size_t r = 0; r < rounds; r++)
        round[r] =
            draw ? (size_t)(rng_uniform(seed, draw - 1, (uint32_t)r, 11) * (double)rounds) % rounds : r;
}

/* The interval of all draws but the first. */
static void bootstrap_interval(double *x, double *lo, double *hi)
{
    *lo = stat_quantile(x + 1, DRAWS, 0.05);
    *hi = stat_quantile(x + 1, DRAWS, 0.95);
}

int fit_ratio(struct ratio *ratio, const double *time, size_t stride, size_t rounds, size_t i, size_t j,
              uint64_t seed, struct err *err)
{
    double drawn[1 + DRAWS];
    size_t round[FIT_MAX_ROUNDS];
    if (rounds < 3 || rounds > FIT_MAX_ROUNDS)
        return err_set(err, "%zu rounds give no interval; 3 to %d do", rounds, FIT_MAX_ROUNDS);
    for (size_t draw = 0; draw <= DRAWS; draw++) {
        draw_rounds(round, rounds, seed, draw);
        drawn[draw] = median_of(time, stride, round, rounds, i, j);
    }
    ratio->value = drawn[0];
    bootstrap_interval(drawn, &ratio->lo, &ratio->hi);
    return 0;
}

int fit_regret(struct regret *regret, const double *T, const double *time, size_t n, size_t stride,
               size_t rounds, size_t used, double max_T, uint64_t seed, struct err *err)
{
    double median[FIT_MAX_POINTS], drawn_T[1 + DRAWS], drawn[1 + DRAWS];
    size_t round[FIT_MAX_ROUNDS];
    if (n > FIT_MAX_POINTS || rounds < 3 || rounds > FIT_MAX_ROUNDS || used >= n)
        return err_set(err, "%zu rounds over %zu T cannot be fitted", rounds, n);
    *regret = (struct regret){0};
    for (size_t draw = 0; draw <= DRAWS; draw++) {
        struct fit fit;
        draw_rounds(round, rounds, seed, draw);
        for (size_t i = 0; i < n; i++) {
            median[i] = median_of(time, stride, round, rounds, i, NO_TIME);
            if (!draw && median[i] < median[regret->best])
                regret->best = i;
        }
        if (fit_times(&fit, T, median, n, max_T, err) < 0)
            return -1;
        regret->fit = draw ? regret->fit : fit;
        drawn_T[draw] = fit.T;
        drawn[draw] = fit_at(&fit, T[used]) / fit_at(&fit, fit.T);
    }
    regret->ratio = drawn[0];
    bootstrap_interval(drawn_T, &regret->T_lo, &regret->T_hi);
    bootstrap_interval(drawn, &regret->lo, &regret->hi);
    return fit_ratio(&regret->raw, time, stride, rounds, used, regret->best, seed, err);
}
