/* Rows of f32 as rows of few bits, on all threads. */
#include "model/quantise.h"

#include <stdatomic.h>

#include "base/few_make.h"
#include "base/threads.h"

enum { WORK_SIMPLE = 16, WORK_BEST = 512 }; /* of an element: roughly */

struct rows {
    const struct quantise *job;
    atomic_bool too_large;
};

static void quantise_row(void *arg, size_t i)
{
    struct rows *rows = arg;
    const struct quantise *q = rows->job;
    char *to = (char *)q->to + i * dtype_row_bytes(q->type, q->n);
    const float *x = q->x + i * q->n;
    if (q->simple)
        dtype_narrow(to, q->type, x, q->n);
    else if (!few_make(to, q->type, x, q->n, q->weight))
        atomic_store(&rows->too_large, true);
}

bool quantise_rows(const struct quantise *job)
{
    struct rows rows = {job, false};
    threads_each(job->rows, (job->simple ? WORK_SIMPLE : WORK_BEST) * job->rows * job->n, quantise_row,
                 &rows);
    return !rows.too_large;
}
