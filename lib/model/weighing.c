/* How much errors of inputs count. */
#include "model/weighing.h"

#include <stdlib.h>

#include "base/mem.h"

/* What a text did not use another may: nothing counts less than this part of the mean. */
static const float least_part = 1e-3f;

static void weigh(const float *number, size_t n, float *weight)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += number[i];
    const double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) /* 1 on average, so that squares of errors stay in range */
        weight[i] = mean > 0 ? least_part + (float)(number[i] / mean) : 1;
}

int weighing_open(struct weighing *w, const char *path, struct err *err)
{
    *w = (struct weighing){.path = path};
    if (!path)
        return 0;
    if (importance_open(&w->file, path, err) < 0)
        return -1;
    const struct importance *file = &w->file;
    w->weight = mem_alloc(file->head->n_numbers, sizeof *w->weight);
    if (!w->weight) {
        weighing_close(w);
        return err_set(err, "%s: out of memory for its numbers", path);
    }
    for (size_t i = 0; i < file->head->n_matrices; i++)
        weigh(file->number + file->matrix[i].first, file->matrix[i].n,
              w->weight + file->matrix[i].first);
    return 0;
}

void weighing_close(struct weighing *w)
{
    importance_close(&w->file);
    free(w->weight);
    w->weight = NULL;
}

int weighing_find(const struct weighing *w, const char *name, size_t n, const float **weight,
                  struct err *err)
{
    size_t found = n;
    *weight = NULL;
    if (!w->path)
        return 0;
    const float *number = importance_find(&w->file, name, &found);
    if (!number)
        return err_set(
            err, "%s: has %zu inputs for \"%s\", this model has %zu: it was made with another model",
            w->path, found, name, n);
    *weight = w->weight + (number - w->file.number);
    return 0;
}
