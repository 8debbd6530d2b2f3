/* Products with LoRA adapters. */
#include "model/lora/forward_lora.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"

/* Neighbouring rows of a pass whose sequences have the same factors. */
struct lora_span {
    struct row_range rows;
    const float *factor; /* [adapters] */
};

/* Rows of a pass that one adapter changes. */
struct lora_task {
    const struct lora_pair *pair;
    float factor;
    struct row_range rows;
};

struct forward_lora {
    const struct loras *loras;
    float *factor;    /* [sequences of the cache][adapters] */
    float *reduced;   /* [max_rows][max_rank]: A x */
    float *up, *gate; /* [max_rows][ffn]: sums of an MLP before activation */
    struct lora_span *span;
    size_t n_spans;
    /* products of different adapters at once, [sequences of the cache] */
    struct lora_task *task;
    struct product *product;
    size_t *rows;
    uint32_t *x_row; /* [max_rows] */
};

/* Behind buffers that the epilogue reads: it takes whole vectors. */
enum { OVERREAD = PANEL_WIDTH };

int forward_lora_open(struct forward *f, struct err *err)
{
    const struct loras *loras = f->model->loras;
    const size_t seqs = kv_setup(f->kv)->n_seqs, ffn = config_max_ffn(&f->model->config);
    if (!loras || !loras->n)
        return 0;
    struct forward_lora *o = f->lora = mem_zalloc(1, sizeof *o);
    if (!o)
        return err_no_memory(err, "the buffers of LoRA adapters");
    o->loras = loras;
    o->factor = mem_alloc(seqs, loras->n * sizeof *o->factor);
    o->span = mem_alloc(seqs, sizeof *o->span);
    o->reduced = mem_alloc(f->max_rows, loras_max_rank(loras) * sizeof(float));
    o->up = mem_zalloc(f->max_rows + 1, (ffn + OVERREAD) * sizeof(float));
    o->gate = mem_zalloc(f->max_rows + 1, (ffn + OVERREAD) * sizeof(float));
    o->task = mem_alloc(seqs, sizeof *o->task);
    o->product = mem_alloc(seqs, sizeof *o->product);
    o->rows = mem_alloc(seqs, sizeof *o->rows);
    o->x_row = mem_alloc(f->max_rows, sizeof *o->x_row);
    if (!o->factor || !o->span || !o->reduced || !o->up || !o->gate || !o->task || !o->product ||
        !o->rows || !o->x_row)
        return err_no_memory(err, "the adapters of %zu tokens", f->max_rows);
    for (size_t i = 0; i < seqs * loras->n; i++)
        o->factor[i] = 1;
    return 0;
}

void forward_lora_close(struct forward *f)
{
    struct forward_lora *o = f->lora;
    if (!o)
        return;
    free(o->factor);
    free(o->span);
    free(o->reduced);
    free(o->up);
    free(o->gate);
    free(o->task);
    free(o->product);
    free(o->rows);
    free(o->x_row);
    free(o);
    f->lora = NULL;
}

bool forward_lora_set(struct forward *f, size_t seq, const float *factor)
{
    struct forward_lora *o = f->lora;
    bool changed = false;
    for (size_t i = 0; o && i < o->loras->n; i++) {
        float *own = &o->factor[seq * o->loras->n + i];
        const float to = factor ? factor[i] : 1;
        changed |= *own != to;
        *own = to;
    }
    return changed;
}

static bool same_factors(const struct forward_lora *o, const float *a, const float *b)
{
    for (size_t i = 0; i < o->loras->n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

const float *forward_lora_factors(const struct forward *f, size_t seq)
{
    return f->lora ? f->lora->factor + seq * f->lora->loras->n : NULL;
}

bool forward_lora_same(const struct forward *f, size_t a, size_t b)
{
    return !f->lora || same_factors(f->lora, forward_lora_factors(f, a), forward_lora_factors(f, b));
}

void forward_lora_begin(struct forward *f, const struct step *step)
{
    struct forward_lora *o = f->lora;
    if (!o)
        return;
    o->n_spans = 0;
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *q = &step->query[i];
        struct lora_span *last = o->n_spans ? &o->span[o->n_spans - 1] : NULL;
        const float *factor = forward_lora_factors(f, q->seq);
        if (last && same_factors(o, last->factor, factor))
            last->rows.n += q->rows;
        else
            o->span[o->n_spans++] = (struct lora_span){{q->first, q->rows}, factor};
    }
}

static struct row_range intersect(struct row_range a, struct row_range b)
{
    const size_t first = size_max(a.first, b.first), end = size_min(a.first + a.n, b.first + b.n);
    return (struct row_range){first, end - size_min(first, end)};
}

/* The layer's matrices of adapter number i, if the span has it; else NULL. */
static const struct lora_pair *pair_of(const struct forward_lora *o, const struct lora_span *span,
                                       size_t i, enum lora_target target, size_t layer)
{
    const struct lora_pair *pair = lora_pair(o->loras->one[i], layer, target);
    return span->factor[i] != 0 && pair->a.data ? pair : NULL;
}

/* y += B (factor (A x)) for rows with the same adapter. */
static void add_pair(struct forward *f, const struct lora_pair *pair, float factor, const float *x,
                     float *y, size_t y_stride, struct row_range rows)
{
    struct forward_lora *o = f->lora;
    const size_t rank = pair->a.out;
    float *to = y + rows.first * y_stride;
    const struct product reduce = {.w = &pair->a, .y = o->reduced, .y_stride = rank, .f32 = true};
    const struct product expand = {
        .w = &pair->b, .residual = to, .y = to, .y_stride = y_stride, .f32 = true};
    gemm_run(f->gemm, &reduce, 1, x + rows.first * pair->a.in, pair->a.in, rows.n);
    for (size_t i = 0; factor != 1 && i < rows.n * rank; i++)
        o->reduced[i] *= factor;
    gemm_run(f->gemm, &expand, 1, o->reduced, rank, rows.n);
}

/* Lists the adapters of the rows, if none has two and all are of one shape, so that their products can run
 * at once; else returns 0. */
static size_t list_tasks(struct forward_lora *o, enum lora_target target, size_t layer,
                         struct row_range rows)
{
    size_t n = 0;
    for (size_t s = 0; s < o->n_spans; s++) {
        const struct row_range own = intersect(o->span[s].rows, rows);
        const size_t before = n;
        for (size_t i = 0; own.n && i < o->loras->n; i++) {
            const struct lora_pair *pair = pair_of(o, &o->span[s], i, target, layer);
            if (!pair)
                continue;
            if (n > before || (n && pair->a.out != o->task[0].pair->a.out))
                return 0;
            o->task[n++] = (struct lora_task){pair, o->span[s].factor[i], own};
        }
    }
    return n;
}

/* add_pair() for `n` tasks at once. */
static void add_tasks(struct forward *f, size_t n, const float *x, float *y, size_t y_stride)
{
    struct forward_lora *o = f->lora;
    const struct lora_task *task = o->task;
    const size_t rank = task->pair->a.out, in = task->pair->a.in;
    const struct row_range last = task[n - 1].rows;
    const struct product_groups groups = {o->product, o->rows, n, NULL};
    struct product_groups reduce = groups;
    size_t at = 0;
    reduce.x_row = o->x_row;
    for (size_t i = 0; i < n; i++) {
        o->product[i] =
            (struct product){.w = &task[i].pair->a, .y = o->reduced, .y_stride = rank, .f32 = true};
        o->rows[i] = task[i].rows.n;
        for (size_t r = 0; r < task[i].rows.n; r++)
            o->x_row[at++] = (uint32_t)(task[i].rows.first + r);
    }
    gemm_run_groups(f->gemm, &reduce, x, in, last.first + last.n);
    at = 0;
    for (size_t i = 0; i < n; i++) {
        float *to =
            y + (task[i].rows.first - at) * y_stride; /* row `at` there is the task's first one */
        o->product[i] = (struct product){
            .w = &task[i].pair->b, .residual = to, .y = to, .y_stride = y_stride, .f32 = true};
        for (size_t k = at * rank; task[i].factor != 1 && k < (at + o->rows[i]) * rank; k++)
            o->reduced[k] *= task[i].factor;
        at += o->rows[i];
    }
    gemm_run_groups(f->gemm, &groups, o->reduced, rank, at);
}

void forward_lora_add(struct forward *f, enum lora_target target, size_t layer, const float *x,
                      float *y, size_t y_stride, struct row_range rows)
{
    struct forward_lora *o = f->lora;
    const size_t n = o && o->n_spans > 1 ? list_tasks(o, target, layer, rows) : 0;
    if (n > 1) {
        add_tasks(f, n, x, y, y_stride);
        return;
    }
    for (size_t s = 0; o && s < o->n_spans; s++) {
        const struct row_range own = intersect(o->span[s].rows, rows);
        for (size_t i = 0; own.n && i < o->loras->n; i++) {
            const struct lora_pair *pair = pair_of(o, &o->span[s], i, target, layer);
            if (pair)
                add_pair(f, pair, o->span[s].factor[i], x, y, y_stride, own);
        }
    }
}

/* ---- the first product of an MLP ---- */

static bool adapts_up(const struct forward_lora *o, const struct lora_span *span, size_t layer)
{
    for (size_t i = 0; i < o->loras->n; i++)
        if (pair_of(o, span, i, LORA_GATE, layer) || pair_of(o, span, i, LORA_UP, layer))
            return true;
    return false;
}

bool forward_lora_adapts_up(const struct forward *f, size_t layer)
{
    const struct forward_lora *o = f->lora;
    for (size_t s = 0; o && s < o->n_spans; s++)
        if (adapts_up(o, &o->span[s], layer))
            return true;
    return false;
}

struct activate_job {
    const struct forward *f;
    const struct product *product;
    size_t first;
};

/* Bias, gate and activation of a row. Body of a parallel loop over rows. */
static void activate_row(void *arg, size_t index)
{
    const struct activate_job *job = arg;
    const struct product *p = job->product;
    const struct forward_lora *o = job->f->lora;
    const size_t row = job->first + index, width = p->w->out;
    for (size_t j = 0; j < width; j += PANEL_WIDTH)
        job->f->kernels->epilogue(&(struct epilogue){
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
        });
}

static void run_fused(struct forward *f, const struct product *product, const float *x,
                      struct row_range rows)
{
    struct product own = *product;
    own.y += rows.first * own.y_stride;
    gemm_run(f->gemm, &own, 1, x + rows.first * own.w->in, own.w->in, rows.n);
}

/* The same operations in the same order as those of a fused product, with the adapters' part added to the
 * sums; so rows without adapters have the same bits, if weights and gate are of one type. */
static void run_apart(struct forward *f, const struct product *product, size_t layer, const float *x,
                      struct row_range rows)
{
    struct forward_lora *o = f->lora;
    const size_t in = product->w->in, width = product->w->out, at = rows.first * width;
    const struct product sums[] = {
        {.w = product->w, .y = o->up + at, .y_stride = width},
        {.w = product->gate, .y = o->gate + at, .y_stride = width},
    };
    struct activate_job job = {f, product, rows.first};
    gemm_run(f->gemm, sums, product->gate ? 2 : 1, x + rows.first * in, in, rows.n);
    forward_lora_add(f, LORA_UP, layer, x, o->up, width, rows);
    if (product->gate)
        forward_lora_add(f, LORA_GATE, layer, x, o->gate, width, rows);
    parallel_for(rows.n, 16 * rows.n * width, activate_row, &job);
}

void forward_lora_up(struct forward *f, const struct product *product, size_t layer, const float *x,
                     struct row_range rows)
{
    const struct forward_lora *o = f->lora;
    if (!product->gate || product->gate->dtype == product->w->dtype) {
        run_apart(f, product, layer, x, rows);
        return;
    }
    for (size_t s = 0; s < o->n_spans; s++) {
        const struct row_range own = intersect(o->span[s].rows, rows);
        if (own.n && adapts_up(o, &o->span[s], layer))
            run_apart(f, product, layer, x, own);
        else if (own.n)
            run_fused(f, product, x, own);
    }
}
