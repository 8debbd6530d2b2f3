/* A mapped file of tensors, whatever container they lie in (safetensors.c, torchzip.c): names, types and places, checked.
 * Knows nothing of models. */
#ifndef BMC_TENSORFILE_H
#define BMC_TENSORFILE_H

#include "base/file.h"
#include "format/source.h"

struct tensor_file {
    struct file_map map;
    struct source_tensor *tensor; /* sorted by name */
    size_t n_tensors;
    json_t *names; /* owns the strings */
};

/* Checks `size` bytes of a file called `name`. Tensors point into `data`, which must stay. After an error nothing is to be
 * released. */
typedef int tensor_parse(struct tensor_file *file, const void *data, size_t size, const char *name,
                         struct err *err);

/* Maps the file and parses it. */
int tensor_file_open(struct tensor_file *file, const char *path, tensor_parse *parse,
                     struct err *err) MUST_USE;

/* The tensor of that name, or NULL. */
const struct source_tensor *tensor_file_find(const struct tensor_file *file, const char *name);

/* One that is all zero was never opened. */
void tensor_file_release(struct tensor_file *file);

#endif
