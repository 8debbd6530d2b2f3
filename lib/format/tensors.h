/* Validating and searching a list of tensors. */
#ifndef BMC_TENSORS_H
#define BMC_TENSORS_H

#include "format/source.h"

/* Sorts by name, as the functions below require. */
void tensors_sort(struct source_tensor *tensor, size_t n);

/* Fails if two tensors overlap in the file called `file`. Takes any order, leaves them sorted by
 * name. */
int tensors_check_overlaps(struct source_tensor *tensor, size_t n, const char *file,
                           struct err *err) MUST_USE;

/* Fails if two tensors have the same name. */
int tensors_check_names(const struct source_tensor *tensor, size_t n, const char *file,
                        struct err *err) MUST_USE;

/* Binary search by name; NULL if not found. */
const struct source_tensor *tensors_find(const struct source_tensor *tensor, size_t n,
                                         const char *name);

#endif
