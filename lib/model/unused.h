/* Tensors of a source that its model is not made from: a model that is not quite what its configuration says. */
#ifndef BMC_UNUSED_H
#define BMC_UNUSED_H

#include "model/family.h"

/* Refuses a source that has tensors beside the `used` ones and those that are known to be no weights. `used` may hold NULL;
 * its order changes. */
int unused_refuse(const struct weight_source *source, const struct family *family,
                  const struct config *config, const struct source_tensor **used, size_t n,
                  struct err *err) MUST_USE;

#endif
