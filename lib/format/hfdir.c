/* A Hugging Face model folder as a source of weights. To add a container of tensors is a row of `containers`. */
#include "format/hfdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/folder.h"
#include "format/hfindex.h"
#include "format/safetensors.h"
#include "format/spmodel.h"
#include "format/torchzip.h"

/* The small files, mapped; one that does not exist is empty. The texts of a tokenizer come first, then the JSON values. */
enum { FILES = SOURCE_TEXTS + SOURCE_JSONS };

struct hf_dir {
    const char *path;
    struct file_map file[FILES];
    struct buf made;            /* the text of a tokenizer.json where there is only a tokenizer.model */
    json_t *json[SOURCE_JSONS]; /* config.json; generation_config.json, or NULL */
    struct tensor_file *shard;
    size_t n_shards;
};

static const char *const file_names[FILES] = {
    [SOURCE_TOKENIZER] = "tokenizer.json",
    [SOURCE_VOCAB] = "vocab.json",
    [SOURCE_MERGES] = "merges.txt",
    [SOURCE_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [SOURCE_SPECIAL_TOKENS] = "special_tokens_map.json",
    [SOURCE_CHAT_TEMPLATE] = "chat_template.jinja",
    [SOURCE_TEXTS + SOURCE_CONFIG] = "config.json",
    [SOURCE_TEXTS + SOURCE_GENERATION] = "generation_config.json",
};

enum { PATH_SIZE = 4096 + 512 };

static void join(char *path, const struct hf_dir *dir, const char *name)
{
    snprintf(path, PATH_SIZE, "%s/%s", dir->path, name);
}

static bool has(const struct hf_dir *dir, const char *name)
{
    char path[PATH_SIZE];
    join(path, dir, name);
    return file_exists(path);
}

/* Weights that were made smaller by another program have types that only it knows. */
static int refuse_quantized(const struct hf_dir *dir, const char *how, const char *where,
                            struct err *err)
{
    return err_set(
        err,
        "%s: its weights are quantized (%s, %s), which cannot be read yet; convert the model "
        "that it was made from, in F32, F16 or BF16",
        dir->path, how, where);
}

static int check_quantized(const struct hf_dir *dir, struct err *err)
{
    const json_t *how = json_at(dir->json[SOURCE_CONFIG], "quantization_config");
    const char *method = json_string_value(json_object_get(how, "quant_method"));
    if (!how || json_is_null(how))
        return 0;
    return refuse_quantized(dir, method ? method : "of an unnamed kind",
                            "quantization_config in config.json", err);
}

static int open_json(struct hf_dir *dir, enum source_json which, struct err *err)
{
    const struct file_map *file = &dir->file[SOURCE_TEXTS + which];
    json_t **root = &dir->json[which];
    char path[PATH_SIZE];
    join(path, dir, file_names[SOURCE_TEXTS + which]);
    if (json_parse((const char *)file->data, file->size, path, root, err) < 0)
        return -1;
    if (!json_is_object(*root))
        return err_set(err, "%s: is %s, an object is expected", path, json_type_name(*root));
    return 0;
}

/* What tensors may lie in. The first one that is there is read. */
static const struct container {
    const char *file, *index; /* of weights in one piece, and of those in many */
    tensor_parse *parse;
} containers[] = {
    {"model.safetensors", "model.safetensors.index.json", safetensors_parse},
    {"pytorch_model.bin", "pytorch_model.bin.index.json", torchzip_parse},
};

static int add_shard(struct hf_dir *dir, const struct container *container, const char *name,
                     struct err *err)
{
    char path[PATH_SIZE];
    join(path, dir, name);
    if (tensor_file_open(&dir->shard[dir->n_shards], path, container->parse, err) < 0)
        return -1;
    dir->n_shards++;
    return 0;
}

static int alloc_shards(struct hf_dir *dir, size_t n, struct err *err)
{
    dir->shard = calloc(n, sizeof *dir->shard);
    return dir->shard ? 0 : err_set(err, "%s: out of memory for %zu weight files", dir->path, n);
}

/* A name that two files have could mean either tensor. */
static int check_names(const struct hf_dir *dir, struct err *err)
{
    for (size_t s = 1; s < dir->n_shards; s++)
        for (size_t i = 0; i < dir->shard[s].n_tensors; i++)
            for (size_t before = 0; before < s; before++)
                if (tensor_file_find(&dir->shard[before], dir->shard[s].tensor[i].name))
                    return err_set(
                        err, "%s: tensor \"%s\" is in two of its weight files; one of them must go",
                        dir->path, dir->shard[s].tensor[i].name);
    return 0;
}

/* Every file that the weight_map of an index names, once. */
static int open_shards(struct hf_dir *dir, const struct container *container, struct err *err)
{
    char path[PATH_SIZE];
    struct file_map map;
    json_t *files = NULL, *unused;
    const char *name;
    join(path, dir, container->index);
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc = sniff_refuse(map.data, map.size, KIND_OTHER, "JSON text", path, err);
    if (rc == 0)
        rc = hf_index_parse(&files, (const char *)map.data, map.size, path, err);
    if (rc == 0)
        rc = alloc_shards(dir, json_object_size(files) + 1, err);
    json_object_foreach(files, name, unused)
    {
        if (rc == 0)
            rc = add_shard(dir, container, name, err);
    }
    json_decref(files);
    file_unmap(&map);
    return rc < 0 ? -1 : check_names(dir, err);
}

/* What programs that make weights smaller call theirs, where config.json does not say that they did. */
static int check_tensors(const struct hf_dir *dir, struct err *err)
{
    static const char ending[] = ".qweight";
    for (size_t s = 0; s < dir->n_shards; s++)
        for (size_t i = 0; i < dir->shard[s].n_tensors; i++) {
            const char *name = dir->shard[s].tensor[i].name;
            const size_t len = strlen(name);
            if (len >= sizeof ending && strcmp(name + len + 1 - sizeof ending, ending) == 0)
                return refuse_quantized(dir, "GPTQ or AWQ", name, err);
        }
    return 0;
}

/* A folder that changes a model, and holds none. */
static int check_adapter(const struct hf_dir *dir, struct err *err)
{
    static const char *const files[] = {"adapter_model.safetensors", "adapter_model.bin",
                                        "adapter_config.json"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (has(dir, files[i]))
            return err_set(
                err,
                "%s: holds only an adapter (LoRA, %s), which changes another model; merge it "
                "into that one (merge_and_unload, save_pretrained) and convert the result",
                dir->path, files[i]);
    return 0;
}

static const struct container *find_container(const struct hf_dir *dir)
{
    for (size_t i = 0; i < ARRAY_LEN(containers); i++)
        if (has(dir, containers[i].index) || has(dir, containers[i].file))
            return &containers[i];
    return NULL;
}

/* An error for a folder of something else, as far as that is known. */
static int refuse_known(const struct hf_dir *dir, struct err *err)
{
    if (check_adapter(dir, err) < 0)
        return -1;
    return find_container(dir) ? 0 : folder_refuse(dir->path, err);
}

static int open_weights(struct hf_dir *dir, struct err *err)
{
    const struct container *container = find_container(dir);
    if (!container)
        return refuse_known(dir, err) < 0
                   ? -1
                   : err_set(err,
                             "%s: no model.safetensors, no pytorch_model.bin and no index of one in it",
                             dir->path);
    if (has(dir, container->index))
        return open_shards(dir, container, err);
    return alloc_shards(dir, 1, err) < 0 ? -1 : add_shard(dir, container, container->file, err);
}

/* config.json, which a tokenizer can do without, and the other small files. */
static int open_small(struct hf_dir *dir, enum source_part part, struct err *err)
{
    if (part == SOURCE_ALL && !has(dir, "config.json"))
        return refuse_known(dir, err) < 0
                   ? -1
                   : err_set(err, "%s: no config.json in it, a Hugging Face model folder is expected",
                             dir->path);
    for (int i = 0; i < FILES; i++) {
        struct file_map *file = &dir->file[i];
        char name[PATH_SIZE];
        join(name, dir, file_names[i]);
        if (has(dir, file_names[i]) &&
            (file_map(file, name, err) < 0 ||
             sniff_refuse(file->data, file->size, KIND_OTHER, "a text file", name, err) < 0))
            return -1;
    }
    for (int i = 0; i < SOURCE_JSONS; i++)
        if (dir->file[SOURCE_TEXTS + i].data && open_json(dir, (enum source_json)i, err) < 0)
            return -1;
    return 0;
}

/* tokenizer.model, where nothing else says how text becomes tokens. `path` becomes that of what says it. */
static int open_tokenizer(struct hf_dir *dir, char *path, struct err *err)
{
    struct file_map map;
    join(path, dir, file_names[dir->file[SOURCE_TOKENIZER].data ? SOURCE_TOKENIZER : SOURCE_VOCAB]);
    if (dir->file[SOURCE_TOKENIZER].data || dir->file[SOURCE_VOCAB].data)
        return 0;
    if (!has(dir, "tokenizer.model"))
        return err_set(
            err, "%s: no tokenizer.json, no tokenizer.model and no vocab.json with merges.txt in it",
            dir->path);
    join(path, dir, "tokenizer.model");
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = spmodel_json(&dir->made, map.data, map.size, path, err);
    file_unmap(&map);
    return rc;
}

static int open_folder(struct weight_source *source, enum source_part part, struct err *err)
{
    struct hf_dir *dir = source->state = calloc(1, sizeof *dir);
    char path[PATH_SIZE];
    if (!dir)
        return err_set(err, "%s: out of memory", source->path);
    dir->path = source->path;
    snprintf(source->config_name, sizeof source->config_name, "%s/config.json", source->path);
    if (open_small(dir, part, err) < 0)
        return -1;
    /* Weights that cannot be read are the first thing to tell. */
    if (part == SOURCE_ALL &&
        (check_quantized(dir, err) < 0 || open_weights(dir, err) < 0 || check_tensors(dir, err) < 0))
        return -1;
    if (open_tokenizer(dir, path, err) < 0)
        return -1;
    snprintf(source->tokenizer_name, sizeof source->tokenizer_name, "%s", path);
    return 0;
}

static const json_t *config(const struct weight_source *source, enum source_json which)
{
    const struct hf_dir *dir = source->state;
    return dir->json[which];
}

static const struct source_tensor *find(const struct weight_source *source, const char *name)
{
    const struct hf_dir *dir = source->state;
    const struct source_tensor *tensor = NULL;
    for (size_t i = 0; i < dir->n_shards && !tensor; i++)
        tensor = tensor_file_find(&dir->shard[i], name);
    return tensor;
}

static const struct source_tensor *tensor(const struct weight_source *source, size_t nth)
{
    const struct hf_dir *dir = source->state;
    for (size_t i = 0; i < dir->n_shards; nth -= dir->shard[i++].n_tensors)
        if (nth < dir->shard[i].n_tensors)
            return &dir->shard[i].tensor[nth];
    return NULL;
}

static struct source_bytes tokenizer(const struct weight_source *source, enum source_text which)
{
    const struct hf_dir *dir = source->state;
    if (which == SOURCE_TOKENIZER && dir->made.len)
        return (struct source_bytes){dir->made.data, dir->made.len};
    return (struct source_bytes){(const char *)dir->file[which].data, dir->file[which].size};
}

static void forget(const struct weight_source *source)
{
    const struct hf_dir *dir = source->state;
    for (size_t i = 0; i < dir->n_shards; i++)
        file_map_forget(&dir->shard[i].map);
}

static void close_folder(struct weight_source *source)
{
    struct hf_dir *dir = source->state;
    if (!dir)
        return;
    for (size_t i = 0; i < dir->n_shards; i++)
        tensor_file_release(&dir->shard[i]);
    free(dir->shard);
    buf_release(&dir->made);
    for (int i = 0; i < FILES; i++)
        file_unmap(&dir->file[i]);
    for (int i = 0; i < SOURCE_JSONS; i++)
        json_decref(dir->json[i]);
    free(dir);
}

const struct weight_format hf_folder = {
    .kind = KIND_FOLDER,
    .open = open_folder,
    .config = config,
    .find = find,
    .tensor = tensor,
    .tokenizer = tokenizer,
    .forget = forget,
    .close = close_folder,
};
