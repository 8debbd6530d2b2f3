/* Products of activations with packed weights.
 *
 * The rows are brought into the form that the set's kernel takes; then threads claim panels of columns.
 * A panel's weights are read once for all rows. What a column comes to
 * does not depend on the panel that it is part of. */
#include "kernel/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/threads.h"

enum {
    ROW_CHUNK = 96,          /* rows whose sums are kept before they are finished */
    ROWS_AT_A_TIME = 16,     /* what kernels may round a number of rows up to */
    ROW_PAD_BYTES = 64,      /* between rows: so that they do not all fall on the same cache lines */
    PANEL_BYTES = 256 << 10, /* of weights that a thread claims when few rows wait for memory */
    FEW_ROWS = 4,
    SOME_ROWS = 64,
    DEPTH = 128, /* inputs multiplied at a time: they and the next fit the first-level cache */
    DEEP = 1024  /* the same for many rows: sums are kept in registers for longer */
};

struct gemm {
    const struct kernels *kernels;
    enum precision precision;
    size_t max_rows, max_in;
    char *rows;  /* the activations as the kernel reads them */
    float *sums; /* [threads][2][ROW_CHUNK][PANEL_WIDTH] */
};

const char *const precision_names[] = {"f32", "bf16", "bf16x2", NULL};

const char *precision_name(enum precision precision) { return precision_names[precision]; }

enum precision precision_default(const struct kernels *kernels)
{
    return kernels->panel_bf16 ? PRECISION_BF16X2 : PRECISION_F32;
}

int precision_parse(enum precision *precision, const char *name, const struct kernels *kernels,
                    struct err *err)
{
    *precision = precision_default(kernels);
    if (!name || !*name)
        return 0;
    char known[64] = "";
    for (size_t i = 0, used = 0; precision_names[i]; i++) {
        if (strcmp(name, precision_names[i]) == 0) {
            *precision = (enum precision)i;
            return 0;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 precision_names[i]);
    }
    return err_set(err, "precision \"%s\" is unknown; there are: %s", name, known);
}

/* The form of the rows for the weights that they meet. */
struct form {
    bool narrow;          /* bf16, else f32 */
    size_t terms;         /* rows that one row becomes */
    bool rounded;         /* f32 that was rounded to bf16 */
    size_t depth, stride; /* inputs, and elements from row to row */
};

/* Where only some of the matrices are bf16, those are widened: one form of the rows serves all. */
static struct form form_of(const struct gemm *gemm, const struct product *product, size_t n)
{
    bool bf16_weights = true;
    for (size_t i = 0; i < n; i++) {
        const struct mat *gate = product[i].gate;
        bf16_weights &= product[i].w->dtype == DTYPE_BF16 && (!gate || gate->dtype == DTYPE_BF16);
    }
    struct form form = {.terms = 1, .depth = product->w->in_padded};
    form.narrow = bf16_weights && gemm->kernels->panel_bf16 && gemm->precision != PRECISION_F32;
    form.rounded = gemm->precision == PRECISION_BF16 && !form.narrow;
    if (bf16_weights && gemm->precision == PRECISION_BF16X2)
        form.terms = 2;
    form.stride = form.depth + ROW_PAD_BYTES / (form.narrow ? sizeof(bf16) : sizeof(float));
    return form;
}

int gemm_open(struct gemm **out, const struct kernels *kernels, enum precision precision,
              size_t max_rows, size_t max_in, struct err *err)
{
    *out = NULL;
    if (kernels_load(kernels, err) < 0)
        return -1;
    struct gemm *gemm = *out = mem_zalloc(1, sizeof *gemm);
    const size_t terms = precision == PRECISION_BF16X2 ? 2 : 1;
    size_t row_bytes = (round_up(max_in, 32) * sizeof(float) + ROW_PAD_BYTES) * terms, bytes = 0;
    if (gemm && size_mul(row_bytes, round_up(max_rows, ROWS_AT_A_TIME), &bytes)) {
        gemm->rows = mem_zalloc(1, bytes);
        gemm->sums =
            mem_alloc((size_t)threads_most(), 2 * ROW_CHUNK * PANEL_WIDTH * sizeof *gemm->sums);
    }
    if (!gemm || !gemm->rows || !gemm->sums) {
        gemm_close(gemm);
        *out = NULL;
        return err_set(err, "out of memory: products of %zu rows of %zu need %zu bytes", max_rows,
                       max_in, bytes);
    }
    gemm->kernels = kernels;
    gemm->precision = precision;
    gemm->max_rows = max_rows;
    gemm->max_in = max_in;
    return 0;
}

void gemm_close(struct gemm *gemm)
{
    if (!gemm)
        return;
    free(gemm->rows);
    free(gemm->sums);
    free(gemm);
}

/* ---- the rows ---- */

struct rows_job {
    const struct gemm *gemm;
    struct form form;
    const float *x;
    size_t x_stride, in;
};

static void form_narrow(const struct kernels *k, const struct form *form, bf16 *to, const float *x,
                        size_t in)
{
    for (size_t t = 0; t < form->terms; t++)
        memset(to + t * form->stride + in, 0, (form->depth - in) * sizeof *to);
    if (form->terms == 2)
        k->split(to, to + form->stride, x, in);
    else
        k->to_bf16(to, x, in);
}

/* The same values in f32, for sets that have no bf16 products. */
static void form_wide(const struct kernels *k, const struct form *form, float *to, const float *x,
                      size_t in)
{
    enum { PIECE = 256 };
    bf16 high[PIECE], low[PIECE];
    for (size_t t = 0; t < form->terms; t++)
        memset(to + t * form->stride + in, 0, (form->depth - in) * sizeof *to);
    if (form->terms == 1 && !form->rounded)
        memcpy(to, x, in * sizeof *to);
    else
        for (size_t j = 0, n; j < in; j += n) {
            n = size_min(PIECE, in - j);
            if (form->terms == 2) {
                k->split(high, low, x + j, n);
                k->to_f32(to + form->stride + j, low, n);
            } else {
                k->to_bf16(high, x + j, n);
            }
            k->to_f32(to + j, high, n);
        }
}

static void form_row(void *arg, size_t i)
{
    const struct rows_job *job = arg;
    const struct kernels *k = job->gemm->kernels;
    const size_t at = i * job->form.terms * job->form.stride;
    const float *x = job->x + i * job->x_stride;
    void *rows = job->gemm->rows;
    if (job->form.narrow)
        form_narrow(k, &job->form, (bf16 *)rows + at, x, job->in);
    else
        form_wide(k, &job->form, (float *)rows + at, x, job->in);
}

/* ---- the panels ---- */

struct panels_job {
    const struct gemm *gemm;
    struct form form;
    const struct product *product;
    size_t n, rows;
    size_t blocks;  /* of a panel */
    size_t threads; /* of the team */
};

static size_t count_panels(const struct mat *w, size_t blocks)
{
    return div_up(w->out, blocks * LANES);
}

/* The weights of a panel from input `from` on. */
static const char *panel_at(const struct mat *w, size_t block, size_t from)
{
    return (const char *)w->data + (block * w->in_padded + from) * LANES * dtype_size(w->dtype);
}

/* sums[rows][PANEL_WIDTH], a range of inputs at a time: what has been fetched stays in the first-level
 * cache until all rows have passed over it. `next` comes after this panel, or is NULL. */
static void sum_panel(const struct panels_job *job, const struct mat *w, size_t block, size_t from,
                      size_t rows, const char *next, float *sums)
{
    const struct form *form = &job->form;
    const struct kernels *k = job->gemm->kernels;
    const size_t at = from * form->terms * form->stride, inputs = w->in_padded;
    const size_t most = rows * form->terms > SOME_ROWS ? DEEP : DEPTH;
    for (size_t k_from = 0; k_from < inputs; k_from += most) {
        const bool last = k_from + most >= inputs;
        const struct panel panel = {
            .w = panel_at(w, block, k_from),
            .type = w->dtype,
            .block_bytes = inputs * LANES * dtype_size(w->dtype),
            .blocks = size_min(job->blocks, div_up(w->out, LANES) - block),
            .depth = size_min(most, inputs - k_from),
            .onward = k_from > 0,
            .next = last ? next : panel_at(w, block, k_from + most),
        };
        if (form->narrow)
            k->panel_bf16(sums, (const bf16 *)(const void *)job->gemm->rows + at + k_from, form->stride,
                          rows * form->terms, &panel);
        else
            k->panel_f32(sums, (const float *)(const void *)job->gemm->rows + at + k_from, form->stride,
                         rows * form->terms, &panel);
    }
}

/* Panel `index` of the job: of which product, and its first block; NULL behind the last. */
static const struct product *find_panel(const struct panels_job *job, size_t index, size_t *block)
{
    const struct product *p = job->product, *end = p + job->n;
    for (; p < end && index >= count_panels(p->w, job->blocks); p++)
        index -= count_panels(p->w, job->blocks);
    *block = index * job->blocks;
    return p < end ? p : NULL;
}

/* All rows of one panel of one product. */
static void run_panel(void *arg, size_t index)
{
    const struct panels_job *job = arg;
    size_t block, next_block;
    const struct product *p = find_panel(job, index, &block);
    const size_t column = block * LANES;
    const size_t chunk = ROW_CHUNK / job->form.terms;
    float *sums = job->gemm->sums + (size_t)threads_self() * 2 * ROW_CHUNK * PANEL_WIDTH;
    float *gate = p->gate ? sums + ROW_CHUNK * PANEL_WIDTH : NULL;
    /* While the others take the panels between, this thread will probably come to this one. */
    const struct product *follows = find_panel(job, index + job->threads, &next_block);
    const char *next = follows ? panel_at(follows->w, next_block, 0) : NULL;
    for (size_t from = 0, rows; from < job->rows; from += rows) {
        rows = size_min(chunk, job->rows - from);
        sum_panel(job, p->w, block, from, rows, gate ? panel_at(p->gate, block, 0) : next, sums);
        if (gate)
            sum_panel(job, p->gate, block, from, rows, next, gate);
        const size_t at = from * p->y_stride + column;
        job->gemm->kernels->finish(&(struct finish){
            .y = p->y + at,
            .y_stride = p->y_stride,
            .sum = sums,
            .gate = gate,
            .split = job->form.terms == 2,
            .rows = rows,
            .n = size_min(job->blocks * LANES, p->w->out - column),
            .bias = p->bias ? p->bias + column : NULL,
            .gate_bias = p->gate_bias ? p->gate_bias + column : NULL,
            .plus = p->plus ? p->plus + at : NULL,
            .act = p->act,
        });
    }
}

/* Few rows wait for memory: small claims end at the same time. Many rows are worth a whole panel. */
static size_t panel_blocks(const struct form *form, const struct mat *w, size_t rows)
{
    const size_t block_bytes = LANES * w->in_padded * dtype_size(w->dtype);
    if (rows * form->terms > FEW_ROWS)
        return PANEL_BLOCKS;
    return size_max(1, size_min(PANEL_BLOCKS, PANEL_BYTES / block_bytes));
}

void gemm_run(struct gemm *gemm, const struct product *product, size_t n, const float *x,
              size_t x_stride, size_t rows)
{
    const struct mat *w = product->w;
    const struct form form = form_of(gemm, product, n);
    struct rows_job rows_job = {gemm, form, x, x_stride, w->in};
    struct panels_job job = {
        gemm, form, product, n, rows, panel_blocks(&form, w, rows), (size_t)threads_now()};
    size_t panels = 0, work = 0;
    for (size_t i = 0; i < n; i++) {
        panels += count_panels(product[i].w, job.blocks);
        work += product[i].w->out * w->in * (product[i].gate ? 2 : 1);
    }
    threads_each(rows, 4 * rows * w->in, form_row, &rows_job);
    threads_each(panels, work * rows, run_panel, &job);
}
