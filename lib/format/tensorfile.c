/* What files of tensors share, whatever their container. */
#include "format/tensorfile.h"

#include <stdlib.h>
#include <string.h>

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

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct source_tensor *)a)->name, ((const struct source_tensor *)b)->name);
}

void tensor_file_sort(struct tensor_file *file)
{
    if (file->n_tensors)
        qsort(file->tensor, file->n_tensors, sizeof *file->tensor, by_name);
}

const struct source_tensor *tensor_file_find(const struct tensor_file *file, const char *name)
{
    const struct source_tensor key = {.name = name};
    return file->n_tensors ? bsearch(&key, file->tensor, file->n_tensors, sizeof key, by_name) : NULL;
}

void tensor_file_release(struct tensor_file *file)
{
    free(file->tensor);
    json_decref(file->names);
    file_unmap(&file->map);
    *file = (struct tensor_file){0};
}
