/* Products with weights, and the LoRA adapters beside them: y += B (A x), in f32 whatever the types of weights and
 * activations. Rows of sequences without adapters keep their bits. */
#include "base/mem.h"
#include "base/threads.h"
#include "cpu/cpu_pass.h"
#include "kv/kv.h"
#include "quant/pack.h"

/* Behind buffers that the epilogue reads: it takes whole vectors. */
enum { OVERREAD = PANEL_WIDTH };

int cpu_lora_open(struct backend_pass *pass, const struct backend_options *options, struct err *err)
{
    struct cpu_lora *o = &pass->lora;
    const size_t seqs = kv_setup(options->kv)->n_seqs, rows = options->max_rows;
    if (!options->max_rank)
        return 0;
    o->reduced = mem_alloc(rows, options->max_rank * sizeof(float));
    o->up = mem_zalloc(rows + 1, (options->max_adapted + OVERREAD) * sizeof(float));
    o->gate = mem_zalloc(rows + 1, (options->max_adapted + OVERREAD) * sizeof(float));
    o->task = mem_alloc(seqs, sizeof *o->task);
    o->product = mem_alloc(seqs, sizeof *o->product);
    o->rows = mem_alloc(seqs, sizeof *o->rows);
    o->x_row = mem_alloc(rows, sizeof *o->x_row);
    return o->reduced && o->up && o->gate && o->task && o->product && o->rows && o->x_row
               ? 0
               : err_no_memory(err, "the adapters of %zu tokens", rows);
}

void cpu_lora_close(struct cpu_lora *o)
{
    free(o->reduced);
    free(o->up);
    free(o->gate);
    free(o->task);
    free(o->product);
    free(o->rows);
    free(o->x_row);
}

/* ---- sums of adapters ---- */

/* A product's adapters, over rows of the batch; x and y begin at row 0. */
struct lora_sum {
    struct backend_pass *pass;
    const struct op_step *step;
    size_t adapter; /* as in op_product */
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
};

static struct row_range intersect(struct row_range a, struct row_range b)
{
    const size_t first = size_max(a.first, b.first), end = size_min(a.first + a.n, b.first + b.n);
    return (struct row_range){first, end - size_min(first, end)};
}

/* The matrices of adapter number i, if the span has it and it changes this product; else NULL. */
static const struct op_adapter *find_adapter(const struct op_step *step, const struct op_span *span,
                                             size_t i, size_t adapter)
{
    if (adapter == NO_ADAPTER || span->factor[i] == 0)
        return NULL;
    const struct op_adapter *own = &step->adapter[i][adapter - 1];
    return own->a.out ? own : NULL;
}

static struct lora_task task_of(const struct op_adapter *adapter, float factor, struct row_range rows)
{
    return (struct lora_task){cpu_mat(&adapter->a), cpu_mat(&adapter->b), factor, rows};
}

/* Lists the adapters of the rows, if none has two and all are of one shape, so that their products can run
 * at once; else returns 0. */
static size_t list_tasks(const struct lora_sum *sum, struct row_range rows)
{
    const struct op_step *step = sum->step;
    struct lora_task *task = sum->pass->lora.task;
    size_t n = 0;
    for (size_t s = 0; s < step->n_spans; s++) {
        const struct row_range own = intersect(step->span[s].rows, rows);
        const size_t before = n;
        for (size_t i = 0; own.n && i < step->n_adapters; i++) {
            const struct op_adapter *adapter = find_adapter(step, &step->span[s], i, sum->adapter);
            if (!adapter)
                continue;
            if (n > before || (n && adapter->a.out != task[0].a.out))
                return 0;
            task[n++] = task_of(adapter, step->span[s].factor[i], own);
        }
    }
    return n;
}

/* y += B (factor (A x)) for the rows of the first `n` tasks at once, whose ranks are equal. */
static void add_tasks(const struct lora_sum *sum, size_t n)
{
    struct cpu_lora *o = &sum->pass->lora;
    const struct lora_task *task = o->task;
    const size_t rank = task->a.out;
    const struct row_range last = task[n - 1].rows;
    const struct product_groups reduce = {o->product, o->rows, n, n > 1 ? o->x_row : NULL},
                                expand = {o->product, o->rows, n, NULL};
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        o->product[i] =
            (struct product){.w = &task[i].a, .y = o->reduced, .y_stride = rank, .f32 = true};
        o->rows[i] = task[i].rows.n;
        for (size_t r = 0; r < task[i].rows.n; r++)
            o->x_row[at++] = (uint32_t)(task[i].rows.first + r - task->rows.first);
    }
    gemm_run_groups(sum->pass->gemm, &reduce, sum->x + task->rows.first * sum->x_stride, sum->x_stride,
                    last.first + last.n - task->rows.first);
    at = 0;
    for (size_t i = 0; i < n; i++) {
        /* row `at` there is the task's first one */
        float *to = sum->y + (task[i].rows.first - at) * sum->y_stride;
        o->product[i] = (struct product){
            .w = &task[i].b, .residual = to, .y = to, .y_stride = sum->y_stride, .f32 = true};
        for (size_t k = at * rank; task[i].factor != 1 && k < (at + o->rows[i]) * rank; k++)
            o->reduced[k] *= task[i].factor;
        at += o->rows[i];
    }
    gemm_run_groups(sum->pass->gemm, &expand, o->reduced, rank, at);
}

static void add_adapters(const struct lora_sum *sum, struct row_range rows)
{
    const struct op_step *step = sum->step;
    const size_t n = sum->adapter != NO_ADAPTER && step->n_spans > 1 ? list_tasks(sum, rows) : 0;
    if (n > 1) {
        add_tasks(sum, n);
        return;
    }
    for (size_t s = 0; sum->adapter != NO_ADAPTER && s < step->n_spans; s++) {
        const struct row_range own = intersect(step->span[s].rows, rows);
        for (size_t i = 0; own.n && i < step->n_adapters; i++) {
            const struct op_adapter *adapter = find_adapter(step, &step->span[s], i, sum->adapter);
            if (!adapter)
                continue;
            sum->pass->lora.task[0] = task_of(adapter, step->span[s].factor[i], own);
            add_tasks(sum, 1);
        }
    }
}

/* ---- products whose activation follows what adapters add ---- */

struct activate_job {
    const struct backend_pass *pass;
    const struct product *product;
    size_t first;
};

/* Bias, gate and activation of a row. Body of a parallel loop over rows. */
static void activate_row(void *arg, size_t index)
{
    const struct activate_job *job = arg;
    const struct product *p = job->product;
    const struct cpu_lora *o = &job->pass->lora;
    const size_t row = job->first + index, width = p->w->out;
    for (size_t j = 0; j < width; j += PANEL_WIDTH) {
        const struct epilogue f = {
            .y = p->y + row * p->y_stride + j,
            .y_stride = p->y_stride,
            .sum = o->up + row * width + j,
            .gate = p->gate ? o->gate + row * width + j : NULL,
            .rows = 1,
            .n = size_min(PANEL_WIDTH, width - j),
            .bias = p->bias ? p->bias + j : NULL,
            .gate_bias = p->gate_bias ? p->gate_bias + j : NULL,
            .gate_scale = p->gate_scale,
            .act = p->act,
            .limit = p->limit,
            .alpha = p->alpha,
        };
        gemm_epilogue(job->pass->kernels, &f);
    }
}

static struct product shift_rows(struct product product, size_t rows)
{
    product.y += rows * product.y_stride;
    if (product.residual)
        product.residual += rows * product.y_stride;
    return product;
}

/* The same operations in the same order as those of a fused product, with the adapters' part added to the
 * sums; so rows without adapters have the same bits, if weights and gate are of one type. */
static void activate_adapted(const struct lora_sum *sum, const struct op_product *p,
                             const struct product *product, struct row_range rows)
{
    const struct cpu_lora *o = &sum->pass->lora;
    const size_t width = product->w->out;
    const struct product sums[] = {
        {.w = product->w, .y = o->up, .y_stride = width},
        {.w = product->gate, .y = o->gate, .y_stride = width},
    };
    const struct product shifted[] = {shift_rows(sums[0], rows.first), shift_rows(sums[1], rows.first)};
    struct activate_job job = {sum->pass, product, rows.first};
    gemm_run(sum->pass->gemm, shifted, product->gate ? 2 : 1, sum->x + rows.first * sum->x_stride,
             sum->x_stride, rows.n);
    for (size_t i = 0; i < (product->gate ? 2 : 1); i++) {
        struct lora_sum part = *sum;
        part.adapter = i ? p->gate_adapter : p->adapter;
        part.y = sums[i].y;
        part.y_stride = width;
        add_adapters(&part, rows);
    }
    parallel_for(rows.n, 16 * rows.n * width, activate_row, &job);
}

static bool span_adapts(const struct op_step *step, const struct op_span *span,
                        const struct op_product *p)
{
    for (size_t i = 0; i < step->n_adapters; i++)
        if (find_adapter(step, span, i, p->gate_adapter) || find_adapter(step, span, i, p->adapter))
            return true;
    return false;
}

static bool step_adapts(const struct op_step *step, const struct op_product *p)
{
    for (size_t s = 0; s < step->n_spans; s++)
        if (span_adapts(step, &step->span[s], p))
            return true;
    return false;
}

/* An activated product of rows, some of which adapters change. */
static void run_adapted(const struct lora_sum *sum, const struct op_product *p,
                        const struct product *product, struct row_range rows)
{
    const struct op_step *step = sum->step;
    if (!product->gate || product->gate->dtype == product->w->dtype) {
        activate_adapted(sum, p, product, rows);
        return;
    }
    for (size_t s = 0; s < step->n_spans; s++) {
        const struct row_range own = intersect(step->span[s].rows, rows);
        const struct product shifted = shift_rows(*product, own.first);
        if (own.n && span_adapts(step, &step->span[s], p))
            activate_adapted(sum, p, product, own);
        else if (own.n)
            gemm_run(sum->pass->gemm, &shifted, 1, sum->x + own.first * sum->x_stride, sum->x_stride,
                     own.n);
    }
}

/* ---- products ---- */

/* A product for gemm_run(), whose matrices become those of `mat`; y is at row `row`. */
static struct product product_of(const struct op_product *p, const struct op_step *step, size_t row,
                                 struct mat mat[2])
{
    const struct op_arg y = p->w.skip ? p->scratch : p->y;
    struct product product = {.w = &mat[0],
                              .bias = cpu_floats(p->w.bias, 0),
                              .act = p->act,
                              .limit = p->limit,
                              .alpha = p->alpha,
                              .gate_scale = p->gate_scale,
                              .y = cpu_row(step, y, row),
                              .y_stride = y.stride,
                              .f32 = p->f32};
    mat[0] = cpu_mat(&p->w.matrix);
    if (product_has_gate(p)) {
        mat[1] = cpu_mat(&p->gate.matrix);
        product.gate = &mat[1];
        product.gate_bias = cpu_floats(p->gate.bias, 0);
    }
    if (p->add)
        product.residual = product.y;
    return product;
}

/* Drops the leading outputs, which are another rank's. */
static void drop_skipped(const struct op_product *p, const struct op_step *step, struct row_range rows)
{
    for (size_t row = rows.first; p->w.skip && row < rows.first + rows.n; row++)
        memcpy(cpu_row(step, p->y, row), cpu_row(step, p->scratch, row) + p->w.skip,
               (p->w.matrix.out - p->w.skip) * sizeof(float));
}

int cpu_linear(struct backend_pass *pass, const struct op *op, const struct op_step *step,
               struct row_range rows, struct err *err)
{
    (void)err;
    const struct op_linear *linear = &op->linear;
    const float *x = cpu_row(step, op->in, 0);
    struct product product[OP_PRODUCTS];
    struct mat mat[OP_PRODUCTS][2];
    struct lora_sum sum = {pass, step, NO_ADAPTER, x, op->in.stride, NULL, 0};
    if (linear->product->act != EPILOGUE_NONE && step_adapts(step, linear->product)) {
        product[0] = product_of(linear->product, step, 0, mat[0]);
        run_adapted(&sum, linear->product, product, rows);
        return 0;
    }
    for (size_t i = 0; i < linear->n; i++)
        product[i] = product_of(&linear->product[i], step, rows.first, mat[i]);
    gemm_run(pass->gemm, product, linear->n, x + rows.first * op->in.stride, op->in.stride, rows.n);
    for (size_t i = 0; i < linear->n; i++) {
        const struct op_product *p = &linear->product[i];
        sum.adapter = p->act == EPILOGUE_NONE ? p->adapter : NO_ADAPTER;
        sum.y = cpu_row(step, p->y, 0);
        sum.y_stride = p->y.stride;
        add_adapters(&sum, rows);
        drop_skipped(p, step, rows);
    }
    return 0;
}

/* ---- a matrix per head ---- */

/* Rows of the matrix of one head, in a matrix of all heads one after the other. */
static struct mat head_matrix(const struct mat *all, size_t heads, size_t head)
{
    struct mat own = *all;
    own.out = all->out / heads; /* a multiple of PACK_OUT, as config_read() checks */
    own.data = (const char *)all->data +
               head * own.out / PACK_OUT * pack_block_bytes(all->dtype, all->in_padded);
    return own;
}

int cpu_heads(struct backend_pass *pass, const struct op *op, const struct op_step *step,
              struct row_range rows, struct err *err)
{
    (void)err;
    const struct op_heads *heads = &op->heads;
    const struct mat all = cpu_mat(&heads->w.matrix);
    for (size_t h = 0; h < heads->heads; h++) {
        const struct mat own = head_matrix(&all, heads->heads, h);
        const struct product product = {.w = &own,
                                        .y = cpu_row(step, op->out, rows.first) + h * heads->out_step,
                                        .y_stride = op->out.stride};
        gemm_run(pass->gemm, &product, 1, cpu_row(step, op->in, rows.first) + h * heads->in_step,
                 op->in.stride, rows.n);
    }
    return 0;
}
