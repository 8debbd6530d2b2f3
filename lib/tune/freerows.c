/* Free rows: how many rows a model step can have before it takes longer, and what speculation makes of it. */
#include "tune/calibrate.h"

const size_t free_row_counts[FREE_ROW_COUNTS] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
const double free_row_acceptance[FREE_ROW_ACCEPTANCES] = {0.5, 0.6, 0.7, 0.8, 0.9};

void free_rows_judge(struct free_rows *rows)
{
    rows->free = 0;
    for (size_t i = 0; i < rows->n && rows->step_ms[i] <= 1.15 * rows->step_ms[0]; i++)
        rows->free = free_row_counts[i];
}

/* Time of a step of any number of rows: straight between the counts. */
static double step_ms(const struct free_rows *rows, size_t count)
{
    size_t i = 0;
    while (i + 1 < rows->n && free_row_counts[i + 1] < count)
        i++;
    if (i + 1 >= rows->n || count <= free_row_counts[0])
        return rows->step_ms[i];
    const double from = (double)free_row_counts[i], to = (double)free_row_counts[i + 1];
    return rows->step_ms[i] +
           ((double)count - from) / (to - from) * (rows->step_ms[i + 1] - rows->step_ms[i]);
}

size_t free_rows_k(const struct free_rows *rows, double acceptance, double *speedup)
{
    size_t best = 0;
    double tokens = 1, power = 1;
    *speedup = 1;
    if (rows->n == 0)
        return 0;
    for (size_t k = 1; k < free_row_counts[rows->n - 1]; k++) {
        power *= acceptance;
        tokens += power; /* 1 + a + .. + a^k */
        const double gain = tokens * rows->step_ms[0] / step_ms(rows, k + 1);
        if (gain > *speedup * 1.000001) {
            best = k;
            *speedup = gain;
        }
    }
    return best;
}
