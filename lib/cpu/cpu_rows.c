/* Operations on single rows: embeddings, norms, rotation, factors, sums, copies. */
#include "base/repro_math.h"
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

/* Ids beyond a table have its first row. */
static size_t token_row(uint32_t id, size_t rows) { return id < rows ? id : 0; }

static size_t table_row(const struct row_job *job, size_t row)
{
    const struct op_fetch *f = &job->op->fetch;
    return f->row == ROW_SEGMENT    ? (job->step->token[row] & TOKEN_SECOND) != 0
           : f->row == ROW_POSITION ? job->step->position[row] + f->offset
                                    : token_row(job->step->token[row] & ~TOKEN_SECOND, f->table.out);
}

/* Body of a parallel loop over rows. */
static void add_fetched_row(void *arg, size_t i)
{
    const struct row_job *job = arg;
    const struct op_fetch *f = &job->op->fetch;
    const size_t row = job->rows.first + i;
    const float half = sqrtf(0.5f);
    float *to = cpu_row(job->step, job->op->out, row), own[CHUNK];
    const struct mat table = cpu_mat(&f->table);
    for (size_t at = 0, n; at < job->op->width; at += n) {
        n = size_min(CHUNK, job->op->width - at);
        mat_fetch(own, &table, table_row(job, row), f->from + at, n);
        for (size_t j = 0; j < n; j++)
            to[at + j] = (to[at + j] + own[j] * f->factor) * half;
    }
}

static void fetch_row(const struct row_job *job, size_t row)
{
    const struct op_fetch *f = &job->op->fetch;
    float *to = cpu_row(job->step, job->op->out, row);
    const struct mat table = cpu_mat(&f->table);
    mat_fetch_row(to, &table, table_row(job, row));
    for (size_t j = 0; f->factor != 0 && j < job->op->width; j++)
        to[j] *= f->factor;
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
    const float *x = cpu_row(job->step, op->in, row) + group * n, *gain = cpu_floats(norm->gain, at),
                *bias = cpu_floats(norm->bias, at);
    float *y = cpu_row(job->step, op->out, row) + group * n;
    switch (norm->kind) {
    case NORM_RMS: job->pass->kernels->rmsnorm(y, x, n, gain, norm->eps); break;
    case NORM_LAYER: job->pass->kernels->layernorm(y, x, n, gain, bias, norm->eps); break;
    }
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

/* ---- AltUp and sparse activations ---- */

/* Body of a parallel loop over rows. */
static void blend_row(void *arg, size_t i)
{
    enum { SOME = 64 };
    const struct row_job *job = arg;
    const struct op_blend *blend = &job->op->blend;
    const size_t row = job->rows.first + i, width = job->op->width;
    const float *in = cpu_row(job->step, job->op->in, row),
                *coef = cpu_row(job->step, blend->coef, row);
    float *out = cpu_row(job->step, job->op->out, row), sum[OP_BLENDED][SOME];
    for (size_t at = 0, n; at < width; at += n) {
        n = size_min(SOME, width - at);
        memset(sum, 0, sizeof sum);
        for (size_t to = 0; to < blend->out; to++)
            for (size_t from = 0; from < blend->in; from++)
                for (size_t e = 0; e < n; e++)
                    sum[to][e] += coef[to * blend->in + from] * in[from * width + at + e];
        for (size_t to = 0; to < blend->out; to++)
            for (size_t e = 0; e < n; e++)
                out[to * width + at + e] += sum[to][e];
    }
}

/* The mean of (x - centre)^power, power 1 or 2; eight sums, which are then added. */
static double mean_of(const float *x, size_t n, double centre, int power)
{
    double sum[8] = {0}, all = 0;
    for (size_t j = 0; j < n; j++) {
        const double d = x[j] - centre;
        sum[j % 8] += power == 2 ? d * d : d;
    }
    for (size_t j = 0; j < ARRAY_LEN(sum); j++)
        all += sum[j];
    return all / (double)n;
}

/* Body of a parallel loop over rows. */
static void match_row(void *arg, size_t i)
{
    const struct row_job *job = arg;
    const size_t row = job->rows.first + i, n = job->op->width;
    float *to = cpu_row(job->step, job->op->out, row);
    const double target = mean_of(cpu_row(job->step, job->op->in, row), n, 0, 2),
                 own = mean_of(to, n, 0, 2);
    const float factor = (float)sqrt(target / (own > 1e-5 ? own : 1e-5));
    for (size_t j = 0; j < n; j++)
        to[j] *= factor;
}

/* Body of a parallel loop over rows. */
static void sparsify_row(void *arg, size_t i)
{
    const struct row_job *job = arg;
    const size_t row = job->rows.first + i, n = job->op->width;
    float *x = cpu_row(job->step, job->op->out, row);
    const double mean = mean_of(x, n, 0, 1), deviation = sqrt(mean_of(x, n, mean, 2));
    const float cutoff = (float)(mean + deviation * job->op->limit);
    for (size_t j = 0; j < n; j++)
        x[j] = x[j] > cutoff ? x[j] - cutoff : 0;
}

/* Body of a parallel loop over rows: absmax quantisation to 8 bits, and back. Ties go to the even integer. */
static void round_row(void *arg, size_t i)
{
    const struct row_job *job = arg;
    const size_t row = job->rows.first + i, n = job->op->width;
    float *x = cpu_row(job->step, job->op->out, row), most = 1e-5f;
    for (size_t j = 0; j < n; j++)
        most = fabsf(x[j]) > most ? fabsf(x[j]) : most;
    const float scale = 127 / most;
    for (size_t j = 0; j < n; j++)
        x[j] = rintf(x[j] * scale) / scale;
}

int cpu_parallel_rows(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                      struct row_range rows, struct err *err)
{
    struct row_job job = {pass, op, step, rows};
    const size_t groups = rows.n * op->norm.groups;
    (void)err;
    switch (op->kind) {
    case OP_NORM: parallel_for(groups, 8 * groups * op->width, norm_group, &job); break;
    case OP_ROPE: parallel_for(rows.n, 8 * rows.n * op->width, rotate_row, &job); break;
    case OP_BLEND: parallel_for(rows.n, 4 * rows.n * op->width * op->blend.out, blend_row, &job); break;
    case OP_MATCH: parallel_for(rows.n, 8 * rows.n * op->width, match_row, &job); break;
    case OP_SPARSIFY: parallel_for(rows.n, 8 * rows.n * op->width, sparsify_row, &job); break;
    case OP_ROUND: parallel_for(rows.n, 8 * rows.n * op->width, round_row, &job); break;
    default: parallel_for(rows.n, 4 * rows.n * op->width, add_fetched_row, &job); break;
    }
    return 0;
}

/* ---- copies ---- */

static void copy_row(const struct row_job *job, size_t row)
{
    const struct op *op = job->op;
    float *to = cpu_row(job->step, op->out, row);
    const float *from = cpu_row(job->step, op->in, row);
    for (size_t h = 0; h < op->copy.heads; h++)
        memcpy(to + h * op->copy.out_step, from + h * op->copy.in_step, op->width * sizeof *to);
}

static void pick_row(const struct row_job *job, size_t row)
{
    memcpy(cpu_row(job->step, job->op->out, row),
           cpu_row(job->step, job->op->in, job->step->picked[row]), job->op->width * sizeof(float));
}

/* ---- element by element ---- */

static void add_row(const struct row_job *job, size_t row)
{
    job->pass->kernels->add(cpu_row(job->step, job->op->out, row), cpu_row(job->step, job->op->in, row),
                            job->op->width);
}

static void gate_row(const struct row_job *job, size_t row)
{
    enum { REPEATED = 64 };
    const struct op *op = job->op;
    const size_t group = op->gate.group;
    const float *gate = cpu_row(job->step, op->gate.gate, row), *x = cpu_row(job->step, op->in, row);
    float *y = cpu_row(job->step, op->out, row), repeated[REPEATED];
    if (group == 1) {
        job->pass->kernels->gate(y, x, gate, op->width, op->gate.act);
        return;
    }
    for (size_t at = 0, n; at < op->width; at += n) {
        n = size_min(REPEATED, group - at % group);
        for (size_t i = 0; i < n; i++)
            repeated[i] = gate[at / group];
        job->pass->kernels->gate(y + at, x + at, repeated, n, op->gate.act);
    }
}

static void scale_row(const struct row_job *job, size_t row)
{
    const struct op_scale *scale = &job->op->scale;
    const float *by = addr_is_null(scale->by) ? NULL : cpu_floats(scale->by, 0);
    const float factor = by ? *by : scale->temperature ? job->step->temperature[row] : scale->factor;
    float *x = cpu_row(job->step, job->op->out, row);
    for (size_t j = 0; (factor != 1 || scale->columns) && j < job->op->width; j++)
        x[j] *= scale->columns ? by[j] : factor;
}

static void clip_row(const struct row_job *job, size_t row)
{
    const float limit = job->op->limit;
    float *x = cpu_row(job->step, job->op->out, row);
    for (size_t j = 0; j < job->op->width; j++)
        x[j] = x[j] > limit ? limit : x[j] < -limit ? -limit : x[j];
}

static void softcap_row(const struct row_job *job, size_t row)
{
    const float cap = job->op->limit;
    float *x = cpu_row(job->step, job->op->out, row);
    for (size_t j = 0; j < job->op->width; j++)
        x[j] = cap * (float)repro_tanh(x[j] / cap);
}

/* Operations so short that other threads would not help. */
int cpu_rows(struct backend_pass *pass, const struct op *op, const struct op_step *step,
             struct row_range rows, struct err *err)
{
    typedef void run_row(const struct row_job *job, size_t row);
    static run_row *const table[] = {
        [OP_FETCH] = fetch_row, [OP_COPY] = copy_row, [OP_PICK] = pick_row,       [OP_ADD] = add_row,
        [OP_SCALE] = scale_row, [OP_CLIP] = clip_row, [OP_SOFTCAP] = softcap_row, [OP_GATE] = gate_row,
    };
    const struct row_job job = {pass, op, step, rows};
    (void)err;
    for (size_t row = rows.first; row < rows.first + rows.n; row++)
        table[op->kind](&job, row);
    return 0;
}
