/* Collects an importance matrix during forward passes. */
#include "model/imatrix_collect.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"
#include "format/imatrix.h"
#include "model/weight_kinds.h"

enum { CHUNK = 256 }; /* input columns per thread task */

struct input_sums {
    char name[WEIGHT_NAME_SIZE];
    const void *data; /* address of the weights: identifies the matrix of a GEMM */
    size_t n;
    double *sum; /* [n] sum of squares of each input column */
    size_t rows;
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
    for (size_t i = 0; i < o->n; i++)
        free(o->matrix[i].sum);
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
    if (kind->in == DIM_NONE || weight_kind_looked_up(kind, c) || !weight_kind_has(kind, c, layer) ||
        (c->tied_head && kind == weight_kind_find("head.weight")))
        return 0;
    struct input_sums *m = &o->matrix[o->n++];
    weight_kind_tensor_name(kind, layer, m->name);
    m->data = mat->data;
    m->n = mat->in;
    m->sum = mem_zalloc(m->n, sizeof *m->sum);
    return m->sum ? 0 : err_set(err, "out of memory for sums of %zu inputs", m->n);
}

int imatrix_collect_open(struct imatrix_collect **out, const struct model *model, struct err *err)
{
    const size_t most = n_weight_kinds * (model->config.layers + 1);
    struct imatrix_collect *o = *out = calloc(1, sizeof *o);
    int rc = 0;
    if (!o || !(o->matrix = calloc(most, sizeof *o->matrix))) {
        rc = err_set(err, "out of memory for sums of %zu matrices", most);
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

struct add_job {
    struct input_sums *matrix;
    const float *x;
    size_t x_stride, rows;
};

static void add_chunk(void *arg, size_t chunk)
{
    const struct add_job *a = arg;
    const size_t from = chunk * CHUNK, end = size_min(from + CHUNK, a->matrix->n);
    double *sum = a->matrix->sum;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = from; i < end; i++) {
            const double x = a->x[r * a->x_stride + i];
            sum[i] += x * x;
        }
}

static void add_rows(struct imatrix_collect *o, const struct mat *w, const float *x, size_t x_stride,
                     size_t rows)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->matrix[i].data == w->data) {
            struct add_job add_job = {&o->matrix[i], x, x_stride, rows};
            o->matrix[i].rows += rows;
            parallel_for(div_up(w->in, CHUNK), rows * w->in, add_chunk, &add_job);
        }
}

void imatrix_collect_add(void *arg, const struct product *product, size_t n, const float *x,
                         size_t x_stride, size_t rows)
{
    for (size_t i = 0; i < n; i++) {
        add_rows(arg, product[i].w, x, x_stride, rows);
        if (product[i].gate)
            add_rows(arg, product[i].gate, x, x_stride, rows);
    }
}

static int mean_of(const struct input_sums *m, struct imatrix_entry *entry, struct err *err)
{
    float *number = mem_alloc(m->n, sizeof *number);
    *entry = (struct imatrix_entry){m->name, number, m->n};
    if (!number)
        return err_set(err, "out of memory for %zu inputs", m->n);
    if (!m->rows)
        return err_set(err, "\"%s\" was never used: the text is too short for an importance matrix",
                       m->name);
    for (size_t i = 0; i < m->n; i++)
        number[i] = (float)(m->sum[i] / (double)m->rows);
    return dtype_finite(DTYPE_F32, number, m->n)
               ? 0
               : err_set(err, "\"%s\" has inputs that are NaN or infinite: the model may be damaged",
                         m->name);
}

int imatrix_collect_save(const struct imatrix_collect *o, const char *path, size_t tokens,
                         struct err *err)
{
    struct imatrix_entry *entry = calloc(o->n, sizeof *entry);
    int rc = entry ? 0 : err_set(err, "out of memory for %zu matrices", o->n);
    for (size_t i = 0; i < o->n && rc == 0; i++)
        rc = mean_of(&o->matrix[i], &entry[i], err);
    if (rc == 0)
        rc = imatrix_write(path, &o->model->file.model_id, tokens, entry, o->n, err);
    for (size_t i = 0; entry && i < o->n; i++)
        free((void *)(uintptr_t)entry[i].number);
    free(entry);
    return rc;
}
