/* Collects an importance matrix (imatrix): the mean square of every input column of every matrix
 * over all tokens of a calibration text. */
#pragma once

#include "model/model.h"

struct imatrix_collect;

int imatrix_collect_open(struct imatrix_collect **collect, const struct model *model,
                         struct err *err) MUST_USE;
void imatrix_collect_close(struct imatrix_collect *collect); /* NULL is accepted */

/* For forward_observe(): adds the squares of a product's inputs. Sums do not depend on the number of threads or on the
 * batch size: each column is added in order of rows by one thread. */
void imatrix_collect_add(void *collect, const void *weight, size_t expert, const float *x,
                         size_t x_stride, size_t rows);

/* Writes the importance matrix to a file (format/imatrix.h). */
int imatrix_collect_save(const struct imatrix_collect *collect, const char *path, size_t tokens,
                         struct err *err) MUST_USE;
