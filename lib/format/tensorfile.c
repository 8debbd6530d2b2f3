/* Opening, searching and releasing files of tensors, whatever their container format. */
#include "format/tensorfile.h"

/* ---- validating and searching lists of tensors ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct source_tensor *)a)->name, ((const struct source_tensor *)b)->name);
}

static int by_address(const void *a, const void *b)
{
    const struct source_tensor *x = a, *y = b;
    if (x->data != y->data)
        return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

void tensors_sort(struct source_tensor *tensor, size_t n)
{
    if (n)
        qsort(tensor, n, sizeof *tensor, by_name);
}

int tensors_check_overlaps(struct source_tensor *tensor, size_t n, const char *file, struct err *err)
{
    if (n)
        qsort(tensor, n, sizeof *tensor, by_address);
    for (size_t i = 1; i < n; i++)
        if (tensor[i - 1].data + tensor[i - 1].bytes > tensor[i].data)
            return err_set(err, "%s: tensors \"%s\" and \"%s\" overlap", file, tensor[i - 1].name,
                           tensor[i].name);
    tensors_sort(tensor, n);
    return 0;
}

int tensors_check_names(const struct source_tensor *tensor, size_t n, const char *file, struct err *err)
{
    for (size_t i = 1; i < n; i++)
        if (by_name(&tensor[i - 1], &tensor[i]) == 0)
            return err_set(err, "%s: duplicate tensor name \"%s\"", file, tensor[i].name);
    return 0;
}

const struct source_tensor *tensors_find(const struct source_tensor *tensor, size_t n, const char *name)
{
    const struct source_tensor key = {.name = name};
    return n ? bsearch(&key, tensor, n, sizeof key, by_name) : NULL;
}

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

/* ---- the files of a source ---- */

int source_alloc_lists(struct weight_source *source, size_t n, struct err *err)
{
    source->list = calloc(n + 1, sizeof *source->list);
    source->n_lists = source->n_searched = source->list ? n : 0;
    return source->list ? 0 : err_no_memory(err, "%s: %zu files", source->path, n);
}

const struct source_tensor *source_find(const struct weight_source *source, const char *name)
{
    const struct source_tensor *tensor = NULL;
    for (size_t i = 0; i < source->n_searched && !tensor; i++)
        tensor = tensors_find(source->list[i].tensor, source->list[i].n, name);
    return tensor;
}

const struct source_tensor *source_nth(const struct weight_source *source, size_t nth)
{
    for (size_t i = 0; i < source->n_lists; nth -= source->list[i++].n)
        if (nth < source->list[i].n)
            return &source->list[i].tensor[nth];
    return NULL;
}

void source_release_pages(const struct weight_source *source)
{
    for (size_t i = 0; i < source->n_searched; i++)
        file_map_release_pages(source->list[i].map);
}
