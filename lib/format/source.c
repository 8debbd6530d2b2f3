/* The table of formats that weights come in, and the opening of what lies at a path. */
#include "format/source.h"

#include <string.h>

#include "base/file.h"
#include "format/ggufsource.h"
#include "format/hfdir.h"
#include "format/tokfile.h"

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
    "is of an old GGML format, from before GGUF, which is not read: take the model as GGUF or as a "   \
    "folder"

/* What files begin with that no other program here has a use for, and what a sentence calls them. The numbers of the old
 * formats were written as such, so that their letters are turned round. */
static const struct {
    const char *begin, *what;
} strange[] = {
    {"tjgg", GGML}, {"fmgg", GGML}, {"lmgg", GGML}, {"algg", GGML},
    {"ggjt", GGML}, {"ggmf", GGML}, {"ggml", GGML}, {"GGML", GGML},
};

/* NULL: it is not known. */
static const char *what_is(const struct file_map *map)
{
    if (map->size == 0)
        return "is empty";
    if (sniff(map->data, map->size) == KIND_SAFETENSORS)
        return "is a safetensors file: give its folder, with config.json";
    for (size_t i = 0; i < ARRAY_LEN(strange); i++)
        if (map->size >= strlen(strange[i].begin) &&
            memcmp(map->data, strange[i].begin, strlen(strange[i].begin)) == 0)
            return strange[i].what;
    return NULL;
}

/* What was given is no source: says what it is, as far as its first bytes tell. */
static int refuse(const char *path, struct err *err)
{
    struct file_map map;
    if (sniff_hub_name(path, "folder", "give its folder", err) < 0)
        return -1;
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc =
        sniff_refuse(map.data, map.size, KIND_OTHER, "a Hugging Face folder or a GGUF file", path, err);
    const char *what = what_is(&map);
    if (rc == 0)
        rc = what ? err_set(err, "%s: %s", path, what)
                  : err_set(err,
                            "%s: is neither a Hugging Face folder with config.json nor a GGUF file; "
                            "one of them is needed here",
                            path);
    file_unmap(&map);
    return rc;
}

/* There, and of none of the kinds that have a name. */
static bool is_other_file(const char *path)
{
    return file_exists(path) && path_sniff(path) == KIND_OTHER;
}

int weight_source_open(struct weight_source *source, const char *path, enum source_part part,
                       struct err *err)
{
    *source = (struct weight_source){0};
    if (strlen(path) >= sizeof source->path)
        return err_set(err, "folder name is longer than %zu bytes", sizeof source->path - 1);
    strcpy(source->path, path);
    source->format = format_of(path_sniff(path));
    if (!source->format && part == SOURCE_ITS_TOKENIZER && is_other_file(path))
        source->format = &tokenizer_file;
    if (!source->format)
        return refuse(path, err);
    if (source->format->open(source, part, err) == 0)
        return 0;
    weight_source_close(source);
    return -1;
}

void weight_source_close(struct weight_source *source)
{
    if (source->format)
        source->format->close(source);
    *source = (struct weight_source){0};
}
