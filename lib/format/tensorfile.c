/* Opening, searching and releasing files of tensors, whatever their container format. */
#include "format/tensorfile.h"

#include <stdlib.h>

#include "format/tensors.h"

int tensor_file_open(struct tensor_file *file, const char *path, tensor_parse *parse, struct err *err)
{
    struct file_map map;
    *file = (struct tensor_file){0};
    if (file_map(&map, path, err) < 0)
        return -1;
    if (parse(file, map.data, map.size, path, err) < 0) {
        file_unmap(&map);
        return -1;
    }
    file->map = map;
    return 0;
}

const struct source_tensor *tensor_file_find(const struct tensor_file *file, const char *name)
{
    return tensors_find(file->tensor, file->n_tensors, name);
}

void tensor_file_release(struct tensor_file *file)
{
    free(file->tensor);
    json_decref(file->names);
    file_unmap(&file->map);
    *file = (struct tensor_file){0};
}
