/* PyTorch checkpoints: every element of every tensor is inside the file. */
#include <stdlib.h>

#include "format/tensorfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tensor_file file;
    struct err err;
    if (torchzip_parse(&file, data, size, "fuzz", &err) < 0)
        return 0;
    for (size_t i = 0; i < file.n_tensors; i++) {
        const struct source_tensor *t = &file.tensor[i];
        if (t->bytes && (t->data < data || t->bytes > size || t->data > data + size - t->bytes))
            abort();
        if (!tensor_file_find(&file, t->name))
            abort();
    }
    tensor_file_release(&file);
    return 0;
}
