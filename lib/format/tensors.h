/* Validating and searching a list of tensors. */
#ifndef BMC_TENSORS_H
#define BMC_TENSORS_H

#include "format/source.h"

/* Sorts tensors by name, as the functions below require. */
void tensors_sort(struct source_tensor *tensor, size_t n);

/* Fails if the data of two tensors overlap; `file` is the file name for errors. Accepts tensors in
 * any order and leaves them sorted by name. */
int tensors_check_overlaps(struct source_tensor *tensor, size_t n, const char *file,
                           struct err *err) MUST_USE;

/* Fails if two tensors have the same name. */
int tensors_check_names(const struct source_tensor *tensor, size_t n, const char *file,
                        struct err *err) MUST_USE;

/* Finds a tensor by name with binary search; NULL if there is none. */
const struct source_tensor *tensors_find(const struct source_tensor *tensor, size_t n,
                                         const char *name);

#endif
