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
#include "base/pack.h"
#include "base/threads.h"

enum {
    ROW_CHUNK = INT8_MOST_ROWS, /* rows whose sums are kept before they are finished */
    ROWS_AT_A_TIME = 16,        /* what kernels may round a number of rows up to */
    ROW_PAD_BYTES = 64,         /* between rows: so that they do not all fall on the same cache lines */
    PANEL_BYTES = 256 << 10,    /* of weights that a thread claims when few rows wait for memory */
    FEW_ROWS = 4,
    CODES_BYTES = 1 << 20, /* the same for few bits in int8 */
    FEW_CODES = 8,
    SOME_ROWS = 64,
    DEPTH = 128, /* inputs multiplied at a time: they and the next fit the first-level cache */
    DEEP = 1024, /* the same for many rows: sums are kept in registers for longer */
    CODES = 256  /* the same for few bits in int8 */
};

struct gemm {
    const struct kernels *kernels;
    enum precision precision;
    size_t max_rows, max_in;
    char *rows;  /* the activations as the kernel reads them */
    float *sums; /* [threads][2][ROW_CHUNK][PANEL_WIDTH] */
    gemm_watcher *watcher;
    void *watcher_arg;
};

const char *const precision_names[] = {"f32", "bf16", "bf16x2", "int8", NULL};

const char *precision_name(enum precision precision) { return precision_names[precision]; }

enum precision precision_default(const struct kernels *kernels, bool few)
{
    return few ? PRECISION_INT8 : kernels->panel_bf16 ? PRECISION_BF16X2 : PRECISION_F32;
}

int precision_parse(enum precision *precision, const char *name, const struct kernels *kernels,
                    bool few, struct err *err)
{
    *precision = precision_default(kernels, few);
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

enum kind { KIND_F32, KIND_BF16, KIND_INT8 };

/* The form of the rows for the weights that they meet. */
struct form {
    enum kind kind;
    size_t terms;      /* rows that one row becomes */
    bool rounded;      /* f32 that was rounded to bf16 */
    size_t group;      /* int8: inputs that share a scale */
    size_t depth;      /* inputs */
    size_t stride;     /* bytes from row to row */
    size_t scale, sum; /* int8: bytes from a row's codes to those of the scales and sums */
    size_t woven;      /* of rows in int8: bytes from the first to where they lie woven; or 0 */
    size_t tall;       /* rows of a woven tile */
};

static size_t element_bytes(enum kind kind)
{
    return kind == KIND_INT8 ? 1 : kind == KIND_BF16 ? sizeof(bf16) : sizeof(float);
}

/* What x is quantised for: a group, a row, or 0: it is not. */
static size_t int8_group(const struct gemm *gemm, const struct mat *w)
{
    if (gemm->precision != PRECISION_INT8 || !dtype_few_bits(w->dtype))
        return 0;
    return few_group(w->dtype, SIZE_MAX) == SIZE_MAX ? w->in_padded : FEW_GROUP;
}

static size_t product_group(const struct gemm *gemm, const struct product *p)
{
    const size_t group = int8_group(gemm, p->w);
    return p->gate && int8_group(gemm, p->gate) != group ? 0 : group;
}

static bool all_bf16(const struct product *product, size_t n)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all &= product[i].w->dtype == DTYPE_BF16 &&
               (!product[i].gate || product[i].gate->dtype == DTYPE_BF16);
    return all;
}

/* Rows are woven for one type of codes: to tiles of how many; 0: they are not. */
static size_t tall_of(const struct gemm *gemm, const struct product *p, size_t rows)
{
    const struct kernels *k = gemm->kernels;
    const bool one_type = product_group(gemm, p) && (!p->gate || p->gate->dtype == p->w->dtype);
    return one_type && rows && k->int8_tall ? k->int8_tall(p->w->dtype, rows) : 0;
}

static struct form form_int8(const struct gemm *gemm, const struct product *product, size_t rows)
{
    struct form form = {.kind = KIND_INT8,
                        .terms = 1,
                        .depth = product->w->in_padded,
                        .group = product_group(gemm, product)};
    form.scale = form.depth;
    form.sum = form.scale + form.depth / FEW_GROUP * sizeof(float);
    form.stride = form.sum + form.depth / FEW_HALF * sizeof(int32_t) + ROW_PAD_BYTES;
    form.tall = tall_of(gemm, product, rows);
    if (form.tall)
        form.woven = round_up(rows * form.stride, ROW_PAD_BYTES);
    return form;
}

/* Where only some of the matrices are bf16, those are widened: one form of the rows serves all. */
static struct form form_of(const struct gemm *gemm, const struct product *product, size_t n,
                           size_t rows)
{
    const enum precision precision =
        gemm->precision == PRECISION_INT8 ? precision_default(gemm->kernels, false) : gemm->precision;
    const bool bf16_weights = all_bf16(product, n);
    struct form form = {.terms = 1, .depth = product->w->in_padded};
    if (product_group(gemm, product))
        return form_int8(gemm, product, rows);
    if (bf16_weights && gemm->kernels->panel_bf16 && precision != PRECISION_F32)
        form.kind = KIND_BF16;
    form.rounded = precision == PRECISION_BF16 && form.kind == KIND_F32;
    if (bf16_weights && precision == PRECISION_BF16X2)
        form.terms = 2;
    form.stride = form.depth * element_bytes(form.kind) + ROW_PAD_BYTES;
    return form;
}

int gemm_open(struct gemm **out, const struct kernels *kernels, enum precision precision,
              size_t max_rows, size_t max_in, struct err *err)
{
    *out = NULL;
    if (kernels_load(kernels, err) < 0)
        return -1;
    struct gemm *gemm = *out = mem_zalloc(1, sizeof *gemm);
    const size_t terms = precision == PRECISION_BF16X2 || precision == PRECISION_INT8 ? 2 : 1;
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

/* Term t of a row. */
static void *term(const struct form *form, char *row, size_t t) { return row + t * form->stride; }

static void form_bf16(const struct kernels *k, const struct form *form, char *row, const float *x,
                      size_t in)
{
    for (size_t t = 0; t < form->terms; t++)
        memset((bf16 *)term(form, row, t) + in, 0, (form->depth - in) * sizeof(bf16));
    if (form->terms == 2)
        k->split(term(form, row, 0), term(form, row, 1), x, in);
    else
        k->to_bf16(term(form, row, 0), x, in);
}

/* The same values in f32, for sets that have no bf16 products. */
static void form_f32(const struct kernels *k, const struct form *form, char *row, const float *x,
                     size_t in)
{
    enum { PIECE = 256 };
    bf16 high[PIECE], low[PIECE];
    float *to = term(form, row, 0), *rest = term(form, row, form->terms - 1);
    memset(to + in, 0, (form->depth - in) * sizeof *to);
    memset(rest + in, 0, (form->depth - in) * sizeof *rest);
    if (form->terms == 1 && !form->rounded)
        memcpy(to, x, in * sizeof *to);
    else
        for (size_t j = 0, n; j < in; j += n) {
            n = size_min(PIECE, in - j);
            if (form->terms == 2) {
                k->split(high, low, x + j, n);
                k->to_f32(rest + j, low, n);
            } else {
                k->to_bf16(high, x + j, n);
            }
            k->to_f32(to + j, high, n);
        }
}

/* Padding has the scale of the row's last inputs, and codes of 0. */
static void form_codes(const struct kernels *k, const struct form *form, char *row, const float *x,
                       size_t in)
{
    float *scale = (void *)(row + form->scale);
    int32_t *sum = (void *)(row + form->sum);
    memset(row + in, 0, form->depth - in);
    memset(sum, 0, form->depth / FEW_HALF * sizeof *sum);
    k->to_int8((int8_t *)row, scale, sum, x, in, form->group);
}

static void form_row(void *arg, size_t i)
{
    static void (*const make[])(const struct kernels *, const struct form *, char *, const float *,
                                size_t) = {
        [KIND_F32] = form_f32, [KIND_BF16] = form_bf16, [KIND_INT8] = form_codes};
    const struct rows_job *job = arg;
    const struct form *form = &job->form;
    make[form->kind](job->gemm->kernels, form, job->gemm->rows + i * form->terms * form->stride,
                     job->x + i * job->x_stride, job->in);
}

static struct int8_rows int8_rows_at(const struct form *form, const char *row, size_t from)
{
    return (struct int8_rows){
        .code = (const int8_t *)row + from,
        .scale = (const float *)(const void *)(row + form->scale) + from / FEW_GROUP,
        .sum = (const int32_t *)(const void *)(row + form->sum) + from / FEW_HALF,
        .row_bytes = form->stride,
    };
}

/* A row's bytes, woven. */
static size_t woven_bytes(const struct form *form)
{
    return form->depth / FEW_GROUP * INT8_WOVEN_BYTES;
}

struct tiles_job {
    const struct gemm *gemm;
    const struct form *form;
    size_t rows;
    enum dtype type;
};

static void weave_tile(void *arg, size_t i)
{
    const struct tiles_job *job = arg;
    const struct gemm *gemm = job->gemm;
    const size_t tall = job->form->tall, first = i * tall;
    const struct int8_rows x = int8_rows_at(job->form, gemm->rows + first * job->form->stride, 0);
    gemm->kernels->weave_int8(gemm->rows + job->form->woven + first * woven_bytes(job->form), &x,
                              size_min(tall, job->rows - first), tall, job->form->depth, job->type);
}

static void weave(const struct gemm *gemm, const struct form *form, size_t rows, enum dtype type)
{
    struct tiles_job job = {gemm, form, rows, type};
    threads_each(div_up(rows, form->tall), rows * form->depth, weave_tile, &job);
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

/* Bytes of the first `from` inputs of a block; of few bits, their codes. */
static size_t inputs_bytes(const struct mat *w, size_t from)
{
    return dtype_few_bits(w->dtype) ? pack_codes(w->dtype, from) : from * LANES * dtype_size(w->dtype);
}

/* The weights of a panel from input `from` on. */
static const char *panel_at(const struct mat *w, size_t block, size_t from)
{
    return (const char *)w->data + block * pack_block_bytes(w->dtype, w->in_padded) +
           inputs_bytes(w, from);
}

/* sums = rows * panel, from row `from` on. */
static void multiply(const struct panels_job *job, const struct panel *panel, size_t from, size_t rows,
                     float *sums)
{
    const struct form *form = &job->form;
    const struct kernels *k = job->gemm->kernels;
    const char *row = job->gemm->rows + from * form->terms * form->stride;
    const char *x = row + panel->from * element_bytes(form->kind);
    const size_t stride = form->stride / element_bytes(form->kind);
    struct int8_rows x_int8;
    switch (form->kind) {
    case KIND_F32: k->panel_f32(sums, (const void *)x, stride, rows * form->terms, panel); break;
    case KIND_BF16: k->panel_bf16(sums, (const void *)x, stride, rows * form->terms, panel); break;
    case KIND_INT8:
        x_int8 = int8_rows_at(form, row, panel->from);
        x_int8.tall = form->tall;
        if (form->woven)
            x_int8.woven = job->gemm->rows + form->woven + from * woven_bytes(form);
        k->panel_int8(sums, &x_int8, rows, panel);
        break;
    }
}

/* Inputs multiplied at a time. Codes that few rows meet are read as they lie, from end to end. */
static size_t depth_of(const struct form *form, size_t rows)
{
    if (form->kind == KIND_INT8)
        return form->woven ? form->depth : CODES;
    return rows * form->terms > SOME_ROWS ? DEEP : DEPTH;
}

/* sums[rows][PANEL_WIDTH], a range of inputs at a time: what has been fetched stays in the first-level
 * cache until all rows have passed over it. `next` comes after this panel, or is NULL. */
static void sum_panel(const struct panels_job *job, const struct mat *w, size_t block, size_t from,
                      size_t rows, const char *next, float *sums)
{
    const struct form *form = &job->form;
    const size_t inputs = w->in_padded, most = depth_of(form, rows);
    struct panel panel = {
        .type = w->dtype,
        .block_bytes = pack_block_bytes(w->dtype, inputs),
        .blocks = size_min(job->blocks, div_up(w->out, LANES) - block),
    };
    for (size_t p = 0; dtype_few_bits(w->dtype) && p < FEW_PLANES; p++)
        panel.plane[p] =
            (const unsigned char *)panel_at(w, block, 0) + pack_plane_at(w->dtype, inputs, p);
    for (panel.from = 0; panel.from < inputs; panel.from += most) {
        panel.depth = size_min(most, inputs - panel.from);
        panel.last = panel.from + panel.depth == inputs;
        panel.onward = panel.from > 0;
        panel.w = panel_at(w, block, panel.from);
        panel.next = panel.last ? next : panel_at(w, block, panel.from + most);
        multiply(job, &panel, from, rows, sums);
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
    const bool codes = form->kind == KIND_INT8;
    const size_t bytes = codes ? CODES_BYTES : PANEL_BYTES;
    if (rows * form->terms > (codes ? FEW_CODES : FEW_ROWS))
        return PANEL_BLOCKS;
    const size_t blocks =
        size_max(1, size_min(PANEL_BLOCKS, bytes / pack_block_bytes(w->dtype, w->in_padded)));
    return rows > 1 ? round_up(blocks, 2) : blocks; /* tiles may be two blocks wide */
}

/* They want x in the same form. */
static bool alike(const struct gemm *gemm, const struct product *a, const struct product *b,
                  size_t rows)
{
    return product_group(gemm, a) == product_group(gemm, b) &&
           tall_of(gemm, a, rows) == tall_of(gemm, b, rows) &&
           (!tall_of(gemm, a, rows) || a->w->dtype == b->w->dtype);
}

/* Products that do. */
static void run_alike(struct gemm *gemm, const struct product *product, size_t n, const float *x,
                      size_t x_stride, size_t rows)
{
    const struct mat *w = product->w;
    const struct form form = form_of(gemm, product, n, rows);
    struct rows_job rows_job = {gemm, form, x, x_stride, w->in};
    struct panels_job job = {
        gemm, form, product, n, rows, panel_blocks(&form, w, rows), (size_t)threads_now()};
    size_t panels = 0, work = 0;
    for (size_t i = 0; i < n; i++) {
        panels += count_panels(product[i].w, job.blocks);
        work += product[i].w->out * w->in * (product[i].gate ? 2 : 1);
    }
    threads_each(rows, 4 * rows * w->in, form_row, &rows_job);
    if (form.woven)
        weave(gemm, &form, rows, w->dtype);
    threads_each(panels, work * rows, run_panel, &job);
}

void gemm_watch(struct gemm *gemm, gemm_watcher *watcher, void *arg)
{
    gemm->watcher = watcher;
    gemm->watcher_arg = arg;
}

void gemm_run(struct gemm *gemm, const struct product *product, size_t n, const float *x,
              size_t x_stride, size_t rows)
{
    if (gemm->watcher)
        gemm->watcher(gemm->watcher_arg, product, n, x, x_stride, rows);
    for (size_t i = 0, many; i < n; i += many) {
        many = 1;
        while (i + many < n && alike(gemm, &product[i], &product[i + many], rows))
            many++;
        run_alike(gemm, product + i, many, x, x_stride, rows);
    }
}
