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

/* What was given is no source: says what it is, as far as its first bytes tell. */
static int refuse(const char *path, struct err *err)
{
    struct file_map map;
    if (sniff_hub_name(path, "folder", "give its folder", err) < 0)
        return -1;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc =
        sniff_refuse(map.data, map.size, KIND_OTHER, "a Hugging Face folder or a GGUF file", path, err);
    file_unmap(&map);
    return rc < 0 ? rc
                  : err_set(err,
                            "%s: is a file, a Hugging Face folder with config.json, or a GGUF file, is "
                            "expected",
                            path);
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
