/* Operations on single rows: embeddings, norms, rotation, factors, sums, copies. */
#include <math.h>
#include <string.h>

#include "base/threads.h"
#include "cpu/cpu_pass.h"
#include "quant/pack.h"

/* An operation over a range of rows. */
struct row_job {
    const struct backend_pass *pass;
    const struct op *op;
    const struct op_step *step;
    struct row_range rows;
};

/* ---- embeddings ---- */

enum {
    CHUNK = 512
}; /* elements of an embedding that are fetched at a time: groups of quantised types */

static size_t table_row(const struct row_job *job, size_t row)
{
    const struct op_fetch *f = &job->op->fetch;
    return f->position ? job->step->position[row] + f->offset : job->step->token[row];
}

/* Body of a parallel loop over rows. */
static void add_fetched_row(void *arg, size_t i)
{
    const struct row_job *job = arg;
    const struct op_fetch *f = &job->op->fetch;
    const size_t row = job->rows.first + i;
    const float half = sqrtf(0.5f);
    float *to = cpu_row(job->step, job->op->out, row), own[CHUNK];
    for (size_t at = 0, n; at < job->op->width; at += n) {
        n = size_min(CHUNK, job->op->width - at);
        mat_fetch(own, f->table, table_row(job, row), f->from + at, n);
        for (size_t j = 0; j < n; j++)
            to[at + j] = (to[at + j] + own[j] * f->factor) * half;
    }
}

int cpu_fetch(struct backend_pass *pass, const struct op *op, const struct op_step *step,
              struct row_range rows, struct err *err)
{
    (void)err;
    struct row_job job = {pass, op, step, rows};
    const float factor = op->fetch.factor;
    if (op->kind == OP_FETCH_ADD) {
        parallel_for(rows.n, 4 * rows.n * op->width, add_fetched_row, &job);
        return 0;
    }
    for (size_t row = rows.first; row < rows.first + rows.n; row++) {
        float *to = cpu_row(step, op->out, row);
        mat_fetch_row(to, op->fetch.table, table_row(&job, row));
        for (size_t j = 0; factor != 0 && j < op->width; j++)
            to[j] *= factor;
    }
    return 0;
}

/* ---- norms and rotation ---- */

/* Body of a parallel loop over the groups of all rows. */
static void norm_group(void *arg, size_t i)
{
    const struct row_job *job = arg;
    const struct op *op = job->op;
    const struct op_norm *norm = &op->norm;
    const size_t n = op->width, row = job->rows.first + i / norm->groups, group = i % norm->groups,
                 at = (norm->first + group % norm->gains) * n;
    const struct norm_weights *w = &norm->weights;
    const float *x = cpu_row(job->step, op->in, row) + group * n;
    const float *gain = w->gain ? w->gain + at : NULL, *bias = w->bias ? w->bias + at : NULL;
    float *y = cpu_row(job->step, op->out, row) + group * n;
    switch (norm->kind) {
    case NORM_RMS: job->pass->kernels->rmsnorm(y, x, n, gain, norm->eps); break;
    case NORM_LAYER: job->pass->kernels->layernorm(y, x, n, gain, bias, norm->eps); break;
    }
}

int cpu_norm(struct backend_pass *pass, const struct op *op, const struct op_step *step,
             struct row_range rows, struct err *err)
{
    (void)err;
    struct row_job job = {pass, op, step, rows};
    const size_t n = rows.n * op->norm.groups;
    parallel_for(n, 8 * n * op->width, norm_group, &job);
    return 0;
}

/* Body of a parallel loop over rows. */
static void rotate_row(void *arg, size_t i)
{
    const struct row_job *job = arg;
    const struct op_rope *rope = &job->op->rope;
    const size_t row = job->rows.first + i, at = row * rope->pairs;
    const float *cosine = job->step->cosine[rope->table] + at,
                *sine = job->step->sine[rope->table] + at;
    for (size_t p = 0; p < rope->n; p++)
        job->pass->kernels->rope(cpu_row(job->step, rope->part[p].x, row), rope->part[p].heads,
                                 rope->part[p].step, 2 * rope->pairs, cosine, sine);
}

int cpu_rope(struct backend_pass *pass, const struct op *op, const struct op_step *step,
             struct row_range rows, struct err *err)
{
    (void)err;
    struct row_job job = {pass, op, step, rows};
    parallel_for(rows.n, 8 * rows.n * op->rope.part[0].heads * op->rope.part[0].step, rotate_row, &job);
    return 0;
}

/* ---- copies ---- */

int cpu_copy(struct backend_pass *pass, const struct op *op, const struct op_step *step,
             struct row_range rows, struct err *err)
{
    (void)pass;
    (void)err;
    for (size_t row = rows.first; row < rows.first + rows.n; row++) {
        float *to = cpu_row(step, op->out, row);
        const float *from = cpu_row(step, op->in, row);
        for (size_t h = 0; h < op->copy.heads; h++)
            memcpy(to + h * op->copy.out_step, from + h * op->copy.in_step, op->width * sizeof *to);
    }
    return 0;
}

int cpu_pick(struct backend_pass *pass, const struct op *op, const struct op_step *step,
             struct row_range rows, struct err *err)
{
    (void)pass;
    (void)err;
    for (size_t row = rows.first; row < rows.first + rows.n; row++)
        memcpy(cpu_row(step, op->out, row), cpu_row(step, op->in, step->picked[row]),
               op->width * sizeof(float));
    return 0;
}

/* ---- element by element ---- */

/* Rows that follow each other without gaps are as one. */
static struct row_range join(const struct op *op, struct row_range rows, size_t stride, size_t *width)
{
    const bool whole = op->out.stride == op->width && stride == op->width;
    *width = op->width * (whole ? rows.n : 1);
    return whole ? (struct row_range){rows.first, 1} : rows;
}

int cpu_add(struct backend_pass *pass, const struct op *op, const struct op_step *step,
            struct row_range rows, struct err *err)
{
    (void)err;
    size_t n;
    const struct row_range all = join(op, rows, op->in.stride, &n);
    for (size_t row = all.first; row < all.first + all.n; row++)
        pass->kernels->add(cpu_row(step, op->out, row), cpu_row(step, op->in, row), n);
    return 0;
}

int cpu_scale(struct backend_pass *pass, const struct op *op, const struct op_step *step,
              struct row_range rows, struct err *err)
{
    (void)pass;
    (void)err;
    for (size_t row = rows.first; row < rows.first + rows.n; row++) {
        const struct op_scale *scale = &op->scale;
        const float factor = scale->by            ? *scale->by
                             : scale->temperature ? step->temperature[row]
                                                  : scale->factor;
        float *x = cpu_row(step, op->out, row);
        for (size_t j = 0; factor != 1 && j < op->width; j++)
            x[j] *= factor;
    }
    return 0;
}

int cpu_clip(struct backend_pass *pass, const struct op *op, const struct op_step *step,
             struct row_range rows, struct err *err)
{
    (void)pass;
    (void)err;
    const float limit = op->limit;
    for (size_t row = rows.first; row < rows.first + rows.n; row++) {
        float *x = cpu_row(step, op->out, row);
        for (size_t j = 0; j < op->width; j++)
            x[j] = x[j] > limit ? limit : x[j] < -limit ? -limit : x[j];
    }
    return 0;
}

int cpu_softcap(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                struct row_range rows, struct err *err)
{
    (void)pass;
    (void)err;
    const float cap = op->limit;
    for (size_t row = rows.first; row < rows.first + rows.n; row++) {
        float *x = cpu_row(step, op->out, row);
        for (size_t j = 0; j < op->width; j++)
            x[j] = cap * tanhf(x[j] / cap);
    }
    return 0;
}

int cpu_gate(struct backend_pass *pass, const struct op *op, const struct op_step *step,
             struct row_range rows, struct err *err)
{
    (void)err;
    size_t n;
    const size_t stride = op->in.stride == op->gate.gate.stride ? op->in.stride : 0;
    const struct row_range all = join(op, rows, stride, &n);
    for (size_t row = all.first; row < all.first + all.n; row++)
        pass->kernels->gate(cpu_row(step, op->out, row), cpu_row(step, op->in, row),
                            cpu_row(step, op->gate.gate, row), n, op->gate.act);
    return 0;
}
