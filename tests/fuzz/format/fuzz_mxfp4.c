/* MXFP4 weights of safetensors files: blocks and scales that are joined are inside the files, all of them.
 * The first byte of the input is the length of the first file in units of 8 bytes, 0: there is one file. */
#include <stdlib.h>
#include <string.h>

#include "format/hf/hfdir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const unsigned char *at;
    size_t size;
};

static bool inside(const struct input *input, size_t n, const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < n; i++)
        if (from >= input[i].at && bytes <= input[i].size &&
            from <= input[i].at + (input[i].size - bytes))
            return true;
    return false;
}

/* Reads a joined tensor, block by block. */
static void read_tensor(const struct source_tensor *tensor, const struct input *input, size_t n)
{
    const struct block_type *type = &block_types[DTYPE_MXFP4];
    size_t blocks = 1;
    for (size_t i = 0; i < tensor->n_dims; i++)
        blocks *= tensor->dim[i]; /* cannot overflow: the files have these elements */
    blocks /= type->elements;
    if (!inside(input, n, tensor->data, blocks * MXFP4_SPLIT_BYTES) ||
        !inside(input, n, tensor->scales, blocks) || tensor->dim[tensor->n_dims - 1] % type->elements)
        abort();
    for (size_t i = 0; i < blocks; i++) {
        unsigned char joined[64];
        float x[32];
        block_join_mxfp4(joined, tensor->data + i * MXFP4_SPLIT_BYTES, tensor->scales + i, 1);
        type->dequantize(x, joined, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tensor_file file[2] = {0};
    struct err err;
    if (!size)
        return 0;
    const size_t first = data[0] && data[0] * 8u < size - 1 ? data[0] * 8u : size - 1;
    const struct input input[] = {{data + 1, first}, {data + 1 + first, size - 1 - first}};
    const size_t n = input[1].size ? 2 : 1;
    bool parsed = true;
    for (size_t i = 0; i < n && parsed; i++)
        parsed = safetensors_parse(&file[i], input[i].at, input[i].size, "fuzz", &err) == 0;
    if (parsed && hf_mxfp4_join(file, n, "fuzz", &err) == 0)
        for (size_t i = 0; i < n; i++)
            for (size_t t = 0; t < file[i].n_tensors; t++)
                if (file[i].tensor[t].scales)
                    read_tensor(&file[i].tensor[t], input, n);
    for (size_t i = 0; i < n; i++)
        tensor_file_release(&file[i]);
    return 0;
}
