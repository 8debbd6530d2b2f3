/* safetensors files: every accepted tensor is inside the file. */
#include <stdlib.h>

#include "format/tensorfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tensor_file st;
    struct err err;
    if (safetensors_parse(&st, data, size, "fuzz", &err) < 0)
        return 0;
    for (size_t i = 0; i < st.n_tensors; i++) {
        const struct source_tensor *tensor = &st.tensor[i];
        if (tensor->data < data || tensor->bytes > size || tensor->data > data + size - tensor->bytes ||
            tensor_file_find(&st, tensor->name) == NULL)
            abort();
    }
    tensor_file_release(&st);
    return 0;
}
