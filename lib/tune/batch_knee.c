/* The batch knee (most tokens per step at no extra latency), and the draft length that follows from
 * measured step times. */
#include "tune/calibrate.h"

const size_t knee_counts[KNEE_COUNTS] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64};
const double knee_acceptance[KNEE_ACCEPTANCES] = {0.5, 0.6, 0.7, 0.8, 0.9};

void batch_knee_judge(struct batch_knee *knee)
{
    knee->tokens = 0;
    for (size_t i = 0; i < knee->n && knee->step_ms[i] <= 1.15 * knee->step_ms[0]; i++)
        knee->tokens = knee_counts[i];
}

/* Time of a step of `count` tokens, interpolated linearly between the measured token counts. */
static double step_ms(const struct batch_knee *knee, size_t count)
{
    size_t i = 0;
    while (i + 1 < knee->n && knee_counts[i + 1] < count)
        i++;
    if (i + 1 >= knee->n || count <= knee_counts[0])
        return knee->step_ms[i];
    const double from = (double)knee_counts[i], to = (double)knee_counts[i + 1];
    return knee->step_ms[i] +
           ((double)count - from) / (to - from) * (knee->step_ms[i + 1] - knee->step_ms[i]);
}

size_t batch_knee_k(const struct batch_knee *knee, double acceptance, double *speedup)
{
    size_t best = 0;
    double tokens = 1, power = 1;
    *speedup = 1;
    if (knee->n == 0)
        return 0;
    for (size_t k = 1; k < knee_counts[knee->n - 1]; k++) {
        power *= acceptance;
        tokens += power; /* expected tokens per step: 1 + a + .. + a^k */
        const double gain = tokens * knee->step_ms[0] / step_ms(knee, k + 1);
        if (gain > *speedup * 1.000001) {
            best = k;
            *speedup = gain;
        }
    }
    return best;
}
