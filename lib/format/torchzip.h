/* One PyTorch checkpoint (pytorch_model.bin): a zip archive of a pickle and storages. */
#ifndef BMC_TORCHZIP_H
#define BMC_TORCHZIP_H

#include "format/tensorfile.h"

int torchzip_parse(struct tensor_file *file, const void *data, size_t size, const char *name,
                   struct err *err) MUST_USE;

#endif
