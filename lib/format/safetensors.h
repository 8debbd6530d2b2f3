/* One safetensors file: names, types and places of tensors, checked. Knows nothing of models. */
#ifndef BMC_SAFETENSORS_H
#define BMC_SAFETENSORS_H

#include "base/err.h"
#include "base/file.h"

enum st_type { ST_F32, ST_F16, ST_BF16, ST_OTHER };

enum { ST_MAX_DIMS = 8 };

struct st_tensor {
    const char *name;
    const char *type_name; /* as the file spells it */
    enum st_type type;
    size_t n_dims;
    size_t dim[ST_MAX_DIMS];
    const unsigned char *data; /* in the mapped file; no alignment promised */
    size_t bytes;
};

struct safetensors {
    struct file_map map;
    struct st_tensor *tensor; /* sorted by name */
    size_t n_tensors;
    void *names; /* owns the strings */
};

/* Checks `size` bytes of a file called `name`. Tensors point into `data`, which must stay. */
int safetensors_parse(struct safetensors *st, const void *data, size_t size, const char *name,
                      struct err *err) MUST_USE;
int safetensors_open(struct safetensors *st, const char *path, struct err *err) MUST_USE;
void safetensors_release(struct safetensors *st);

/* The tensor of that name, or NULL. */
const struct st_tensor *safetensors_find(const struct safetensors *st, const char *name);

#endif
