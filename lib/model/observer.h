/* Watches what products read: the mean square of every input of every matrix, over all rows of a run. */
#ifndef BMC_OBSERVER_H
#define BMC_OBSERVER_H

#include "kernel/gemm.h"
#include "model/model.h"

struct observer;

int observer_open(struct observer **observer, const struct model *model, struct err *err) MUST_USE;
void observer_close(struct observer *observer); /* NULL is accepted */

/* A gemm_watcher. Rows are added in their order, each input by one thread: sums are the same whatever the number of
 * threads and of rows at a time. */
void observer_take(void *observer, const struct product *product, size_t n, const float *x,
                   size_t x_stride, size_t rows);

/* Writes them as format/importance.h says. */
int observer_save(const struct observer *observer, const char *path, size_t tokens,
                  struct err *err) MUST_USE;

#endif
