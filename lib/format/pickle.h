/* The pickle in a PyTorch checkpoint: which tensors it names, and what of which storage each one is. Python would run such a
 * file as a program that may call anything. Here the few instructions and names that tensors need are understood, nothing
 * is called, and everything else is refused with its name. Knows nothing of the archive that it comes from. */
#ifndef BMC_PICKLE_H
#define BMC_PICKLE_H

#include "format/source.h"

/* What PyTorch calls the elements of a storage. */
struct torch_type {
    const char *name;
    enum source_type type;
    size_t bytes; /* of an element */
};

/* Text in the pickle: any bytes, and no 0 behind them. */
struct pickle_text {
    const char *data;
    size_t len;
};

struct pickle_tensor {
    struct pickle_text storage; /* its key */
    const struct torch_type *type;
    size_t storage_elements;
    size_t first; /* element of the storage */
    size_t n_dims;
    size_t dim[SOURCE_MAX_DIMS];
    size_t stride[SOURCE_MAX_DIMS]; /* all elements lie inside the storage */
};

struct pickle_entry {
    struct pickle_text name;
    const struct pickle_tensor *tensor;
};

struct pickle {
    struct pickle_entry *entry;
    size_t n_entries;
    struct pickle_tensor *tensor; /* what entries point to */
};

enum { PICKLE_MAX_BYTES = 16 << 20 };

/* Reads a pickle called `name`. Texts point into `data`. After an error nothing is to be released. */
int pickle_parse(struct pickle *pickle, const void *data, size_t size, const char *name,
                 struct err *err) MUST_USE;
void pickle_release(struct pickle *pickle);

#endif
