/* The pickle in a PyTorch checkpoint: tensor names, and the storage range of each. Unpickling in
 * Python can execute arbitrary code; this parser supports only the opcodes and globals that
 * tensors need, calls nothing, and rejects everything else by name. */
#pragma once

#include "format/source.h"

/* Element type of a PyTorch storage. */
struct torch_type {
    const char *name;
    enum dtype type;
    size_t bytes; /* bytes per element */
};

/* A string in the pickle; not zero-terminated. */
struct pickle_text {
    const char *data;
    size_t len;
};

struct pickle_tensor {
    struct pickle_text storage; /* key of the storage that has its elements */
    const struct torch_type *type;
    size_t storage_elements;
    size_t first; /* offset of the first element in the storage, in elements */
    size_t n_dims;
    size_t dim[SOURCE_MAX_DIMS];
    size_t stride[SOURCE_MAX_DIMS]; /* bounds are checked: all elements lie inside the storage */
};

struct pickle_entry {
    struct pickle_text name;
    const struct pickle_tensor *tensor;
};

struct pickle {
    struct pickle_entry *entry;
    size_t n_entries;
    struct pickle_tensor *tensor; /* to which entry[].tensor points */
};

enum { PICKLE_MAX_BYTES = 16 << 20 };

/* Parses a pickle called `name`; strings point into `data`. After an error nothing needs
 * releasing. */
int pickle_parse(struct pickle *pickle, const void *data, size_t size, const char *name,
                 struct err *err) MUST_USE;
void pickle_release(struct pickle *pickle);
