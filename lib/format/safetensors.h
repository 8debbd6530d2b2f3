/* One safetensors file. */
#ifndef BMC_SAFETENSORS_H
#define BMC_SAFETENSORS_H

#include "format/tensorfile.h"

int safetensors_parse(struct tensor_file *file, const void *data, size_t size, const char *name,
                      struct err *err) MUST_USE;

#endif
