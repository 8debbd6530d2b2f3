/* The mean square of every input of every matrix. */
#include "model/observer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"
#include "format/importance.h"
#include "model/roles.h"

enum { PIECE = 256 }; /* inputs that a thread claims */

struct observed {
    char name[ROLE_NAME_SIZE];
    const void *data; /* of the matrix: products know it by that */
    size_t n;
    double *sum; /* [n], of squares */
    size_t rows;
};

struct observer {
    const struct model *model;
    struct observed *matrix;
    size_t n;
};

void observer_close(struct observer *o)
{
    if (!o)
        return;
    for (size_t i = 0; i < o->n; i++)
        free(o->matrix[i].sum);
    free(o->matrix);
    free(o);
}

/* An embedding that is the head is watched under its own name. */
static int add_role(struct observer *o, const struct role *role, size_t layer, struct err *err)
{
    const struct config *c = &o->model->config;
    const struct weights *w = &o->model->weights;
    const char *base = role_in_layer(role) ? (const char *)&w->layer[layer] : (const char *)w;
    const struct mat *mat = (const void *)(base + role->at);
    if (role->in == DIM_NONE || !role_wanted(role, c) || role_looked_up(role, c) ||
        (c->tied_head && role == role_find("head.weight")))
        return 0;
    struct observed *m = &o->matrix[o->n++];
    role_tensor_name(role, layer, m->name);
    m->data = mat->data;
    m->n = mat->in;
    m->sum = mem_zalloc(m->n, sizeof *m->sum);
    return m->sum ? 0 : err_set(err, "out of memory for sums of %zu inputs", m->n);
}

int observer_open(struct observer **out, const struct model *model, struct err *err)
{
    const size_t most = n_roles * (model->config.layers + 1);
    struct observer *o = *out = calloc(1, sizeof *o);
    int rc = 0;
    if (!o || !(o->matrix = calloc(most, sizeof *o->matrix))) {
        rc = err_set(err, "out of memory for sums of %zu matrices", most);
    } else {
        o->model = model;
        for (size_t i = 0; i < n_roles && rc == 0; i++)
            for (size_t layer = 0;
                 layer < (role_in_layer(&roles[i]) ? model->config.layers : 1) && rc == 0; layer++)
                rc = add_role(o, &roles[i], layer, err);
    }
    if (rc < 0) {
        observer_close(o);
        *out = NULL;
    }
    return rc;
}

/* ---- rows ---- */

struct adding {
    struct observed *matrix;
    const float *x;
    size_t x_stride, rows;
};

static void add_piece(void *arg, size_t piece)
{
    const struct adding *a = arg;
    const size_t from = piece * PIECE, end = size_min(from + PIECE, a->matrix->n);
    double *sum = a->matrix->sum;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = from; i < end; i++) {
            const double x = a->x[r * a->x_stride + i];
            sum[i] += x * x;
        }
}

static void add_rows(struct observer *o, const struct mat *w, const float *x, size_t x_stride,
                     size_t rows)
{
    for (size_t i = 0; i < o->n; i++)
        if (o->matrix[i].data == w->data) {
            struct adding adding = {&o->matrix[i], x, x_stride, rows};
            o->matrix[i].rows += rows;
            threads_each(div_up(w->in, PIECE), rows * w->in, add_piece, &adding);
        }
}

void observer_take(void *arg, const struct product *product, size_t n, const float *x, size_t x_stride,
                   size_t rows)
{
    for (size_t i = 0; i < n; i++) {
        add_rows(arg, product[i].w, x, x_stride, rows);
        if (product[i].gate)
            add_rows(arg, product[i].gate, x, x_stride, rows);
    }
}

/* ---- the file ---- */

static int mean_of(const struct observed *m, struct importance_entry *entry, struct err *err)
{
    float *number = mem_alloc(m->n, sizeof *number);
    *entry = (struct importance_entry){m->name, number, m->n};
    if (!number)
        return err_set(err, "out of memory for %zu inputs", m->n);
    if (!m->rows)
        return err_set(err, "\"%s\" has read nothing: the text is too short to tell what is important",
                       m->name);
    for (size_t i = 0; i < m->n; i++)
        number[i] = (float)(m->sum[i] / (double)m->rows);
    return dtype_finite(DTYPE_F32, number, m->n)
               ? 0
               : err_set(err, "\"%s\" has read what is not finite: the model may be damaged", m->name);
}

int observer_save(const struct observer *o, const char *path, size_t tokens, struct err *err)
{
    struct importance_entry *entry = calloc(o->n, sizeof *entry);
    int rc = entry ? 0 : err_set(err, "out of memory for %zu matrices", o->n);
    for (size_t i = 0; i < o->n && rc == 0; i++)
        rc = mean_of(&o->matrix[i], &entry[i], err);
    if (rc == 0)
        rc = importance_write(path, &o->model->file.model_id, tokens, entry, o->n, err);
    for (size_t i = 0; entry && i < o->n; i++)
        free((void *)(uintptr_t)entry[i].number);
    free(entry);
    return rc;
}
