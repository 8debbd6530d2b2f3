/* A Hugging Face model folder. */
#include "format/hfdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/hfindex.h"
#include "format/sniff.h"

static const char *const file_names[HF_FILE_COUNT] = {
    [HF_CONFIG] = "config.json",
    [HF_GENERATION_CONFIG] = "generation_config.json",
    [HF_TOKENIZER] = "tokenizer.json",
    [HF_VOCAB] = "vocab.json",
    [HF_MERGES] = "merges.txt",
    [HF_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [HF_SPECIAL_TOKENS] = "special_tokens_map.json",
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

/* What was given is no folder: says what it is, as far as its first bytes tell. */
static int refuse_file(const char *path, struct err *err)
{
    struct file_map map;
    if (sniff_hub_name(path, "folder", "give its folder", err) < 0)
        return -1;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = sniff_refuse(map.data, map.size, KIND_OTHER, "a Hugging Face folder", path, err);
    file_unmap(&map);
    return rc < 0 ? rc
                  : err_set(err, "%s: is a file, a Hugging Face folder with config.json is expected",
                            path);
}

/* Weights that were made smaller by another program have types that only it knows. */
static int check_quantized(const struct hf_dir *dir, struct err *err)
{
    const json_t *how = json_at(dir->config, "quantization_config");
    const char *method = json_string_value(json_object_get(how, "quant_method"));
    if (!how || json_is_null(how))
        return 0;
    return err_set(
        err,
        "%s: its weights are quantized (%s, quantization_config in config.json), which cannot "
        "be read yet; convert the model that it was made from, in F32, F16 or BF16",
        dir->path, method ? method : "of an unnamed kind");
}

static int open_json(const struct hf_dir *dir, enum hf_file which, json_t **root, struct err *err)
{
    char path[PATH_SIZE];
    join(path, dir, file_names[which]);
    if (json_parse((const char *)dir->file[which].data, dir->file[which].size, path, root, err) < 0)
        return -1;
    if (!json_is_object(*root))
        return err_set(err, "%s: is %s, an object is expected", path, json_type_name(*root));
    return 0;
}

static int add_shard(struct hf_dir *dir, const char *name, struct err *err)
{
    char path[PATH_SIZE];
    join(path, dir, name);
    if (safetensors_open(&dir->shard[dir->n_shards], path, err) < 0)
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
                if (safetensors_find(&dir->shard[before], dir->shard[s].tensor[i].name))
                    return err_set(
                        err, "%s: tensor \"%s\" is in two of its weight files; one of them must go",
                        dir->path, dir->shard[s].tensor[i].name);
    return 0;
}

/* model.safetensors.index.json: every file that its weight_map names, once. */
static int open_shards(struct hf_dir *dir, const char *index_name, struct err *err)
{
    char path[PATH_SIZE];
    struct file_map map;
    json_t *files = NULL, *unused;
    const char *name;
    join(path, dir, index_name);
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
            rc = add_shard(dir, name, err);
    }
    json_decref(files);
    file_unmap(&map);
    return rc < 0 ? -1 : check_names(dir, err);
}

static int open_weights(struct hf_dir *dir, struct err *err)
{
    if (has(dir, "model.safetensors.index.json"))
        return open_shards(dir, "model.safetensors.index.json", err);
    if (has(dir, "model.safetensors")) {
        if (alloc_shards(dir, 1, err) < 0)
            return -1;
        return add_shard(dir, "model.safetensors", err);
    }
    if (has(dir, "pytorch_model.bin") || has(dir, "pytorch_model.bin.index.json"))
        return err_set(
            err,
            "%s: has PyTorch weights only, which cannot be read yet; save the model as safetensors "
            "(save_pretrained)",
            dir->path);
    return err_set(err, "%s: no model.safetensors and no model.safetensors.index.json in it",
                   dir->path);
}

/* config.json and the other small files. */
static int open_small(struct hf_dir *dir, const char *path, struct err *err)
{
    *dir = (struct hf_dir){0};
    if (strlen(path) >= sizeof dir->path)
        return err_set(err, "folder name is longer than %zu bytes", sizeof dir->path - 1);
    strcpy(dir->path, path);
    if (!file_is_folder(path))
        return refuse_file(path, err);
    if (!has(dir, "config.json"))
        return err_set(err, "%s: no config.json in it, a Hugging Face model folder is expected", path);
    for (int i = 0; i < HF_FILE_COUNT; i++) {
        struct file_map *file = &dir->file[i];
        char name[PATH_SIZE];
        join(name, dir, file_names[i]);
        if (has(dir, file_names[i]) &&
            (file_map(file, name, err) < 0 ||
             sniff_refuse(file->data, file->size, KIND_OTHER, "a text file", name, err) < 0))
            return -1;
    }
    if (open_json(dir, HF_CONFIG, &dir->config, err) < 0)
        return -1;
    return dir->file[HF_GENERATION_CONFIG].data
               ? open_json(dir, HF_GENERATION_CONFIG, &dir->generation_config, err)
               : 0;
}

static int check_tokenizer(const struct hf_dir *dir, struct err *err)
{
    if (dir->file[HF_TOKENIZER].data || dir->file[HF_VOCAB].data)
        return 0;
    if (has(dir, "tokenizer.model"))
        return err_set(
            err,
            "%s: has only tokenizer.model, which cannot be read yet; save the fast tokenizer "
            "(tokenizer.json) beside it",
            dir->path);
    return err_set(err, "%s: no tokenizer.json and no vocab.json with merges.txt in it", dir->path);
}

int hf_dir_open_tokenizer(struct hf_dir *dir, const char *path, struct err *err)
{
    if (open_small(dir, path, err) == 0 && check_tokenizer(dir, err) == 0)
        return 0;
    hf_dir_release(dir);
    return -1;
}

int hf_dir_open(struct hf_dir *dir, const char *path, struct err *err)
{
    /* Weights that cannot be read are the first thing to tell. */
    if (open_small(dir, path, err) == 0 && check_quantized(dir, err) == 0 &&
        open_weights(dir, err) == 0 && check_tokenizer(dir, err) == 0)
        return 0;
    hf_dir_release(dir);
    return -1;
}

void hf_dir_release(struct hf_dir *dir)
{
    for (size_t i = 0; i < dir->n_shards; i++)
        safetensors_release(&dir->shard[i]);
    free(dir->shard);
    for (int i = 0; i < HF_FILE_COUNT; i++)
        file_unmap(&dir->file[i]);
    json_decref(dir->config);
    json_decref(dir->generation_config);
    *dir = (struct hf_dir){0};
}

const struct st_tensor *hf_dir_find(const struct hf_dir *dir, const char *name)
{
    for (size_t i = 0; i < dir->n_shards; i++) {
        const struct st_tensor *tensor = safetensors_find(&dir->shard[i], name);
        if (tensor)
            return tensor;
    }
    return NULL;
}
