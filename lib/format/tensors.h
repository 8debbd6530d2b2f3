/* A list of tensors that a file has, as readers check and search it. */
#ifndef BMC_TENSORS_H
#define BMC_TENSORS_H

#include "format/source.h"

/* The order that all but tensors_check_overlaps() need. */
void tensors_sort(struct source_tensor *tensor, size_t n);

/* Two of them overlapping in the file called `file` is an error. Leaves them sorted by name. */
int tensors_check_overlaps(struct source_tensor *tensor, size_t n, const char *file,
                           struct err *err) MUST_USE;

/* Two of the same name are an error, in a list sorted by name. */
int tensors_check_names(const struct source_tensor *tensor, size_t n, const char *file,
                        struct err *err) MUST_USE;

/* The tensor of that name in a list sorted by name, or NULL. */
const struct source_tensor *tensors_find(const struct source_tensor *tensor, size_t n,
                                         const char *name);

#endif
