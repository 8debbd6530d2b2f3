/* A Hugging Face model folder. */
#include "format/hfdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A given file that is no folder: says what it is, as far as its first bytes tell. */
static int refuse_file(const char *path, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    const bool gguf = map.size >= 4 && memcmp(map.data, "GGUF", 4) == 0;
    const bool zip = map.size >= 2 && memcmp(map.data, "PK", 2) == 0;
    const bool bmc = map.size >= 8 && memcmp(map.data, "BMCMODEL", 8) == 0;
    file_unmap(&map);
    if (gguf)
        return err_set(
            err,
            "%s: is a GGUF file, which cannot be read yet; convert the Hugging Face folder that it "
            "was made from",
            path);
    if (zip)
        return err_set(
            err,
            "%s: is a PyTorch checkpoint, which cannot be read yet; save the model as safetensors "
            "(save_pretrained) and give its folder",
            path);
    if (bmc)
        return err_set(err, "%s: is a .bmc model already; use it with bmc-gen -m", path);
    return err_set(err, "%s: is a file, a Hugging Face folder with config.json is expected", path);
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

/* model.safetensors.index.json: every file that its weight_map names, once. */
static int open_shards(struct hf_dir *dir, const char *index_name, struct err *err)
{
    char path[PATH_SIZE];
    join(path, dir, index_name);
    struct file_map map;
    json_t *index = NULL, *seen = NULL;
    int rc = -1;
    if (file_map(&map, path, err) < 0)
        return -1;
    if (json_parse((const char *)map.data, map.size, path, &index, err) < 0)
        goto out;
    json_t *weight_map = json_object_get(index, "weight_map");
    if (!json_is_object(weight_map)) {
        err_set(err, "%s: weight_map is %s, an object is expected", path, json_type_name(weight_map));
        goto out;
    }
    seen = json_object();
    if (!seen || alloc_shards(dir, json_object_size(weight_map) + 1, err) < 0)
        goto out;
    const char *tensor;
    json_t *file;
    json_object_foreach(weight_map, tensor, file)
    {
        const char *name = json_string_value(file);
        if (!name || strchr(name, '/')) {
            err_set(err, "%s: tensor \"%s\" is not in a file of this folder", path, tensor);
            goto out;
        }
        if (json_object_get(seen, name))
            continue;
        if (json_object_set_new(seen, name, json_true()) < 0 || add_shard(dir, name, err) < 0)
            goto out;
    }
    rc = 0;
out:
    json_decref(seen);
    json_decref(index);
    file_unmap(&map);
    return rc;
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

int hf_dir_open_tokenizer(struct hf_dir *dir, const char *path, struct err *err)
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
        char name[PATH_SIZE];
        join(name, dir, file_names[i]);
        if (has(dir, file_names[i]) && file_map(&dir->file[i], name, err) < 0)
            goto fail;
    }
    if (open_json(dir, HF_CONFIG, &dir->config, err) < 0)
        goto fail;
    if (dir->file[HF_GENERATION_CONFIG].data &&
        open_json(dir, HF_GENERATION_CONFIG, &dir->generation_config, err) < 0)
        goto fail;
    if (!dir->file[HF_TOKENIZER].data && !dir->file[HF_VOCAB].data) {
        if (has(dir, "tokenizer.model"))
            err_set(err,
                    "%s: has only tokenizer.model, which cannot be read yet; save the fast tokenizer "
                    "(tokenizer.json) beside it",
                    path);
        else
            err_set(err, "%s: no tokenizer.json and no vocab.json with merges.txt in it", path);
        goto fail;
    }
    return 0;
fail:
    hf_dir_release(dir);
    return -1;
}

int hf_dir_open(struct hf_dir *dir, const char *path, struct err *err)
{
    /* Weights that cannot be read are the first thing to tell. */
    *dir = (struct hf_dir){0};
    snprintf(dir->path, sizeof dir->path, "%s", path);
    if (has(dir, "config.json") && !has(dir, "model.safetensors") &&
        !has(dir, "model.safetensors.index.json"))
        return open_weights(dir, err);
    if (hf_dir_open_tokenizer(dir, path, err) < 0)
        return -1;
    if (open_weights(dir, err) < 0) {
        hf_dir_release(dir);
        return -1;
    }
    return 0;
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
