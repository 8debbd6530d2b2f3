/* Computes weights of quantisation errors from an importance matrix. */
#include "model/convert/imatrix_weights.h"

#include "base/mem.h"

/* Added to each weight, the mean being 1: inputs unused in the calibration text may matter
 * elsewhere. */
static const float weight_floor = 1e-3f;

static void weigh(const float *number, size_t n, float *weight)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += number[i];
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) /* a mean of about 1 keeps weighted errors in range */
        weight[i] = mean > 0 ? weight_floor + (float)(number[i] / mean) : 1;
}

int imatrix_weights_open(struct imatrix_weights *w, const char *path, struct err *err)
{
    *w = (struct imatrix_weights){.path = path};
    if (!path)
        return 0;
    if (imatrix_open(&w->file, path, err) < 0)
        return -1;
    const struct imatrix *file = &w->file;
    w->weight = mem_alloc(file->head->n_numbers, sizeof *w->weight);
    if (!w->weight) {
        imatrix_weights_close(w);
        return err_no_memory(err, "%s: its numbers", path);
    }
    for (size_t i = 0; i < file->head->n_matrices; i++)
        weigh(file->number + file->matrix[i].first, file->matrix[i].n,
              w->weight + file->matrix[i].first);
    return 0;
}

void imatrix_weights_close(struct imatrix_weights *w)
{
    imatrix_close(&w->file);
    free(w->weight);
    w->weight = NULL;
}

int imatrix_weights_find(const struct imatrix_weights *w, const char *name, size_t n,
                         const float **weight, struct err *err)
{
    size_t found = n;
    *weight = NULL;
    if (!w->path)
        return 0;
    const float *number = imatrix_find(&w->file, name, &found);
    if (!number)
        return err_set(
            err, "%s: has %zu inputs for \"%s\", but this model has %zu: it belongs to another model",
            w->path, found, name, n);
    *weight = w->weight + (number - w->file.number);
    return 0;
}
