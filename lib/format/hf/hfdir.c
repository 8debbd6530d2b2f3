/* A Hugging Face model folder as a source of weights: JSON files, and weights in safetensors or
 * PyTorch files, single or sharded. To add a weight file format, add a row to `containers`. */
#include "format/source.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text_util.h"
#include "format/diagnose_folder.h"
#include "format/hf/hf_mxfp4.h"
#include "format/hf/hfindex.h"
#include "format/hf/pooling.h"
#include "format/hf/spmodel.h"
#include "format/hf/tiktoken.h"
#include "format/tensorfile.h"

/* Files other than weights, all mapped; missing ones are empty. Tokenizer files come first, then
 * JSON configurations. */
enum { FILES = SOURCE_TEXTS + SOURCE_JSONS };

struct hf_dir {
    const char *path;
    struct file_map file[FILES];
    /* generated: tokenizer.json, if there is only a vocabulary of another format; additional chat templates */
    struct buf made, templates;
    json_t *json[SOURCE_JSONS]; /* parsed; NULL: missing */
    bool tekken;                /* the tokenizer is a tekken.json */
    struct tensor_file *shard;
    size_t n_shards;
    /* Copies of tensors in other shards than that which the index names: tensor() lists them, find() does not */
    struct source_tensor *stale;
    size_t n_stale, cap_stale;
};

static const char *const file_names[FILES] = {
    [SOURCE_TOKENIZER] = "tokenizer.json",
    [SOURCE_VOCAB] = "vocab.json",
    [SOURCE_MERGES] = "merges.txt",
    [SOURCE_ADDED_TOKENS] = "added_tokens.json",
    [SOURCE_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [SOURCE_SPECIAL_TOKENS] = "special_tokens_map.json",
    [SOURCE_CHAT_TEMPLATE] = "chat_template.jinja",
    [SOURCE_CHAT_JSON] = "chat_template.json",
    [SOURCE_TEXTS + SOURCE_CONFIG] = "config.json",
    [SOURCE_TEXTS + SOURCE_GENERATION] = "generation_config.json",
};

static const char template_folder[] = "additional_chat_templates";

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

/* Fails because quantised weights are not supported; `where` names the file or tensor with them. */
static int refuse_quantized(const struct hf_dir *dir, const char *how, const char *where,
                            struct err *err)
{
    return err_set(
        err,
        "%s: quantized weights (%s, %s) are not supported; convert the original model in F32, "
        "F16 or BF16",
        dir->path, how, where);
}

static int check_quantized(const struct hf_dir *dir, struct err *err)
{
    const json_t *how = json_at(dir->json[SOURCE_CONFIG], "quantization_config");
    const char *method = json_string_value(json_object_get(how, "quant_method"));
    if (!how || json_is_null(how) || (method && strcmp(method, "mxfp4") == 0))
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
    if (json_parse_python((const char *)file->data, file->size, path, root, err) < 0)
        return -1;
    if (!json_is_object(*root))
        return err_set(err, "%s: is %s, expected an object", path, json_type_name(*root));
    return 0;
}

/* Weight files, in order of preference. */
static const struct container {
    const char *file, *index; /* single file; index of sharded files */
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
    return dir->shard ? 0 : err_no_memory(err, "%s: %zu weight files", dir->path, n);
}

/* Fails if two weight files have a tensor of the same name; `name` is that of file number i. */
static int check_names(const struct hf_dir *dir, const char *const *name, struct err *err)
{
    for (size_t s = 1; s < dir->n_shards; s++)
        for (size_t i = 0; i < dir->shard[s].n_tensors; i++)
            for (size_t before = 0; before < s; before++)
                if (tensor_file_find(&dir->shard[before], dir->shard[s].tensor[i].name))
                    return err_set(err,
                                   "%s: tensor \"%s\" is in %s and %s, and the index names neither of "
                                   "them for it; remove the wrong one",
                                   dir->path, dir->shard[s].tensor[i].name, name[before], name[s]);
    return 0;
}

/* Moves the tensors of a shard that the index says are in another one, and are there, to `stale`. */
static int drop_stale(struct hf_dir *dir, struct tensor_file *shard, const json_t *files,
                      const json_t *number, struct err *err)
{
    size_t kept = 0;
    for (size_t i = 0; i < shard->n_tensors; i++) {
        const struct source_tensor tensor = shard->tensor[i];
        const char *file = json_string_value(json_object_get(files, tensor.name));
        const struct tensor_file *named =
            file ? &dir->shard[json_integer_value(json_object_get(number, file))] : shard;
        if (named == shard || !tensor_file_find(named, tensor.name)) {
            shard->tensor[kept++] = tensor;
            continue;
        }
        if (mem_grow(&dir->stale, &dir->cap_stale, dir->n_stale, sizeof *dir->stale, err) < 0)
            return -1;
        dir->stale[dir->n_stale++] = tensor;
    }
    shard->n_tensors = kept;
    return 0;
}

/* Opens the files of an index: `files` as hf_index_parse() sets it; `number` becomes their numbers by name. */
static int open_files(struct hf_dir *dir, const struct container *container, json_t *files,
                      json_t *number, struct err *err)
{
    const char *tensor, *name, **names;
    json_t *file;
    int rc = 0;
    json_object_foreach(files, tensor, file)
    {
        name = json_string_value(file);
        if (rc == 0 && !json_object_get(number, name))
            rc = json_put(number, name, json_integer((json_int_t)json_object_size(number)), err);
    }
    const size_t n = json_object_size(number);
    names = calloc(n + 1, sizeof *names);
    if (rc == 0)
        rc = names ? alloc_shards(dir, n + 1, err) : err_no_memory(err, "%s: %zu names", dir->path, n);
    json_object_foreach(number, name, file)
    {
        if (rc == 0)
            rc = add_shard(dir, container, names[dir->n_shards] = name, err);
    }
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = drop_stale(dir, &dir->shard[i], files, number, err);
    if (rc == 0)
        rc = check_names(dir, names, err);
    free(names);
    return rc;
}

static int open_shards(struct hf_dir *dir, const struct container *container, struct err *err)
{
    char path[PATH_SIZE];
    struct file_map map;
    json_t *files = NULL, *number = json_object();
    join(path, dir, container->index);
    int rc = number ? file_map(&map, path, err) : err_no_memory(err, "%s", path);
    if (rc < 0)
        goto out;
    rc = detect_refuse(map.data, map.size, KIND_OTHER, "JSON text", path, err);
    if (rc == 0)
        rc = hf_index_parse(&files, (const char *)map.data, map.size, path, err);
    if (rc == 0)
        rc = open_files(dir, container, files, number, err);
    file_unmap(&map);
out:
    json_decref(files);
    json_decref(number);
    return rc;
}

/* Fails if a tensor name is of GPTQ or AWQ, for models without quantization_config. */
static int check_tensors(const struct hf_dir *dir, struct err *err)
{
    for (size_t s = 0; s < dir->n_shards; s++)
        for (size_t i = 0; i < dir->shard[s].n_tensors; i++) {
            const char *name = dir->shard[s].tensor[i].name;
            if (text_ends(name, ".qweight"))
                return refuse_quantized(dir, "GPTQ or AWQ", name, err);
        }
    return 0;
}

/* Fails for folders with only a LoRA adapter. */
static int check_adapter(const struct hf_dir *dir, struct err *err)
{
    static const char *const files[] = {"adapter_model.safetensors", "adapter_model.bin",
                                        "adapter_config.json"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (has(dir, files[i]))
            return err_set(err,
                           "%s: contains only a LoRA adapter (%s); convert its base model, and give "
                           "the adapter to bmc-gen --lora",
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

/* Fails with a specific reason for known unsupported contents. */
static int refuse_known(const struct hf_dir *dir, struct err *err)
{
    if (check_adapter(dir, err) < 0)
        return -1;
    return find_container(dir) ? 0 : diagnose_folder(dir->path, err);
}

static int open_weights(struct hf_dir *dir, struct err *err)
{
    const struct container *container = find_container(dir);
    if (!container)
        return refuse_known(dir, err) < 0
                   ? -1
                   : err_set(
                         err,
                         "%s: contains neither model.safetensors nor pytorch_model.bin, nor an index",
                         dir->path);
    /* as transformers does, which prefers a single file to an index beside it */
    if (!has(dir, container->file))
        return open_shards(dir, container, err);
    return alloc_shards(dir, 1, err) < 0 ? -1 : add_shard(dir, container, container->file, err);
}

/* Maps config.json (optional for a tokenizer alone) and the other small files. */
static int open_small(struct hf_dir *dir, enum source_scope scope, struct err *err)
{
    if (scope == SOURCE_ALL && !has(dir, "config.json"))
        return refuse_known(dir, err) < 0
                   ? -1
                   : err_set(err, "%s: config.json is missing; expected a Hugging Face model folder",
                             dir->path);
    for (int i = 0; i < FILES; i++) {
        struct file_map *file = &dir->file[i];
        char name[PATH_SIZE];
        if (!file_names[i])
            continue;
        join(name, dir, file_names[i]);
        if (has(dir, file_names[i]) &&
            (file_map(file, name, err) < 0 ||
             detect_refuse(file->data, file->size, KIND_OTHER, "a text file", name, err) < 0))
            return -1;
    }
    for (int i = 0; i < SOURCE_JSONS; i++)
        if (dir->file[SOURCE_TEXTS + i].data && open_json(dir, (enum source_json)i, err) < 0)
            return -1;
    return scope == SOURCE_ALL ? pooling_read(&dir->json[SOURCE_EMBEDDING], dir->path, err) : 0;
}

static int from_tiktoken(struct hf_dir *dir, const struct file_map *map, const char *path,
                         struct err *err)
{
    const struct file_map *config = &dir->file[SOURCE_TOKENIZER_CONFIG];
    return tiktoken_json(&dir->made, (const char *)map->data, map->size, (const char *)config->data,
                         config->size, path, err);
}

static int from_spmodel(struct hf_dir *dir, const struct file_map *map, const char *path,
                        struct err *err)
{
    if (tiktoken_is((const char *)map->data, map->size))
        return from_tiktoken(dir, map, path, err);
    return spmodel_json(&dir->made, map->data, map->size, path, err);
}

static int from_tekken(struct hf_dir *dir, const struct file_map *map, const char *path,
                       struct err *err)
{
    dir->tekken = true;
    return tekken_json(&dir->made, (const char *)map->data, map->size, path, err);
}

/* Vocabularies that are converted to a tokenizer.json, in order of preference. */
static const struct vocabulary {
    const char *file;
    int (*convert)(struct hf_dir *dir, const struct file_map *map, const char *path, struct err *err);
} vocabularies[] = {
    {"tokenizer.model", from_spmodel},
    {"tiktoken.model", from_tiktoken},
    {"tekken.json", from_tekken},
};

/* Converts a vocabulary if there is no tokenizer.json or vocab.json; `path` receives the name of the tokenizer's
 * file, empty if there is none. */
static int open_tokenizer(struct hf_dir *dir, char *path, struct err *err)
{
    struct file_map map;
    join(path, dir, file_names[dir->file[SOURCE_TOKENIZER].data ? SOURCE_TOKENIZER : SOURCE_VOCAB]);
    if (dir->file[SOURCE_TOKENIZER].data || dir->file[SOURCE_VOCAB].data)
        return 0;
    *path = 0;
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        if (!has(dir, vocabularies[i].file))
            continue;
        join(path, dir, vocabularies[i].file);
        if (file_map(&map, path, err) < 0)
            return -1;
        const int rc = vocabularies[i].convert(dir, &map, path, err);
        file_unmap(&map);
        return rc;
    }
    return 0;
}

static int is_template(const struct dirent *entry) { return text_ends(entry->d_name, ".jinja"); }

static int add_template(const char *path, const char *name, json_t *list, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    json_t *one = json_object(), *text = json_stringn(map.data ? (const char *)map.data : "", map.size);
    int rc = text ? json_put(one, "template", text, err)
                  : err_set(err, "%s: the template is not valid UTF-8", path);
    if (rc == 0)
        rc = json_put(one, "name", json_text(name, strlen(name) - strlen(".jinja")), err);
    file_unmap(&map);
    return rc == 0 ? json_push(list, one, err) : (json_decref(one), -1);
}

/* Reads the additional chat templates, each a file named after it. */
static int open_templates(struct hf_dir *dir, struct err *err)
{
    char path[PATH_SIZE + 300];
    struct dirent **files = NULL;
    join(path, dir, template_folder);
    const int n = scandir(path, &files, is_template, alphasort);
    json_t *list = json_array(), *all = json_object();
    int rc = 0;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", dir->path, template_folder, files[i]->d_name);
        if (rc == 0)
            rc = add_template(path, files[i]->d_name, list, err);
        free(files[i]);
    }
    free(files);
    if (rc == 0 && n > 0)
        rc = json_put(all, "chat_template", json_incref(list), err);
    if (rc == 0 && n > 0)
        rc = json_append(all, 0, &dir->templates, err);
    json_decref(list);
    json_decref(all);
    return rc;
}

static int open_folder(struct weight_source *source, enum source_scope scope, struct err *err)
{
    struct hf_dir *dir = source->state = calloc(1, sizeof *dir);
    char path[PATH_SIZE];
    if (!dir)
        return err_no_memory(err, "%s", source->path);
    dir->path = source->path;
    snprintf(source->config_name, sizeof source->config_name, "%s/config.json", source->path);
    if (open_small(dir, scope, err) < 0)
        return -1;
    /* Unsupported weights are reported before other problems. */
    if (scope == SOURCE_ALL &&
        (check_quantized(dir, err) < 0 || open_weights(dir, err) < 0 || check_tensors(dir, err) < 0 ||
         hf_mxfp4_join(dir->shard, dir->n_shards, dir->path, err) < 0))
        return -1;
    if (open_tokenizer(dir, path, err) < 0 || open_templates(dir, err) < 0)
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
    return nth < dir->n_stale ? &dir->stale[nth] : NULL;
}

static struct source_bytes tokenizer(const struct weight_source *source, enum source_text which)
{
    /* the names that transformers gives to the special tokens of a tekken.json, for chat templates */
    static const char named[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\","
                                "\"pad_token\":\"<pad>\"}";
    const struct hf_dir *dir = source->state;
    if (which == SOURCE_SPECIAL_TOKENS && dir->tekken && !dir->file[which].data)
        return (struct source_bytes){named, sizeof named - 1};
    if (which == SOURCE_TOKENIZER && dir->made.len)
        return (struct source_bytes){dir->made.data, dir->made.len};
    if (which == SOURCE_CHAT_FOLDER)
        return (struct source_bytes){dir->templates.data, dir->templates.len};
    return (struct source_bytes){(const char *)dir->file[which].data, dir->file[which].size};
}

static void release_pages(const struct weight_source *source)
{
    const struct hf_dir *dir = source->state;
    for (size_t i = 0; i < dir->n_shards; i++)
        file_map_release_pages(&dir->shard[i].map);
}

static void close_folder(struct weight_source *source)
{
    struct hf_dir *dir = source->state;
    if (!dir)
        return;
    for (size_t i = 0; i < dir->n_shards; i++)
        tensor_file_release(&dir->shard[i]);
    free(dir->shard);
    free(dir->stale);
    buf_release(&dir->made);
    buf_release(&dir->templates);
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
    .release_pages = release_pages,
    .close = close_folder,
};
