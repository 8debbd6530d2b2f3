/* Opening a source of weights: the table of formats, and diagnosis of unsupported files. */
#include "format/source.h"

#include "base/file.h"

static const struct weight_format *const formats[] = {
    &hf_folder,
    &gguf_source,
};

static const struct weight_format *format_of(enum file_kind kind)
{
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (formats[i]->kind == kind)
            return formats[i];
    return NULL;
}

#define GGML                                                                                           \
    "is in a GGML format older than GGUF, which is not supported: use the model as GGUF or as a "      \
    "folder"

/* Magic numbers of GGML formats before GGUF, in both byte orders. */
static const struct {
    const char *begin, *description;
} old_formats[] = {
    {"tjgg", GGML}, {"fmgg", GGML}, {"lmgg", GGML}, {"algg", GGML},
    {"ggjt", GGML}, {"ggmf", GGML}, {"ggml", GGML}, {"GGML", GGML},
};

/* A message that says why the file is no source of weights; NULL: reason unknown. */
static const char *what_is(const struct file_map *map)
{
    if (map->size == 0)
        return "is empty";
    if (file_format(map->data, map->size) == KIND_SAFETENSORS)
        return "is a safetensors file: pass its folder, with config.json";
    for (size_t i = 0; i < ARRAY_LEN(old_formats); i++)
        if (map->size >= strlen(old_formats[i].begin) &&
            memcmp(map->data, old_formats[i].begin, strlen(old_formats[i].begin)) == 0)
            return old_formats[i].description;
    return NULL;
}

/* Fails with the reason why a path is not a usable source. */
static int refuse(const char *path, struct err *err)
{
    struct file_map map;
    if (detect_hub_name(path, "folder", "pass the folder", err) < 0)
        return -1;
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc = detect_refuse(map.data, map.size, KIND_OTHER, "a Hugging Face folder or a GGUF file", path,
                           err);
    const char *description = what_is(&map);
    if (rc == 0)
        rc = description
                 ? err_set(err, "%s: %s", path, description)
                 : err_set(err, "%s: expected a Hugging Face folder with config.json or a GGUF file",
                           path);
    file_unmap(&map);
    return rc;
}

static bool is_other_file(const char *path)
{
    return file_exists(path) && path_detect(path) == KIND_OTHER;
}

int weight_source_open(struct weight_source *source, const char *path, enum source_scope scope,
                       struct err *err)
{
    *source = (struct weight_source){0};
    if (strlen(path) >= sizeof source->path)
        return err_set(err, "folder name is longer than %zu bytes", sizeof source->path - 1);
    strcpy(source->path, path);
    source->format = format_of(path_detect(path));
    if (!source->format && scope == SOURCE_TOKENIZER_ONLY && is_other_file(path))
        source->format = &tokenizer_file;
    if (!source->format)
        return refuse(path, err);
    if (source->format->open(source, scope, err) == 0)
        return 0;
    weight_source_close(source);
    return -1;
}

int source_identify(const char *path, struct hash *id, struct err *err)
{
    const struct weight_format *format = format_of(path_detect(path));
    struct hasher hasher;
    if (!format)
        return refuse(path, err);
    hasher_init(&hasher);
    if (format->identify(path, &hasher, err) < 0)
        return -1;
    *id = hasher_result(&hasher);
    return 0;
}

void weight_source_close(struct weight_source *source)
{
    if (source->format)
        source->format->close(source);
    for (size_t i = 0; i < SOURCE_JSONS; i++)
        json_decref(source->json[i]);
    free(source->list);
    *source = (struct weight_source){0};
}
