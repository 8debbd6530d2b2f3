/* One safetensors file: names, types and places of tensors, checked. Knows nothing of models. */
#ifndef BMC_SAFETENSORS_H
#define BMC_SAFETENSORS_H

#include "base/file.h"
#include "format/source.h"

struct safetensors {
    struct file_map map;
    struct source_tensor *tensor; /* sorted by name */
    size_t n_tensors;
    void *names; /* owns the strings */
};

/* Checks `size` bytes of a file called `name`. Tensors point into `data`, which must stay. */
int safetensors_parse(struct safetensors *st, const void *data, size_t size, const char *name,
                      struct err *err) MUST_USE;
int safetensors_open(struct safetensors *st, const char *path, struct err *err) MUST_USE;
void safetensors_release(struct safetensors *st);

/* The tensor of that name, or NULL. */
const struct source_tensor *safetensors_find(const struct safetensors *st, const char *name);

#endif
