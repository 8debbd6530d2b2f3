/* MXFP4 weights of safetensors files: a tensor of blocks and one of scales become one of elements. */
#include "format/hf/hf_mxfp4.h"

#include <stdio.h>
#include <string.h>

#include "base/text_util.h"

/* The tensor of scales that belongs to NAME_blocks; NULL: none. */
static struct source_tensor *find_scales(struct tensor_file *file, size_t n_files, const char *blocks)
{
    enum { NAME_SIZE = 512 };
    static const char ending[] = "_scales";
    char name[NAME_SIZE];
    const size_t len = strlen(blocks) - strlen("_blocks");
    if (len + sizeof ending > sizeof name)
        return NULL;
    memcpy(name, blocks, len);
    memcpy(name + len, ending, sizeof ending);
    for (size_t i = 0; i < n_files; i++) {
        const struct source_tensor *found = tensor_file_find(&file[i], name);
        if (found)
            return &file[i].tensor[found - file[i].tensor];
    }
    return NULL;
}

static bool of_bytes(const struct source_tensor *tensor)
{
    return tensor->type_name && strcmp(tensor->type_name, "U8") == 0 && !tensor->strided;
}

static int join(struct source_tensor *blocks, struct source_tensor *scales, const char *folder,
                struct err *err)
{
    const size_t n = scales->n_dims;
    bool fits =
        of_bytes(scales) && n > 0 && blocks->n_dims == n + 1 && blocks->dim[n] == MXFP4_SPLIT_BYTES;
    for (size_t i = 0; fits && i < n; i++)
        fits = blocks->dim[i] == scales->dim[i];
    /* its bytes are in the file, so the number of elements, twice as many, cannot overflow */
    if (!fits)
        return err_set(err, "%s: tensors \"%s\" and \"%s\" are not blocks of MXFP4 and their scales",
                       folder, blocks->name, scales->name);
    blocks->type = SOURCE_MXFP4;
    blocks->type_name = "MXFP4";
    blocks->n_dims = n;
    blocks->dim[n - 1] *= block_types[SOURCE_MXFP4].elements;
    blocks->scales = scales->data;
    scales->is_scales = true;
    return 0;
}

int hf_mxfp4_join(struct tensor_file *file, size_t n_files, const char *folder, struct err *err)
{
    for (size_t f = 0; f < n_files; f++)
        for (size_t i = 0; i < file[f].n_tensors; i++) {
            struct source_tensor *blocks = &file[f].tensor[i];
            if (!of_bytes(blocks) || !text_ends(blocks->name, "_blocks"))
                continue;
            struct source_tensor *scales = find_scales(file, n_files, blocks->name);
            if (scales && join(blocks, scales, folder, err) < 0)
                return -1;
        }
    return 0;
}
