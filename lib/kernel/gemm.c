/* Products of activations with packed weights.
 *
 * Activation rows are converted to the format that the kernel set reads; then threads claim panels
 * of output columns. The weights of a panel are read once for all rows. The result of a column
 * does not depend on the panel that it is in. */
#include "kernel/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "quant/pack.h"
#include "base/threads.h"

enum {
    ROW_CHUNK = INT8_MAX_ROWS, /* activation rows whose sums are buffered for the epilogue */
    ROWS_AT_A_TIME = 16,       /* kernels may read padding rows up to a multiple of this */
    ROW_PAD_BYTES = 64,        /* gap between rows, so that they map to different cache sets */

    /* bytes of weights that a thread claims at a time in memory-bound products, those of up to
     * CLAIM_ROWS activation rows */
    CLAIM_BYTES = 256 << 10,
    CLAIM_BYTES_INT8 = 1 << 20,
    CLAIM_ROWS = 4,
    CLAIM_ROWS_INT8 = 8,

    KC = 128,       /* inputs (K) per kernel call: their weights and the next ones fit in L1 */
    KC_MANY = 1024, /* KC for more than KC_MANY_ROWS rows: sums stay in registers longer */
    KC_MANY_ROWS = 64,
    KC_INT8 = 256
};

struct gemm {
    const struct kernels *kernels;
    enum precision precision;
    size_t max_rows, max_in;
    char *rows;  /* activations, converted to the kernel's format */
    float *sums; /* x W^T and x G^T of a panel: [threads][2][ROW_CHUNK][PANEL_WIDTH] */
    gemm_activation_hook *hook;
    void *hook_arg;
};

const char *const precision_names[] = {"f32", "bf16", "bf16x2", "int8", NULL};

const char *precision_name(enum precision precision) { return precision_names[precision]; }

enum precision precision_default(const struct kernels *kernels, bool quant)
{
    return quant ? PRECISION_INT8 : kernels->panel_bf16 ? PRECISION_BF16X2 : PRECISION_F32;
}

int precision_parse(enum precision *precision, const char *name, const struct kernels *kernels,
                    bool quant, struct err *err)
{
    *precision = precision_default(kernels, quant);
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

enum gemm_kind { KIND_F32, KIND_BF16, KIND_INT8 };

/* The format that activations are converted to before they are multiplied by given weights. */
struct a_format {
    enum gemm_kind kind;
    size_t terms;       /* converted rows per activation row: 2 for bf16x2, else 1 */
    bool rounded;       /* KIND_F32: values are rounded to bf16 */
    size_t group;       /* int8: inputs that share a scale */
    size_t k;           /* inputs of a row, padding included */
    size_t stride;      /* bytes between rows */
    size_t scale, sum;  /* int8: offsets of a row's scales and sums from its q */
    size_t interleaved; /* int8: offset of interleaved rows in gemm.rows; 0: none */
    size_t mr;          /* activation rows per interleaved tile */
};

static size_t element_bytes(enum gemm_kind kind)
{
    return kind == KIND_INT8 ? 1 : kind == KIND_BF16 ? sizeof(bf16) : sizeof(float);
}

/* Returns how many inputs of an activation row share an int8 scale when multiplied by w: QK_GROUP
 * or the whole row; 0: activations are not quantised. */
static size_t int8_group(const struct gemm *gemm, const struct mat *w)
{
    if (gemm->precision != PRECISION_INT8 || !dtype_is_quantized(w->dtype))
        return 0;
    return quant_group(w->dtype, SIZE_MAX) == SIZE_MAX ? w->in_padded : QK_GROUP;
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

/* Returns the number of activation rows per interleaved tile; 0: rows are not interleaved, as when
 * weights and gate differ in type. */
static size_t mr_of(const struct gemm *gemm, const struct product *p, size_t rows)
{
    const struct kernels *k = gemm->kernels;
    const bool one_type = product_group(gemm, p) && (!p->gate || p->gate->dtype == p->w->dtype);
    return one_type && rows && k->int8_mr ? k->int8_mr(p->w->dtype, rows) : 0;
}

static struct a_format a_format_int8(const struct gemm *gemm, const struct product *product,
                                     size_t rows)
{
    struct a_format a = {.kind = KIND_INT8,
                         .terms = 1,
                         .k = product->w->in_padded,
                         .group = product_group(gemm, product)};
    a.scale = a.k;
    a.sum = a.scale + a.k / QK_GROUP * sizeof(float);
    a.stride = a.sum + a.k / QK_HALF * sizeof(int32_t) + ROW_PAD_BYTES;
    a.mr = mr_of(gemm, product, rows);
    if (a.mr)
        a.interleaved = round_up(rows * a.stride, ROW_PAD_BYTES);
    return a;
}

/* Chooses the activation format that all `n` products share; unless all weights are bf16, bf16 ones
 * are converted to f32. */
static struct a_format a_format_of(const struct gemm *gemm, const struct product *product, size_t n,
                                   size_t rows)
{
    const enum precision precision =
        gemm->precision == PRECISION_INT8 ? precision_default(gemm->kernels, false) : gemm->precision;
    const bool bf16_weights = all_bf16(product, n);
    struct a_format a = {.terms = 1, .k = product->w->in_padded};
    if (product_group(gemm, product))
        return a_format_int8(gemm, product, rows);
    if (bf16_weights && gemm->kernels->panel_bf16 && precision != PRECISION_F32)
        a.kind = KIND_BF16;
    a.rounded = precision == PRECISION_BF16 && a.kind == KIND_F32;
    if (bf16_weights && precision == PRECISION_BF16X2)
        a.terms = 2;
    a.stride = a.k * element_bytes(a.kind) + ROW_PAD_BYTES;
    return a;
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
        gemm->sums = mem_alloc((size_t)threads_max(), 2 * ROW_CHUNK * PANEL_WIDTH * sizeof *gemm->sums);
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

struct rows_job {
    const struct gemm *gemm;
    struct a_format a;
    const float *x;
    size_t x_stride, in;
};

static void *term_row(const struct a_format *a, char *row, size_t t) { return row + t * a->stride; }

static void convert_bf16(const struct kernels *k, const struct a_format *a, char *row, const float *x,
                         size_t in)
{
    for (size_t t = 0; t < a->terms; t++)
        memset((bf16 *)term_row(a, row, t) + in, 0, (a->k - in) * sizeof(bf16));
    if (a->terms == 2)
        k->split(term_row(a, row, 0), term_row(a, row, 1), x, in);
    else
        k->to_bf16(term_row(a, row, 0), x, in);
}

/* Prepares an activation row for panel_f32(): as the format requires, copies it, rounds it to bf16
 * or splits it into two bf16 terms; stores f32 in each case. */
static void convert_f32(const struct kernels *k, const struct a_format *a, char *row, const float *x,
                        size_t in)
{
    enum { STEP = 256 };
    bf16 high[STEP], low[STEP];
    float *to = term_row(a, row, 0), *rest = term_row(a, row, a->terms - 1);
    memset(to + in, 0, (a->k - in) * sizeof *to);
    memset(rest + in, 0, (a->k - in) * sizeof *rest);
    if (a->terms == 1 && !a->rounded)
        memcpy(to, x, in * sizeof *to);
    else
        for (size_t j = 0, n; j < in; j += n) {
            n = size_min(STEP, in - j);
            if (a->terms == 2) {
                k->split(high, low, x + j, n);
                k->to_f32(rest + j, low, n);
            } else {
                k->to_bf16(high, x + j, n);
            }
            k->to_f32(to + j, high, n);
        }
}

/* Quantises an activation row to int8, with scales and sums; q and sums of its padding are 0. */
static void convert_int8(const struct kernels *k, const struct a_format *a, char *row, const float *x,
                         size_t in)
{
    float *scale = (void *)(row + a->scale);
    int32_t *sum = (void *)(row + a->sum);
    memset(row + in, 0, a->k - in);
    memset(sum, 0, a->k / QK_HALF * sizeof *sum);
    k->to_int8((int8_t *)row, scale, sum, x, in, a->group);
}

static void convert_row(void *arg, size_t i)
{
    static void (*const make[])(const struct kernels *, const struct a_format *, char *, const float *,
                                size_t) = {
        [KIND_F32] = convert_f32, [KIND_BF16] = convert_bf16, [KIND_INT8] = convert_int8};
    const struct rows_job *job = arg;
    const struct a_format *a = &job->a;
    make[a->kind](job->gemm->kernels, a, job->gemm->rows + i * a->terms * a->stride,
                  job->x + i * job->x_stride, job->in);
}

static struct int8_rows int8_rows_at(const struct a_format *a, const char *row, size_t from)
{
    return (struct int8_rows){
        .q = (const int8_t *)row + from,
        .scale = (const float *)(const void *)(row + a->scale) + from / QK_GROUP,
        .sum = (const int32_t *)(const void *)(row + a->sum) + from / QK_HALF,
        .row_bytes = a->stride,
    };
}

static size_t interleaved_bytes(const struct a_format *a)
{
    return a->k / QK_GROUP * INT8_INTERLEAVED_BYTES;
}

struct tiles_job {
    const struct gemm *gemm;
    const struct a_format *a;
    size_t rows;
    enum dtype type;
};

static void interleave_tile(void *arg, size_t i)
{
    const struct tiles_job *job = arg;
    const struct gemm *gemm = job->gemm;
    const size_t mr = job->a->mr, first = i * mr;
    const struct int8_rows x = int8_rows_at(job->a, gemm->rows + first * job->a->stride, 0);
    gemm->kernels->interleave_int8(gemm->rows + job->a->interleaved + first * interleaved_bytes(job->a),
                                   &x, size_min(mr, job->rows - first), mr, job->a->k, job->type);
}

static void interleave(const struct gemm *gemm, const struct a_format *a, size_t rows, enum dtype type)
{
    struct tiles_job job = {gemm, a, rows, type};
    parallel_for(div_up(rows, a->mr), rows * a->k, interleave_tile, &job);
}

struct panels_job {
    const struct gemm *gemm;
    struct a_format a;
    const struct product *product;
    size_t n, rows;
    size_t blocks;  /* blocks per panel */
    size_t threads; /* threads that share the job */
};

static size_t count_panels(const struct mat *w, size_t blocks) { return div_up(w->out, blocks * NR); }

/* Byte offset of input `from` in a packed block of weights. */
static size_t inputs_bytes(const struct mat *w, size_t from)
{
    return dtype_is_quantized(w->dtype) ? pack_q_bytes(w->dtype, from)
                                        : from * NR * dtype_size(w->dtype);
}

/* Address of the weights of block `block`, from input `from` on. */
static const char *panel_at(const struct mat *w, size_t block, size_t from)
{
    return (const char *)w->data + block * pack_block_bytes(w->dtype, w->in_padded) +
           inputs_bytes(w, from);
}

/* Calls the kernel for sums[rows][PANEL_WIDTH] = activation rows [from, from + rows) * panel^T. */
static void multiply(const struct panels_job *job, const struct panel *panel, size_t from, size_t rows,
                     float *sums)
{
    const struct a_format *a = &job->a;
    const struct kernels *k = job->gemm->kernels;
    const char *row = job->gemm->rows + from * a->terms * a->stride;
    const char *x = row + panel->k_begin * element_bytes(a->kind);
    const size_t stride = a->stride / element_bytes(a->kind);
    struct int8_rows x_int8;
    switch (a->kind) {
    case KIND_F32: k->panel_f32(sums, (const void *)x, stride, rows * a->terms, panel); break;
    case KIND_BF16: k->panel_bf16(sums, (const void *)x, stride, rows * a->terms, panel); break;
    case KIND_INT8:
        x_int8 = int8_rows_at(a, row, panel->k_begin);
        x_int8.mr = a->mr;
        if (a->interleaved)
            x_int8.interleaved = job->gemm->rows + a->interleaved + from * interleaved_bytes(a);
        k->panel_int8(sums, &x_int8, rows, panel);
        break;
    }
}

/* Maximum number of inputs (K) per kernel call: all for interleaved int8 rows, whose kernels stream
 * the weights. */
static size_t kc_of(const struct a_format *a, size_t rows)
{
    if (a->kind == KIND_INT8)
        return a->interleaved ? a->k : KC_INT8;
    return rows * a->terms > KC_MANY_ROWS ? KC_MANY : KC;
}

/* Multiplies activation rows [from, from + rows) by the panel that begins at weight block `block`:
 * sums[rows][PANEL_WIDTH]. Takes kc_of() inputs at a time, so that weights stay in L1 until all
 * rows are multiplied by them. Prefetches the panel at `next`, unless it is NULL. */
static void sum_panel(const struct panels_job *job, const struct mat *w, size_t block, size_t from,
                      size_t rows, const char *next, float *sums)
{
    const struct a_format *a = &job->a;
    const size_t inputs = w->in_padded, most = kc_of(a, rows);
    struct panel panel = {
        .type = w->dtype,
        .block_bytes = pack_block_bytes(w->dtype, inputs),
        .blocks = size_min(job->blocks, div_up(w->out, NR) - block),
    };
    for (size_t p = 0; dtype_is_quantized(w->dtype) && p < SCALE_KINDS; p++)
        panel.scales[p] =
            (const unsigned char *)panel_at(w, block, 0) + pack_scales_at(w->dtype, inputs, p);
    for (panel.k_begin = 0; panel.k_begin < inputs; panel.k_begin += most) {
        panel.kc = size_min(most, inputs - panel.k_begin);
        panel.last_k = panel.k_begin + panel.kc == inputs;
        panel.accumulate = panel.k_begin > 0;
        panel.w = panel_at(w, block, panel.k_begin);
        panel.next = panel.last_k ? next : panel_at(w, block, panel.k_begin + most);
        multiply(job, &panel, from, rows, sums);
    }
}

/* Finds the panel with number `index` among those of all products: returns its product and sets
 * *block to its first weight block. Returns NULL after the last panel. */
static const struct product *find_panel(const struct panels_job *job, size_t index, size_t *block)
{
    const struct product *p = job->product, *end = p + job->n;
    for (; p < end && index >= count_panels(p->w, job->blocks); p++)
        index -= count_panels(p->w, job->blocks);
    *block = index * job->blocks;
    return p < end ? p : NULL;
}

/* Multiplies all activation rows by one panel, then runs the epilogue. */
static void run_panel(void *arg, size_t index)
{
    const struct panels_job *job = arg;
    size_t block, next_block;
    const struct product *p = find_panel(job, index, &block);
    const size_t column = block * NR;
    const size_t chunk = ROW_CHUNK / job->a.terms;
    float *sums = job->gemm->sums + (size_t)threads_self() * 2 * ROW_CHUNK * PANEL_WIDTH;
    float *gate = p->gate ? sums + ROW_CHUNK * PANEL_WIDTH : NULL;
    /* Prefetch the panel that this thread will probably claim next. */
    const struct product *follows = find_panel(job, index + job->threads, &next_block);
    const char *next = follows ? panel_at(follows->w, next_block, 0) : NULL;
    for (size_t from = 0, rows; from < job->rows; from += rows) {
        rows = size_min(chunk, job->rows - from);
        sum_panel(job, p->w, block, from, rows, gate ? panel_at(p->gate, block, 0) : next, sums);
        if (gate)
            sum_panel(job, p->gate, block, from, rows, next, gate);
        const size_t at = from * p->y_stride + column;
        job->gemm->kernels->epilogue(&(struct epilogue){
            .y = p->y + at,
            .y_stride = p->y_stride,
            .sum = sums,
            .gate = gate,
            .split = job->a.terms == 2,
            .rows = rows,
            .n = size_min(job->blocks * NR, p->w->out - column),
            .bias = p->bias ? p->bias + column : NULL,
            .gate_bias = p->gate_bias ? p->gate_bias + column : NULL,
            .residual = p->residual ? p->residual + at : NULL,
            .act = p->act,
        });
    }
}

/* Weight blocks per panel. Products of few rows are memory-bound: small panels balance the load. */
static size_t panel_blocks(const struct a_format *a, const struct mat *w, size_t rows)
{
    const bool int8 = a->kind == KIND_INT8;
    const size_t bytes = int8 ? CLAIM_BYTES_INT8 : CLAIM_BYTES;
    if (rows * a->terms > (int8 ? CLAIM_ROWS_INT8 : CLAIM_ROWS))
        return PANEL_BLOCKS;
    const size_t blocks =
        size_max(1, size_min(PANEL_BLOCKS, bytes / pack_block_bytes(w->dtype, w->in_padded)));
    if (rows == 1)
        return blocks;
    return int8 ? PANEL_BLOCKS : round_up(blocks, 2); /* micro-kernels are so many blocks wide */
}

static bool same_format(const struct gemm *gemm, const struct product *a, const struct product *b,
                        size_t rows)
{
    return product_group(gemm, a) == product_group(gemm, b) &&
           mr_of(gemm, a, rows) == mr_of(gemm, b, rows) &&
           (!mr_of(gemm, a, rows) || a->w->dtype == b->w->dtype);
}

static void run_same_format(struct gemm *gemm, const struct product *product, size_t n, const float *x,
                            size_t x_stride, size_t rows)
{
    const struct mat *w = product->w;
    const struct a_format a = a_format_of(gemm, product, n, rows);
    struct rows_job rows_job = {gemm, a, x, x_stride, w->in};
    struct panels_job job = {
        gemm, a, product, n, rows, panel_blocks(&a, w, rows), (size_t)threads_now()};
    size_t panels = 0, work = 0;
    for (size_t i = 0; i < n; i++) {
        panels += count_panels(product[i].w, job.blocks);
        work += product[i].w->out * w->in * (product[i].gate ? 2 : 1);
    }
    parallel_for(rows, 4 * rows * w->in, convert_row, &rows_job);
    if (a.interleaved)
        interleave(gemm, &a, rows, w->dtype);
    parallel_for(panels, work * rows, run_panel, &job);
}

void gemm_set_hook(struct gemm *gemm, gemm_activation_hook *hook, void *arg)
{
    gemm->hook = hook;
    gemm->hook_arg = arg;
}

void gemm_run(struct gemm *gemm, const struct product *product, size_t n, const float *x,
              size_t x_stride, size_t rows)
{
    if (gemm->hook)
        gemm->hook(gemm->hook_arg, product, n, x, x_stride, rows);
    for (size_t i = 0, many; i < n; i += many) {
        many = 1;
        while (i + many < n && same_format(gemm, &product[i], &product[i + many], rows))
            many++;
        run_same_format(gemm, product + i, many, x, x_stride, rows);
    }
}
