/* Collects an importance matrix during forward passes. */
#include "model/imatrix_collect.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "cpu/cpu.h"
#include "format/imatrix.h"
#include "model/weight_kinds.h"
#include "quant/pack.h"

/* The inputs of a matrix, or of a stack of them. */
struct input_sums {
    char name[WEIGHT_NAME_SIZE];
    const char *data;   /* address of the weights: identifies the matrix of a GEMM */
    size_t stack_bytes; /* from one matrix of a stack to the next; 1: no stack */
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
    if (kind->in == DIM_NONE || weight_kind_looked_up(kind, c) || !weight_kind_has(kind, c, layer) ||
        (c->tied_head && kind == weight_kind_find("head.weight")))
        return 0;
    struct input_sums *m = &o->matrix[o->n++];
    weight_kind_tensor_name(kind, layer, m->name);
    m->data = mat->data;
    m->n = mat->in;
    const size_t stack = weight_kind_stack(kind, c);
    m->stack = size_max(stack, 1);
    m->stack_bytes = stack ? layout_bytes(mat->layout, mat->dtype, mat->out, mat->in) : 1;
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

static void add_rows(struct imatrix_collect *o, const struct mat *w, const float *x, size_t x_stride,
                     size_t rows)
{
    for (struct input_sums *m = o->matrix; m < o->matrix + o->n; m++) {
        const uintptr_t at = (uintptr_t)w->data - (uintptr_t)m->data; /* of others: large */
        const size_t index = at / m->stack_bytes;
        if (index >= m->stack)
            continue;
        m->rows[index] += rows;
        cpu_add_squares(m->sum + index * m->n, m->n, x, x_stride, rows);
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
    struct imatrix_entry *entry = calloc(o->n, sizeof *entry);
    int rc = entry ? 0 : err_no_memory(err, "%zu matrices", o->n);
    for (size_t i = 0; i < o->n && rc == 0; i++)
        rc = mean_of(&o->matrix[i], &entry[i], err);
    if (rc == 0)
        rc = imatrix_write(path, &o->model->file.model_id, tokens, entry, o->n, err);
    for (size_t i = 0; entry && i < o->n; i++)
        free((void *)(uintptr_t)entry[i].number);
    free(entry);
    return rc;
}
