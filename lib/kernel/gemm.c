/* Products of activations with packed weights.
 *
 * Activation rows are converted to the format that the kernel set reads; then every thread
 * multiplies them by a range of panels of output columns (steal.h). The weights of a panel are read
 * once for all rows. The result of a column does not depend on the panel that it is in. */
#include "kernel/gemm.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/mem.h"
#include "quant/pack.h"
#include "base/threads.h"
#include "kernel/steal.h"

enum {
    ROW_CHUNK = INT8_MAX_ROWS, /* activation rows whose sums are buffered for the epilogue */
    ROWS_LEAST = 96,           /* rows of a piece, at least; and of a chunk of f32 or bf16 */
    ROWS_AT_A_TIME = PANEL_PADDED_ROWS,
    ROW_PAD_BYTES = 64, /* gap between rows, so that they map to different cache sets */

    /* bytes of weights that a thread claims at a time in memory-bound products, those of up to
     * CLAIM_ROWS activation rows */
    CLAIM_BYTES = 256 << 10,
    CLAIM_BYTES_INT8 = 1 << 20,
    CLAIM_PANELS_BYTES = 128 << 10, /* several panels are claimed up to this size */
    CLAIM_ROWS = 4,
    CLAIM_ROWS_INT8 = 8,

    L2_ROWS_BYTES = 640 << 10, /* converted rows that stay in an L2 of 1 MiB */
    SOME_ROWS = 32,            /* pieces have multiples of so many rows */
    CLAIMS_PER_THREAD = 4,     /* at least, if there are rows enough */

    KC = 128,       /* inputs (K) per kernel call: their weights and the next ones fit in L1 */
    KC_MANY = 1024, /* KC for more than KC_MANY_ROWS rows: sums stay in registers longer */
    KC_MANY_ROWS = 64,
    KC_INT8 = 256
};

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

struct gemm {
    const struct kernels *kernels;
    enum precision precision;
    size_t max_rows, max_in, max_groups;
    size_t l2_rows_bytes;       /* converted rows that stay in this processor's L2 */
    struct row_group *group;    /* [max_groups] scratch of gemm_run_groups() */
    struct steal_range *ranges; /* [threads]: claims of panels */
    char *rows;                 /* activations, converted to the kernel's format: [rows_bytes] */
    size_t rows_bytes;
    float *sums; /* x W^T and x G^T of a panel: [threads][2][ROW_CHUNK][PANEL_WIDTH] */
    double convert_ms;
};

const char *const precision_names[] = {"f32", "bf16", "bf16x2", "int8", NULL};

const char *precision_name(enum precision precision) { return precision_names[precision]; }

enum weights_class weights_class_of(enum dtype type)
{
    return dtype_is_quantized(type) ? WEIGHTS_QUANTISED
           : type == DTYPE_BF16     ? WEIGHTS_BF16
                                    : WEIGHTS_F32;
}

enum precision precision_default(const struct kernels *kernels, enum weights_class weights,
                                 const struct cache_types *caches)
{
    if (weights == WEIGHTS_QUANTISED || (caches && cache_types_any(caches, dtype_is_quantized)))
        return PRECISION_INT8;
    return weights == WEIGHTS_BF16 && kernels->panel_bf16 ? PRECISION_BF16 : PRECISION_F32;
}

const char *precision_kernels(const struct kernels *kernels, enum precision precision)
{
    const bool bf16_products =
        kernels->panel_bf16 && (precision == PRECISION_BF16 || precision == PRECISION_BF16X2);
    return kernels->foreign_sums || bf16_products ? kernels->isa : "";
}

int precision_parse(enum precision *precision, const char *name, const struct kernels *kernels,
                    enum weights_class weights, const struct cache_types *caches, struct err *err)
{
    *precision = precision_default(kernels, weights, caches);
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
    const size_t group = p->f32 ? 0 : int8_group(gemm, p->w);
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
        product->f32 || gemm->precision == PRECISION_INT8 ? PRECISION_F32 : gemm->precision;
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

/* The layout of a block of packed weights. Computed once per product: it takes as long as multiplying a
 * row by a hundred inputs. */
struct block_layout {
    enum dtype type;
    size_t bytes, scales_at[SCALE_KINDS];
};

/* The rows of a product, or of several that share x. */
struct row_group {
    struct a_format a;
    struct block_layout layout; /* of the first product's weights */
    const struct product *product;
    size_t n;       /* products */
    size_t first;   /* first of the converted rows */
    size_t y_first; /* first row of y */
    size_t rows;
    size_t blocks;    /* weight blocks per panel */
    size_t panels;    /* of all products */
    size_t some_rows; /* of a piece */
};

/* Bytes of converted rows that stay in L2 beside weights. */
static size_t rows_in_l2(void) { return size_max(L2_ROWS_BYTES, cpu_cache_bytes(2) / 8 * 5); }

int gemm_open(struct gemm **out, const struct kernels *kernels, enum precision precision,
              size_t max_rows, size_t max_in, struct err *err)
{
    return gemm_open_groups(out, kernels, precision, max_rows, max_in, 1, err);
}

int gemm_open_groups(struct gemm **out, const struct kernels *kernels, enum precision precision,
                     size_t max_rows, size_t max_in, size_t max_groups, struct err *err)
{
    *out = NULL;
    if (kernels_load(kernels, err) < 0)
        return -1;
    struct gemm *gemm = *out = mem_zalloc(1, sizeof *gemm);
    const bool split = precision == PRECISION_BF16X2;
    /* Two terms of bf16 take as much as f32, and int8 less, except interleaved rows of small groups. Without
     * products of bf16, both terms are f32. */
    const bool twice = max_groups > 1 || (split && !kernels->panel_bf16);
    const size_t floats = round_up(max_in, 32) * (twice ? 2 : 1);
    size_t row_bytes = floats * sizeof(float) + ROW_PAD_BYTES * (split ? 2 : 1), bytes = 0;
    /* kernels may read rows beyond those of a group, which may begin anywhere */
    const size_t most = round_up(max_rows, ROWS_AT_A_TIME) + (max_groups > 1 ? ROWS_AT_A_TIME : 0);
    if (gemm && size_mul(row_bytes, most, &bytes)) {
        gemm->group = mem_alloc(max_groups, sizeof *gemm->group);
        gemm->rows = mem_zalloc(1, bytes);
        gemm->rows_bytes = bytes;
        gemm->ranges = mem_alloc((size_t)threads_max(), sizeof *gemm->ranges);
        gemm->sums = mem_alloc((size_t)threads_max(), 2 * ROW_CHUNK * PANEL_WIDTH * sizeof *gemm->sums);
    }
    if (!gemm || !gemm->rows || !gemm->sums || !gemm->group || !gemm->ranges) {
        gemm_close(gemm);
        *out = NULL;
        return err_no_memory(err, "products of %zu rows of %zu, %zu bytes", max_rows, max_in, bytes);
    }
    gemm->kernels = kernels;
    gemm->precision = precision;
    gemm->max_rows = max_rows;
    gemm->max_in = max_in;
    gemm->max_groups = max_groups;
    gemm->l2_rows_bytes = rows_in_l2();
    return 0;
}

void gemm_close(struct gemm *gemm)
{
    if (!gemm)
        return;
    free(gemm->rows);
    free(gemm->sums);
    free(gemm->group);
    free(gemm->ranges);
    free(gemm);
}

/* ---- activation rows, converted to the format that kernels read ---- */

struct gemm_rows {
    const struct kernels *kernels;
    struct a_format a;
    char *rows; /* the converted rows, a.terms * a.stride bytes each */
    const float *x;
    size_t x_stride, in;
    const uint32_t *x_row; /* the row of x that each row is; NULL: all in order */
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
    const struct gemm_rows *job = arg;
    static void (*const make[])(const struct kernels *, const struct a_format *, char *, const float *,
                                size_t) = {
        [KIND_F32] = convert_f32, [KIND_BF16] = convert_bf16, [KIND_INT8] = convert_int8};
    const struct a_format *a = &job->a;
    make[a->kind](job->kernels, a, job->rows + i * a->terms * a->stride,
                  job->x + (job->x_row ? job->x_row[i] : i) * job->x_stride, job->in);
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

/* Groups of rows whose panels, or tiles of interleaved rows, threads claim. */
struct groups_job {
    const struct gemm *gemm;
    const struct gemm_rows *convert; /* rows to convert before they are interleaved; NULL: none */
    const struct row_group *group;
    size_t n;
    size_t threads; /* threads that share the job */
    size_t pieces;  /* of all groups: panels, each with some rows */
    size_t claim;   /* pieces that a thread claims at a time */
};

static size_t count_tiles(const struct row_group *group)
{
    return group->a.mr ? div_up(group->rows, group->a.mr) : 0;
}

/* Bytes up to the end of a group's converted rows, interleaved ones included. */
static size_t rows_end(const struct row_group *group)
{
    const struct a_format *a = &group->a;
    return a->mr ? a->interleaved + count_tiles(group) * a->mr * interleaved_bytes(a)
                 : (group->first + group->rows) * a->terms * a->stride;
}

static void interleave_tile(void *arg, size_t index)
{
    const struct groups_job *job = arg;
    const struct row_group *group = job->group;
    for (; index >= count_tiles(group); group++)
        index -= count_tiles(group);
    const struct a_format *a = &group->a;
    const size_t mr = a->mr, first = index * mr;
    char *rows = job->gemm->rows;
    const size_t end = size_min(first + mr, group->rows);
    for (size_t i = first; job->convert && i < end; i++)
        convert_row((void *)(uintptr_t)job->convert, group->first + i);
    const struct int8_rows x = int8_rows_at(a, rows + (group->first + first) * a->stride, 0);
    job->gemm->kernels->interleave_int8(rows + a->interleaved + first * interleaved_bytes(a), &x,
                                        end - first, mr, a->k, group->product->w->dtype);
}

/* Converts `rows` rows of x, those of the first n groups, and interleaves those that need it: in one
 * pass, a tile after the other, if all do. Adds the time to *ms. */
static void convert(struct groups_job *job, size_t n, const struct gemm_rows *x, size_t rows,
                    double *ms)
{
    const double start = clock_ms();
    size_t tiles = 0;
    job->convert = x;
    for (size_t i = 0; i < n; i++) {
        assert(rows_end(&job->group[i]) <= job->gemm->rows_bytes);
        tiles += count_tiles(&job->group[i]);
        if (job->group[i].rows && !count_tiles(&job->group[i]))
            job->convert = NULL;
    }
    if (!job->convert)
        parallel_for(rows, 4 * rows * x->in, convert_row, (void *)(uintptr_t)x);
    if (tiles)
        parallel_for(tiles, 8 * rows * job->group->a.k, interleave_tile, job);
    *ms += clock_ms() - start;
}

double gemm_convert_ms(const struct gemm *gemm) { return gemm ? gemm->convert_ms : 0; }

static size_t count_panels(const struct mat *w, size_t blocks) { return div_up(w->out, blocks * NR); }

/* Byte offset of input `from` in a packed block of weights. */
static size_t inputs_bytes(const struct mat *w, size_t from)
{
    return dtype_is_quantized(w->dtype) ? pack_q_bytes(w->dtype, from)
                                        : from * NR * dtype_size(w->dtype);
}

static struct block_layout block_layout_of(const struct mat *w)
{
    struct block_layout layout = {.type = w->dtype, .bytes = pack_block_bytes(w->dtype, w->in_padded)};
    for (size_t p = 0; dtype_is_quantized(w->dtype) && p < SCALE_KINDS; p++)
        layout.scales_at[p] = pack_scales_at(w->dtype, w->in_padded, p);
    return layout;
}

/* The layout of a matrix of a group, all of which have as many inputs. */
static struct block_layout layout_in_group(const struct row_group *group, const struct mat *w)
{
    return w->dtype == group->layout.type ? group->layout : block_layout_of(w);
}

/* Address of the first weights of block `block`. */
static const char *block_at(const struct row_group *group, const struct mat *w, size_t block)
{
    return (const char *)w->data + block * layout_in_group(group, w).bytes;
}

/* Calls the kernel for sums[rows][PANEL_WIDTH] = activation rows [from, from + rows) * panel^T. */
static void multiply(const struct gemm *gemm, const struct row_group *group, const struct panel *panel,
                     size_t from, size_t rows, float *sums)
{
    const struct a_format *a = &group->a;
    const struct kernels *k = gemm->kernels;
    const char *row = gemm->rows + (group->first + from) * a->terms * a->stride;
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
            x_int8.interleaved = gemm->rows + a->interleaved + from * interleaved_bytes(a);
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
static void sum_panel(const struct gemm *gemm, const struct row_group *group, const struct mat *w,
                      size_t block, size_t from, size_t rows, const char *next, float *sums)
{
    const struct a_format *a = &group->a;
    const size_t inputs = w->in_padded, most = kc_of(a, rows);
    const struct block_layout layout = layout_in_group(group, w);
    const char *first = (const char *)w->data + block * layout.bytes;
    struct panel panel = {
        .type = w->dtype,
        .block_bytes = layout.bytes,
        .blocks = size_min(group->blocks, div_up(w->out, NR) - block),
    };
    for (size_t p = 0; p < SCALE_KINDS; p++)
        panel.scales[p] = (const unsigned char *)first + layout.scales_at[p];
    for (panel.k_begin = 0; panel.k_begin < inputs; panel.k_begin += most) {
        panel.kc = size_min(most, inputs - panel.k_begin);
        panel.last_k = panel.k_begin + panel.kc == inputs;
        panel.accumulate = panel.k_begin > 0;
        panel.w = first + inputs_bytes(w, panel.k_begin);
        panel.next = panel.last_k ? next : first + inputs_bytes(w, panel.k_begin + most);
        multiply(gemm, group, &panel, from, rows, sums);
    }
}

/* A panel of one of the products. */
struct piece {
    const struct row_group *group;
    const struct product *product; /* NULL: there is no such panel */
    size_t block;                  /* its first weight block */
    size_t from, rows;             /* of the group */
};

/* Pieces of a group: all panels with its first some_rows rows, then with the next ones. */
static size_t count_pieces(const struct row_group *group)
{
    return group->panels * div_up(group->rows, group->some_rows);
}

/* Finds the piece with number `index` among those of all groups and products. */
static struct piece find_piece(const struct groups_job *job, size_t index)
{
    const struct row_group *group = job->group, *end = group + job->n;
    for (; group < end && index >= count_pieces(group); group++)
        index -= count_pieces(group);
    if (group == end)
        return (struct piece){0};
    const size_t from = index / group->panels * group->some_rows;
    const struct product *p = group->product;
    for (index %= group->panels; index >= count_panels(p->w, group->blocks); p++)
        index -= count_panels(p->w, group->blocks);
    return (struct piece){group, p, index * group->blocks, from,
                          size_min(group->some_rows, group->rows - from)};
}

/* Row `row` of the sums of an epilogue, behind bias and activation. */
static void epilogue_row(const struct kernels *kernels, const struct epilogue *f, const float *sum,
                         const float *bias, enum epilogue_act act, size_t row, float *y)
{
    kernels->epilogue(&(struct epilogue){.y = y,
                                         .y_stride = PANEL_WIDTH,
                                         .sum = sum + row * (f->split ? 2 : 1) * PANEL_WIDTH,
                                         .split = f->split,
                                         .rows = 1,
                                         .n = f->n,
                                         .bias = bias,
                                         .act = act});
}

void gemm_epilogue(const struct kernels *kernels, const struct epilogue *f)
{
    const float limit = f->limit;
    if (!f->gate || limit == 0 || f->act == EPILOGUE_CLAMPED_SWIGLU) {
        kernels->epilogue(f);
        return;
    }
    for (size_t i = 0; i < f->rows; i++) {
        float gate[PANEL_WIDTH], up[PANEL_WIDTH], *y = f->y + i * f->y_stride;
        epilogue_row(kernels, f, f->gate, f->gate_bias, f->act, i, gate);
        epilogue_row(kernels, f, f->sum, f->bias, EPILOGUE_NONE, i, up);
        for (size_t j = 0; j < f->n; j++) {
            const float u = up[j] > limit ? limit : up[j] < -limit ? -limit : up[j];
            y[j] = (gate[j] > limit ? limit : gate[j]) * u;
        }
    }
}

/* Multiplies the rows of a piece by its panel, then runs the epilogue. Prefetches the panel of piece number
 * `following`. */
static void run_piece(const struct groups_job *job, size_t index, size_t following)
{
    const struct gemm *gemm = job->gemm;
    const struct piece found = find_piece(job, index);
    const struct row_group *group = found.group;
    const struct product *p = found.product;
    const size_t block = found.block, column = block * NR;
    const size_t chunk = group->a.kind == KIND_INT8 ? ROW_CHUNK : ROWS_LEAST / group->a.terms;
    float *sums = gemm->sums + (size_t)threads_self() * 2 * ROW_CHUNK * PANEL_WIDTH;
    float *gate = p->gate ? sums + ROW_CHUNK * PANEL_WIDTH : NULL;
    const struct piece follows = find_piece(job, following);
    const char *next =
        follows.product ? block_at(follows.group, follows.product->w, follows.block) : NULL;
    const size_t end = found.from + found.rows;
    for (size_t from = found.from, rows; from < end; from += rows) {
        rows = size_min(chunk, end - from);
        sum_panel(gemm, group, p->w, block, from, rows, gate ? block_at(group, p->gate, block) : next,
                  sums);
        if (gate)
            sum_panel(gemm, group, p->gate, block, from, rows, next, gate);
        const size_t at = (group->y_first + from) * p->y_stride + column;
        const struct epilogue f = {
            .y = p->y + at,
            .y_stride = p->y_stride,
            .sum = sums,
            .gate = gate,
            .split = group->a.terms == 2,
            .rows = rows,
            .n = size_min(group->blocks * NR, p->w->out - column),
            .bias = p->bias ? p->bias + column : NULL,
            .gate_bias = p->gate_bias ? p->gate_bias + column : NULL,
            .residual = p->residual ? p->residual + at : NULL,
            .act = p->act,
            .limit = p->limit,
            .alpha = p->alpha,
            .gate_scale = p->gate_scale,
        };
        gemm_epilogue(gemm->kernels, &f);
    }
}

/* Claims pieces and runs them until none is left. */
static void run_claims(void *arg, size_t index)
{
    const struct groups_job *job = arg;
    const size_t self = (size_t)threads_self() % job->threads;
    struct steal_item claim;
    (void)index;
    while (steal_take(job->gemm->ranges, job->threads, self, &claim)) {
        const size_t end = size_min((claim.item + 1) * job->claim, job->pieces);
        const size_t following = claim.next < SIZE_MAX ? claim.next * job->claim : job->pieces;
        for (size_t i = claim.item * job->claim; i < end; i++)
            run_piece(job, i, i + 1 < end ? i + 1 : following);
        threads_idle();
    }
}

/* Weight blocks per panel. Products of few rows are memory-bound: small panels balance the load. */
static size_t panel_blocks(const struct a_format *a, size_t block_bytes, size_t rows)
{
    const bool int8 = a->kind == KIND_INT8;
    const size_t bytes = int8 ? CLAIM_BYTES_INT8 : CLAIM_BYTES;
    if (rows * a->terms > (int8 ? CLAIM_ROWS_INT8 : CLAIM_ROWS))
        return PANEL_BLOCKS;
    const size_t blocks = size_max(1, size_min(PANEL_BLOCKS, bytes / block_bytes));
    if (rows == 1)
        return blocks;
    return int8 ? PANEL_BLOCKS : round_up(blocks, 2); /* micro-kernels are so many blocks wide */
}

/* Rows of a piece. So few that they stay in L2 for the following panels, if that is possible with twice as many as the least; a part for
 * each thread, if the weights are not much larger than the rows, which another core has converted; and so few that
 * all threads find work. Multiples of the least of int8 rows, whose tiles do not span pieces. */
_Static_assert((int)ROW_CHUNK % (int)ROWS_LEAST == 0, "a piece has whole tiles");
static size_t rows_of_piece(const struct gemm *gemm, const struct row_group *group)
{
    const struct a_format *a = &group->a;
    const size_t row = a->terms * a->stride, least = ROWS_LEAST / a->terms,
                 threads = (size_t)threads_now();
    const size_t weights = group->panels * group->blocks * group->layout.bytes;
    const size_t in_l2 = gemm->l2_rows_bytes / row;
    size_t parts = div_up(CLAIMS_PER_THREAD * threads,
                          size_max(1, group->panels)); /* a rank may have no outputs */
    if (in_l2 >= 2 * least)
        parts = size_max(parts, div_up(group->rows, in_l2));
    if (weights <= 2 * group->rows * row)
        parts = size_max(parts, threads);
    return size_max(least,
                    round_up(div_up(group->rows, parts), a->kind == KIND_INT8 ? least : SOME_ROWS));
}

static bool same_format(const struct gemm *gemm, const struct product *a, const struct product *b,
                        size_t rows)
{
    return a->f32 == b->f32 && product_group(gemm, a) == product_group(gemm, b) &&
           mr_of(gemm, a, rows) == mr_of(gemm, b, rows) &&
           (!mr_of(gemm, a, rows) || a->w->dtype == b->w->dtype);
}

/* Completes a group: its format and panels. Returns the multiply-adds of its products. */
static size_t plan_group(const struct gemm *gemm, struct row_group *group)
{
    const struct product *p = group->product;
    size_t work = 0;
    group->a = a_format_of(gemm, p, group->n, group->rows);
    group->layout = block_layout_of(p->w);
    group->blocks = panel_blocks(&group->a, group->layout.bytes, group->rows);
    group->panels = 0;
    for (size_t i = 0; i < group->n; i++) {
        group->panels += count_panels(p[i].w, group->blocks);
        work += p[i].w->out * p->w->in * (p[i].gate ? 2 : 1);
    }
    group->some_rows = rows_of_piece(gemm, group);
    return work * group->rows;
}

/* Multiplies converted rows: claims the panels of all groups. */
static void run_panels(struct groups_job *job, size_t work)
{
    const struct row_group *group = job->group;
    const size_t bytes = group->blocks * group->layout.bytes;
    job->pieces = 0;
    for (size_t i = 0; i < job->n; i++)
        job->pieces += count_pieces(&job->group[i]);
    /* small panels cost more to claim than to balance */
    job->claim = size_max(1, size_min(CLAIM_PANELS_BYTES / bytes, job->pieces / (job->threads * 16)));
    const size_t claims = div_up(job->pieces, job->claim);
    steal_begin(job->gemm->ranges, job->threads, claims);
    parallel_for(size_min(claims, job->threads), work, run_claims, job);
}

static void run_same_format(struct gemm *gemm, const struct product *product, size_t n, const float *x,
                            size_t x_stride, size_t rows)
{
    const size_t in = product->w->in;
    struct row_group group = {.product = product, .n = n, .rows = rows};
    const size_t work = plan_group(gemm, &group);
    struct groups_job job = {gemm, NULL, &group, 1, (size_t)threads_now(), 0, 1};
    convert(&job, 1, &(struct gemm_rows){gemm->kernels, group.a, gemm->rows, x, x_stride, in, NULL},
            rows, &gemm->convert_ms);
    run_panels(&job, work);
}

void gemm_run_groups(struct gemm *gemm, const struct product_groups *groups, const float *x,
                     size_t x_stride, size_t x_rows)
{
    const bool one = groups->x_row && x_rows == 1; /* all products have the same row */
    const size_t in = groups->product->w->in;
    size_t rows = 0, work = 0;
    for (size_t i = 0; i < groups->n; rows += groups->rows[i++]) {
        gemm->group[i] = (struct row_group){.product = &groups->product[i],
                                            .n = 1,
                                            .first = one ? 0 : rows,
                                            .y_first = rows,
                                            .rows = groups->rows[i]};
        work += plan_group(gemm, &gemm->group[i]);
    }
    const struct a_format a = gemm->group->a;
    const size_t converted = one ? 1 : rows;
    size_t at = round_up(converted * a.stride, ROW_PAD_BYTES);
    for (size_t i = 0; i < groups->n; i++) {
        struct row_group *group = &gemm->group[i];
        if (!group->a.mr)
            continue;
        group->a.interleaved = at;
        at += one ? 0 : count_tiles(group) * group->a.mr * interleaved_bytes(&group->a);
    }
    struct groups_job job = {gemm, NULL, gemm->group, groups->n, (size_t)threads_now(), 0, 1};
    convert(&job, one ? 1 : groups->n,
            &(struct gemm_rows){gemm->kernels, a, gemm->rows, x, x_stride, in, groups->x_row},
            converted, &gemm->convert_ms);
    run_panels(&job, work);
}

void gemm_run(struct gemm *gemm, const struct product *product, size_t n, const float *x,
              size_t x_stride, size_t rows)
{
    for (size_t i = 0, many; i < n; i += many) {
        many = 1;
        while (i + many < n && same_format(gemm, &product[i], &product[i + many], rows))
            many++;
        run_same_format(gemm, product + i, many, x, x_stride, rows);
    }
}
