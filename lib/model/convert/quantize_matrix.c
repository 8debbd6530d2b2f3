/* Multi-threaded quantisation of rows of a matrix. */
#include "model/convert/quantize_matrix.h"

#include <stdatomic.h>

#include "quant/quantize.h"
#include "base/threads.h"

enum { WORK_SIMPLE = 16, WORK_BEST = 512 }; /* rough cost per element, for parallel_for() */

struct quantize_rows_job {
    const struct quantize_job *job;
    atomic_bool too_large;
};

static void quantize_row(void *arg, size_t i)
{
    struct quantize_rows_job *rows = arg;
    const struct quantize_job *q = rows->job;
    char *to = (char *)q->to + i * dtype_row_bytes(q->type, q->n);
    const float *x = q->x + i * q->n;
    if (q->simple)
        dtype_from_f32(to, q->type, x, q->n);
    else if (!quantize(to, q->type, x, q->n, q->weight))
        atomic_store(&rows->too_large, true);
}

bool quantize_rows(const struct quantize_job *job)
{
    struct quantize_rows_job rows = {job, false};
    parallel_for(job->rows, (job->simple ? WORK_SIMPLE : WORK_BEST) * job->rows * job->n, quantize_row,
                 &rows);
    return !rows.too_large;
}
