/* Layers with recurrent state: convolution and recurrence over the tokens of all sequences of a pass, from and to the
 * state in the KV cache. model/state_ops.c has the formulas.
 *
 * Tokens are taken one after the other, so a sequence gets the same bits however it is cut into forward
 * passes; heads, and columns of S, are independent of each other and run in parallel. In a token tree,
 * each token continues from the state of its parent. */
#include "base/mem.h"
#include "base/repro_math.h"
#include "base/threads.h"
#include "cpu/cpu_pass.h"
#include "kv/kv.h"

enum { MAX_TAPS = 64 };

struct recur_job {
    struct backend_pass *pass;
    const struct op *op;
    const struct op_step *step;
    const struct state_shape *shape;
    struct conv_columns at;
    size_t first; /* row of OP_RECUR_END, which may run over some of the rows */
};

static size_t slab_floats(const struct state_shape *shape) { return shape->key_dim * STATE_SLAB; }

int cpu_recur_open(struct backend_pass *pass, size_t max_rows, struct err *err)
{
    struct cpu_recur *o = &pass->recur;
    const struct state_shape *shape = &kv_setup(pass->kv)->state;
    if (!shape->conv)
        return 0;
    o->width = state_input_floats(shape);
    o->padded = shape->heads * state_slabs(shape) * STATE_SLAB;
    o->q_gain = mem_alloc(size_max(shape->key_dim, 1), 2 * sizeof(float));
    o->view = mem_alloc(kv_setup(pass->kv)->n_seqs, sizeof *o->view);
    o->row_query = mem_alloc(max_rows, sizeof *o->row_query);
    if (!o->q_gain || !o->view || !o->row_query)
        return err_no_memory(err, "recurrent state");
    /* The norm of keys divides by their length, that of queries also by sqrt(key_dim): rmsnorm() divides
     * by the length over sqrt(key_dim). */
    o->k_gain = o->q_gain + shape->key_dim;
    for (size_t i = 0; i < shape->key_dim; i++) {
        o->q_gain[i] = 1 / (float)shape->key_dim;
        o->k_gain[i] = 1 / sqrtf((float)shape->key_dim);
    }
    return 0;
}

void cpu_recur_close(struct cpu_recur *o)
{
    free(o->q_gain);
    free(o->view);
    free(o->row_query);
    free(o->nodes);
}

static struct recur_job job_of(struct backend_pass *pass, const struct op *op,
                               const struct op_step *step)
{
    const struct op_recur *r = &op->recur;
    return (struct recur_job){
        pass, op, step, &kv_setup(pass->kv)->state, conv_columns_of(r->kind, r->keys, r->values), 0};
}

static float *inputs_row(const struct recur_job *job, size_t row)
{
    return cpu_row(job->step, job->op->recur.inputs, row);
}

/* ---- token trees ---- */

static bool is_tree(const struct attn_query *q) { return q->ancestors && q->rows > 1; }

/* Tokens of the pass on the path to a row, itself included; and the row `back` tokens before it on the
 * path, back < path_length(). */
static size_t path_length(const struct attn_query *q, size_t row)
{
    return is_tree(q) ? q->ancestors_at[row + 1] - q->ancestors_at[row] : row + 1;
}

static size_t path_row(const struct attn_query *q, size_t row, size_t back)
{
    return is_tree(q) ? q->ancestors[q->ancestors_at[row + 1] - 1 - back] : row - back;
}

static float *floats_at(struct device_addr at) { return cpu_at(at); }

/* ---- convolution ---- */

/* The input of the convolution `back` tokens before row `row` of a query, itself being 0. */
static const float *earlier_input(const struct recur_job *job, size_t query, size_t row, size_t back)
{
    const struct state_shape *shape = job->shape;
    const struct attn_query *q = &job->step->query[query];
    const size_t path = path_length(q, row);
    if (back >= path)
        return floats_at(job->pass->recur.view[query].before.conv) +
               (shape->taps - 1 - (back - path)) * shape->conv;
    return inputs_row(job, q->first + path_row(q, row, back));
}

static float softplus(float x) { return x > 20 ? x : (float)repro_log1p(repro_exp(x)); }

/* Sets what the recurrence needs from the convolution's output `x`: decay, beta, keys and values. */
static void set_inputs(const struct recur_job *job, const struct state_inputs *in, float *x)
{
    const struct state_shape *shape = job->shape;
    const struct op_recur *r = &job->op->recur;
    const struct cpu_recur *o = &job->pass->recur;
    const size_t d = shape->key_dim, dv = shape->value_dim, slots = o->padded / shape->heads;
    const size_t decays = shape->by_row ? d : 1; /* of a head */
    const float eps = 1e-6f / (float)d;
    for (size_t g = 0; g < shape->key_heads; g++) {
        float *q = x + job->at.q + g * d, *k = x + job->at.k + g * d;
        if (r->kind == RECUR_DELTA) {
            job->pass->kernels->rmsnorm(q, q, d, o->q_gain, eps);
            job->pass->kernels->rmsnorm(k, k, d, o->k_gain, eps);
        }
        memcpy(in->k + g * d, k, d * sizeof *k);
    }
    for (size_t h = 0; h < shape->heads; h++) {
        const float *v = x + job->at.v + h * dv;
        float step = 0;
        for (size_t i = h * decays; i < (h + 1) * decays; i++) {
            step = softplus(in->decay[i] + *cpu_floats(r->step, r->first_head * decays + i));
            in->decay[i] = (float)repro_exp(-*cpu_floats(r->decay, r->first_head + h) * step);
        }
        if (r->kind == RECUR_DELTA)
            in->beta[h] = (float)repro_sigmoid(in->beta[h]);
        for (size_t j = 0; j < dv; j++)
            in->v[h * slots + j] = r->kind == RECUR_DELTA ? v[j] : step * v[j];
        for (size_t j = dv; j < slots; j++)
            in->v[h * slots + j] = 0;
    }
}

/* Convolution of one row, and what follows from it alone. Body of a parallel loop over rows. */
static void convolve_row(void *arg, size_t i)
{
    const struct recur_job *job = arg;
    const struct op_recur *r = &job->op->recur;
    const struct kernels *kernels = job->pass->kernels;
    const size_t query = job->pass->recur.row_query[i], taps = job->shape->taps + 1;
    const float *x[MAX_TAPS];
    float *y = cpu_row(job->step, r->convolved, i);
    for (size_t t = 0; t < taps; t++)
        x[t] = earlier_input(job, query, i - job->step->query[query].first, taps - 1 - t);
    for (const struct conv_span *span = r->span; span < r->span + r->n_spans; span++) {
        const float *from[MAX_TAPS];
        for (size_t t = 0; t < taps; t++)
            from[t] = x[t] + span->own;
        kernels->convolve(y + span->own, from, taps, cpu_floats(r->conv, span->all), r->channels,
                          cpu_floats(r->conv_bias, span->all), span->n,
                          r->kind == RECUR_CONV ? EPILOGUE_NONE : EPILOGUE_SILU);
    }
    if (r->kind == RECUR_CONV) {
        kernels->gate(cpu_row(job->step, job->op->out, i), y, cpu_row(job->step, r->z, i),
                      job->shape->conv, EPILOGUE_NONE);
    } else {
        const struct state_inputs in = state_inputs_at(job->shape, inputs_row(job, i));
        set_inputs(job, &in, y);
    }
}

/* Writes the inputs that a convolution needs after the first `rows` rows of a chain. */
static void put_conv(const struct recur_job *job, size_t query, size_t rows, float *to)
{
    const struct state_shape *shape = job->shape;
    for (size_t t = 0; t < shape->taps; t++) {
        const size_t at = t + rows;
        const float *from = at < shape->taps
                                ? floats_at(job->pass->recur.view[query].before.conv) + at * shape->conv
                                : inputs_row(job, job->step->query[query].first + at - shape->taps);
        memcpy(to + t * shape->conv, from, shape->conv * sizeof *to);
    }
}

/* Stores the convolution's inputs after the pass, and at its marks; records all inputs if wanted. */
static void store_inputs(const struct recur_job *job)
{
    for (size_t i = 0; i < job->step->n_queries; i++) {
        const struct state_view *v = &job->pass->recur.view[i];
        const struct attn_query *q = &job->step->query[i];
        if (!addr_is_null(v->after.conv))
            put_conv(job, i, q->rows, floats_at(v->after.conv));
        for (size_t m = 0; m < v->n_marks; m++)
            put_conv(job, i, v->mark[m].rows, floats_at(v->mark[m].to.conv));
        if (!addr_is_null(v->inputs))
            memcpy(cpu_at(v->inputs), inputs_row(job, q->first),
                   q->rows * job->pass->recur.width * sizeof(float));
    }
}

/* ---- recurrence ---- */

/* One slab of one head of a query. */
struct slab {
    const struct recur_job *job;
    const struct attn_query *q;
    const struct state_view *view;
    size_t slab, head; /* index among the slabs of all heads */
};

static struct recur step_of(const struct slab *b, size_t row, const float *before, float *after)
{
    const struct recur_job *job = b->job;
    const struct state_shape *shape = job->shape;
    const size_t at = b->q->first + row, group = state_key_head(shape, b->head);
    const struct state_inputs in = state_inputs_at(shape, inputs_row(job, at));
    return (struct recur){
        .state = after,
        .before = before,
        .key_dim = shape->key_dim,
        .k = in.k + group * shape->key_dim,
        .q = cpu_row(job->step, job->op->recur.convolved, at) + job->at.q + group * shape->key_dim,
        .v = in.v + b->slab * STATE_SLAB,
        .decays = shape->by_row ? in.decay + b->head * shape->key_dim : NULL,
        .decay = in.decay[b->head],
        .beta = in.beta[b->head],
        .delta = shape->delta,
        .y = cpu_row(job->step, job->op->recur.y, at) + b->slab * STATE_SLAB,
    };
}

/* Tokens in a row: the state stays in the block after the pass, a slab of which fits in the cache. */
static void run_chain(const struct slab *b)
{
    const size_t floats = slab_floats(b->job->shape), at = b->slab * floats;
    float *after = floats_at(b->view->after.matrix) + at;
    const float *before = floats_at(b->view->before.matrix) + at;
    size_t mark = 0;
    for (size_t row = 0; row < b->q->rows; row++, before = after) {
        const struct recur step = step_of(b, row, before, after);
        b->job->pass->kernels->recur(&step);
        if (mark < b->view->n_marks && b->view->mark[mark].rows == row + 1)
            memcpy(floats_at(b->view->mark[mark++].to.matrix) + at, after, floats * sizeof *after);
    }
}

/* Tokens of a tree: `nodes` has the state of each. */
static void run_tree(const struct slab *b, float *nodes)
{
    const size_t floats = slab_floats(b->job->shape);
    for (size_t row = 0; row < b->q->rows; row++) {
        const float *before = path_length(b->q, row) > 1
                                  ? nodes + path_row(b->q, row, 1) * floats
                                  : floats_at(b->view->before.matrix) + b->slab * floats;
        const struct recur step = step_of(b, row, before, nodes + row * floats);
        b->job->pass->kernels->recur(&step);
    }
}

/* Body of a parallel loop over queries and slabs. */
static void recur_slab(void *arg, size_t index)
{
    const struct recur_job *job = arg;
    const struct cpu_recur *o = &job->pass->recur;
    const size_t slabs = state_slabs(job->shape), all = job->shape->heads * slabs, query = index / all;
    const struct slab b = {job, &job->step->query[query], &o->view[query], index % all,
                           index % all / slabs};
    if (is_tree(b.q))
        run_tree(&b, o->nodes + (size_t)threads_self() * o->n_nodes * slab_floats(job->shape));
    else
        run_chain(&b);
}

static int alloc_nodes(const struct recur_job *job, struct err *err)
{
    struct cpu_recur *o = &job->pass->recur;
    size_t most = 0, floats;
    for (size_t i = 0; i < job->step->n_queries; i++)
        most = is_tree(&job->step->query[i]) ? size_max(most, job->step->query[i].rows) : most;
    if (most <= o->n_nodes)
        return 0;
    free(o->nodes);
    o->n_nodes = 0;
    o->nodes = size_mul((size_t)threads_max() * slab_floats(job->shape), most, &floats)
                   ? mem_alloc(floats, sizeof *o->nodes)
                   : NULL;
    if (!o->nodes)
        return err_no_memory(err, "the states of a draft tree of %zu tokens", most);
    o->n_nodes = most;
    return 0;
}

/* ---- output ---- */

/* Normalises `values` elements of an output row from element `first` on: with Gated DeltaNet each head by
 * the same gains, with Mamba-2 the heads of each head of keys together. */
static void norm_output(const struct recur_job *job, float *out, size_t first, size_t values)
{
    const struct op_recur *r = &job->op->recur;
    const bool delta = r->kind == RECUR_DELTA;
    for (size_t at = 0; !addr_is_null(r->norm) && at < values; at += r->norm_width)
        job->pass->kernels->rmsnorm(out + at, out + at, r->norm_width,
                                    cpu_floats(r->norm, delta ? 0 : first + at), r->eps);
}

static void gate_output(const struct recur_job *job, size_t row)
{
    float *out = cpu_row(job->step, job->op->out, row);
    job->pass->kernels->gate(out, out, cpu_row(job->step, job->op->recur.z, row), job->op->recur.values,
                             job->op->recur.gate);
}

static void scale_output(const struct recur_job *job, size_t row)
{
    const float scale = job->op->recur.scale;
    float *out = cpu_row(job->step, job->op->out, row);
    for (size_t i = 0; scale != 0 && i < job->op->recur.values; i++)
        out[i] *= scale;
}

/* The output of one row: skip connection, norm and gate; with norm_later, what comes before the norm. Body of
 * a parallel loop over rows. */
static void finish_row(void *arg, size_t i)
{
    const struct recur_job *job = arg;
    const struct op_recur *r = &job->op->recur;
    const size_t dv = job->shape->value_dim, slots = job->pass->recur.padded / job->shape->heads;
    const bool delta = r->kind == RECUR_DELTA;
    const float *x = cpu_row(job->step, r->convolved, i) + job->at.v;
    float *out = cpu_row(job->step, job->op->out, i);
    for (size_t h = 0; h < job->shape->heads; h++) {
        const float *y = cpu_row(job->step, r->y, i) + h * slots,
                    skip = delta ? 0 : *cpu_floats(r->skip, r->first_head + h);
        for (size_t j = 0; j < dv; j++)
            out[h * dv + j] = delta ? y[j] : y[j] + skip * x[h * dv + j];
    }
    if (r->norm_first && !r->norm_later)
        norm_output(job, out, r->first_value, r->values);
    if (!r->norm_first || !r->norm_later)
        gate_output(job, i);
    if (!r->norm_first && !r->norm_later)
        norm_output(job, out, r->first_value, r->values);
    if (!r->norm_later)
        scale_output(job, i);
}

int cpu_recur(struct backend_pass *pass, const struct op *op, const struct op_step *step,
              struct row_range rows, struct err *err)
{
    struct recur_job job = job_of(pass, op, step);
    const size_t slabs = job.shape->heads * state_slabs(job.shape);
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *q = &step->query[i];
        kv_state_view(pass->kv, q->seq, op->recur.layer, is_tree(q), &pass->recur.view[i]);
        for (size_t row = 0; row < q->rows; row++)
            pass->recur.row_query[q->first + row] = i;
    }
    parallel_for(rows.n, rows.n * job.shape->conv * (job.shape->taps + 8), convolve_row, &job);
    store_inputs(&job);
    if (op->recur.kind == RECUR_CONV)
        return 0;
    if (alloc_nodes(&job, err) < 0)
        return -1;
    parallel_for(step->n_queries * slabs, 3 * rows.n * slabs * slab_floats(job.shape), recur_slab,
                 &job);
    parallel_for(rows.n, 8 * rows.n * pass->recur.padded, finish_row, &job);
    return 0;
}

/* Norm of one row of all ranks' heads, and what comes after it. Body of a parallel loop over rows. */
static void finish_whole_row(void *arg, size_t i)
{
    const struct recur_job *job = arg;
    const struct op_recur *r = &job->op->recur;
    const size_t row = job->first + i;
    float *all = cpu_row(job->step, r->all, row);
    norm_output(job, all, 0, r->all_values);
    memcpy(cpu_row(job->step, job->op->out, row), all + r->first_value, r->values * sizeof *all);
    if (r->norm_first)
        gate_output(job, row);
    scale_output(job, row);
}

int cpu_recur_end(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                  struct row_range rows, struct err *err)
{
    (void)err;
    struct recur_job job = job_of(pass, op, step);
    job.first = rows.first;
    parallel_for(rows.n, 8 * rows.n * op->recur.all_values, finish_whole_row, &job);
    return 0;
}
