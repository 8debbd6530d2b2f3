/* Collects an importance matrix during forward passes. */
#include "model/imatrix_collect.h"

#include "base/mem.h"
#include "base/threads.h"
#include "format/imatrix.h"
#include "model/weight_kinds.h"

/* The inputs of a matrix, or of a stack of them. */
struct input_sums {
    char name[WEIGHT_NAME_SIZE];
    const void *weight; /* what products name */
    size_t n;           /* inputs of a matrix */
    size_t stack;       /* number of matrices */
    double *sum;        /* [stack][n] sum of squares of each input column */
    size_t *rows;       /* [stack] */
};

struct imatrix_collect {
    const struct model *model;
    struct input_sums *matrix;
    size_t n;
};

void imatrix_collect_close(struct imatrix_collect *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n; i++) {
        free(o->matrix[i].sum);
        free(o->matrix[i].rows);
    }
    free(o->matrix);
    free(o);
}

/* Adds a matrix to those to collect for, if a GEMM reads it; a tied LM head is collected under the
 * embedding's name. */
static int add_matrix(struct imatrix_collect *o, const struct weight_kind *kind, size_t layer,
                      struct err *err)
{
    const struct config *c = &o->model->config;
    const struct mat *mat = weight_kind_at(kind, &o->model->weights, layer);
    if (kind->in == DIM_NONE || weight_kind_of_streams(kind) || weight_kind_looked_up(kind, c) ||
        !weight_kind_has(kind, c, layer) || (c->tied_head && kind == weight_kind_find("head.weight")))
        return 0;
    struct input_sums *m = &o->matrix[o->n++];
    weight_kind_tensor_name(kind, layer, m->name);
    m->weight = mat == &o->model->weights.embed ? &o->model->weights.head : (const void *)mat;
    m->n = mat->in;
    m->stack = size_max(weight_kind_stack(kind, c), 1);
    m->sum = mem_zalloc(m->stack * m->n, sizeof *m->sum);
    m->rows = mem_zalloc(m->stack, sizeof *m->rows);
    return m->sum && m->rows ? 0 : err_no_memory(err, "sums of %zu inputs", m->n);
}

int imatrix_collect_open(struct imatrix_collect **out, const struct model *model, struct err *err)
{
    const size_t most = n_weight_kinds * (model->config.layers + 1);
    struct imatrix_collect *o = *out = calloc(1, sizeof *o);
    int rc = 0;
    if (!o || !(o->matrix = calloc(most, sizeof *o->matrix))) {
        rc = err_no_memory(err, "sums of %zu matrices", most);
    } else {
        o->model = model;
        for (size_t i = 0; i < n_weight_kinds; i++)
            for (size_t l = 0; l < weight_kind_copies(&weight_kinds[i], &model->config) && rc == 0; l++)
                rc = add_matrix(o, &weight_kinds[i], l, err);
    }
    if (rc < 0) {
        imatrix_collect_close(o);
        *out = NULL;
    }
    return rc;
}

/* ---- sums ---- */

enum { SQUARES_CHUNK = 256 }; /* input columns per thread task */

struct squares_job {
    double *sum; /* [n] */
    size_t n;
    const float *x;
    size_t x_stride, rows;
};

static void add_squares_chunk(void *arg, size_t chunk)
{
    const struct squares_job *a = arg;
    const size_t from = chunk * SQUARES_CHUNK, end = size_min(from + SQUARES_CHUNK, a->n);
    double *sum = a->sum;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = from; i < end; i++) {
            const double x = a->x[r * a->x_stride + i];
            sum[i] += x * x;
        }
}

void imatrix_collect_add(void *arg, const void *weight, size_t expert, const float *x, size_t x_stride,
                         size_t rows)
{
    const struct imatrix_collect *o = arg;
    for (struct input_sums *m = o->matrix; m < o->matrix + o->n; m++) {
        if (m->weight != weight)
            continue;
        struct squares_job job = {m->sum + expert * m->n, m->n, x, x_stride, rows};
        m->rows[expert] += rows;
        parallel_for(div_up(m->n, SQUARES_CHUNK), rows * m->n, add_squares_chunk, &job);
    }
}

/* ---- the file ---- */

/* The mean squares of a matrix; 0 for those of a stack, experts, that were not used. */
static int mean_of(const struct input_sums *m, struct imatrix_entry *entry, struct err *err)
{
    const size_t n = m->stack * m->n;
    float *number = mem_alloc(n, sizeof *number);
    *entry = (struct imatrix_entry){m->name, number, n};
    if (!number)
        return err_no_memory(err, "%zu inputs", n);
    bool any = false;
    for (size_t i = 0; i < m->stack; i++)
        any |= m->rows[i] > 0;
    if (!any)
        return err_set(err, "\"%s\" was never used: the text is too short for an importance matrix",
                       m->name);
    for (size_t i = 0; i < n; i++)
        number[i] = (float)(m->sum[i] / (double)size_max(m->rows[i / m->n], 1));
    return dtype_finite(DTYPE_F32, number, n)
               ? 0
               : err_set(err, "\"%s\" has inputs that are NaN or infinite: the model may be damaged",
                         m->name);
}

int imatrix_collect_save(const struct imatrix_collect *o, const char *path, size_t tokens,
                         struct err *err)
{
    AUTO(free_auto) struct imatrix_entry *entry = calloc(o->n, sizeof *entry);
    int rc = entry ? 0 : err_no_memory(err, "%zu matrices", o->n);
    for (size_t i = 0; i < o->n && rc == 0; i++)
        rc = mean_of(&o->matrix[i], &entry[i], err);
    if (rc == 0)
        rc = imatrix_write(path, &o->model->file.model_id, tokens, entry, o->n, err);
    for (size_t i = 0; entry && i < o->n; i++)
        free((void *)(uintptr_t)entry[i].number);
    return rc;
}
