/* A Hugging Face model folder as a source of weights: JSON files, and weights in safetensors or
 * PyTorch files, single or sharded. To add a weight file format, add a row to `containers`. */
#include "format/hf/hfdir.h"

#include <dirent.h>
#include <sys/stat.h>

#include "base/text_util.h"
#include "format/hf/quantized.h"
#include "format/hf/spmodel.h"
#include "format/hf/tiktoken.h"

/* ---- reading sentence-transformers' modules.json and 1_Pooling/config.json ---- */

enum { PATH_SIZE = 4096 + 512 };

/* How a text's embedding is made: the member of the pooling module's configuration that is true, and its name in
 * the newer form, "pooling_mode": NAME. */
static const struct mode {
    const char *member, *name, *pooling; /* `pooling` NULL: not supported */
} modes[] = {
    {"pooling_mode_mean_tokens", "mean", "mean"},
    {"pooling_mode_lasttoken", "lasttoken", "last"},
    {"pooling_mode_cls_token", "cls", "cls"},
    {"pooling_mode_max_tokens", "max", NULL},
    {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", NULL},
    {"pooling_mode_weightedmean_tokens", "weightedmean", NULL},
};

/* Parses a file of the folder; *json is NULL if there is none. */
static int read_json(json_t **json, const char *folder, const char *name, struct err *err)
{
    char path[PATH_SIZE];
    struct file_map map;
    *json = NULL;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || !file_exists(path))
        return 0;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = json_parse((const char *)map.data, map.size, path, json, err);
    file_unmap(&map);
    return rc;
}

/* What a pooling module does: a mode's pooling, or NULL and in `what` what is not supported. */
static const char *pooling_of(const json_t *config, const char **what)
{
    const char *name = json_string_value(json_object_get(config, "pooling_mode"));
    const struct mode *found = NULL;
    for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
        if (!(name ? strcmp(name, modes[i].name) == 0
                   : json_is_true(json_object_get(config, modes[i].member))))
            continue;
        *what = found ? "more than one mode of pooling" : modes[i].name;
        if (found)
            return NULL;
        found = &modes[i];
    }
    if (!found)
        *what = "its mode of pooling";
    return found ? found->pooling : NULL;
}

/* Modules that change nothing that is not done anyway. */
static bool is_known_module(const char *type)
{
    return text_ends(type, ".Transformer") || text_ends(type, ".Pooling") ||
           text_ends(type, ".Normalize") || text_ends(type, ".Dense");
}

/* ---- dense layers after pooling, in folders of their own: their tensors are called as in GGUF files ---- */

enum { DENSE_MODULES = 2 };

static const char *const dense_names[DENSE_MODULES][2] = {{"dense_2.bias", "dense_2.weight"},
                                                          {"dense_3.bias", "dense_3.weight"}};

/* The folder of the nth dense module; NULL: there is none. */
static const char *find_dense(const json_t *modules, size_t nth)
{
    const json_t *module;
    size_t i;
    json_array_foreach(modules, i, module)
    {
        const char *type = json_string_value(json_object_get(module, "type"));
        if (type && text_ends(type, ".Dense") && nth-- == 0)
            return json_string_value(json_object_get(module, "path"));
    }
    return NULL;
}

static bool is_name_of_file(const char *name)
{
    return name && *name && !strchr(name, '/') && strcmp(name, "..") != 0 && strcmp(name, ".") != 0;
}

/* The name of an activation of a dense module; NULL: not supported. */
static const char *dense_activation(const json_t *config)
{
    static const char *const known[][2] = {
        {".Identity", "none"}, {".Tanh", "tanh"}, {".GELU", "gelu"}, {".ReLU", "relu"}};
    const char *function = json_string_value(json_object_get(config, "activation_function"));
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (text_ends(function ? function : ".Tanh", known[i][0]))
            return known[i][1];
    return NULL;
}

/* Adds "dense", the number of dense modules, and "dense_activation", that of the first; *other: what is not supported. */
static int put_dense(json_t *json, const char *path, const json_t *modules, const char **other,
                     struct err *err)
{
    const char *folder;
    size_t n = 0;
    int rc = 0;
    for (; rc == 0 && (folder = find_dense(modules, n)); n++) {
        json_t *config = NULL;
        char name[256];
        snprintf(name, sizeof name, "%.200s/config.json", folder);
        if (is_name_of_file(folder))
            rc = read_json(&config, path, name, err);
        const char *act = config ? dense_activation(config) : NULL;
        if (!act || n >= DENSE_MODULES || (n && strcmp(act, "none") != 0))
            *other = "a dense layer that cannot be read, a third one, or its activation";
        if (rc == 0 && act && n == 0)
            rc = json_put(json, "dense_activation", json_string(act), err);
        json_decref(config);
    }
    return rc == 0 && n && !*other ? json_put(json, "dense", json_integer((json_int_t)n), err) : rc;
}

/* The name of the folder of the pooling module; also of one that is not listed. */
static const char *find_pooling(const json_t *modules, bool *normalize, const char **other)
{
    const char *folder = modules ? NULL : "1_Pooling";
    const json_t *module;
    size_t i;
    *normalize = !modules;
    json_array_foreach(modules, i, module)
    {
        const char *type = json_string_value(json_object_get(module, "type"));
        if (!type || !is_known_module(type))
            *other = type ? type : "a module without type";
        else if (text_ends(type, ".Pooling"))
            folder = json_string_value(json_object_get(module, "path"));
        else
            *normalize |= text_ends(type, ".Normalize");
    }
    return folder;
}

/* Adds the prompts of config_sentence_transformers.json. */
static int put_prompts(json_t *json, const char *path, struct err *err)
{
    AUTO(json_auto) json_t *config = NULL, *made = json_object();
    const json_t *text;
    const char *name;
    int rc = read_json(&config, path, "config_sentence_transformers.json", err);
    json_t *prompts = json_object_get(config, "prompts");
    const char *usual = json_string_value(json_object_get(config, "default_prompt_name"));
    json_object_foreach(prompts, name, text)
    {
        if (rc == 0 && json_is_string(text) && *name)
            rc = json_put(made, name, json_deep_copy(text), err);
        if (rc == 0 && json_is_string(text) && usual && strcmp(name, usual) == 0)
            rc = json_put(made, "", json_deep_copy(text), err);
    }
    return rc == 0 && json_object_size(made) ? json_put(json, "prompts", json_incref(made), err) : rc;
}

static int describe_pooling(json_t **json, const char *path, const json_t *modules, struct err *err)
{
    json_t *config = NULL;
    bool normalize;
    const char *other = NULL, *folder = find_pooling(modules, &normalize, &other), *what = NULL;
    char name[256];
    if (!folder)
        return 0;
    snprintf(name, sizeof name, "%.200s/config.json", folder);
    if (!strchr(folder, '/') && strcmp(folder, "..") != 0 && read_json(&config, path, name, err) < 0)
        return -1;
    if (!config && !modules)
        return 0;
    const char *pooling = config ? pooling_of(config, &what) : NULL;
    if (!config)
        what = "its pooling module cannot be read";
    json_decref(config);
    json_t *made = json_pack("{s:b}", "normalize", normalize);
    int rc = made ? put_dense(made, path, modules, &other, err) : 0;
    if (rc == 0 && made)
        rc = json_put(made, "pooling", json_string(pooling && !other ? pooling : "unsupported"), err);
    if (rc == 0 && made && (other || !pooling))
        rc = json_put(made, "unsupported", json_string(other ? other : what), err);
    *json = json_or_null(made, rc == 0 && made ? put_prompts(made, path, err) : rc, err);
    return *json ? 0 : -1;
}

int hf_pooling_read(json_t **json, const char *path, struct err *err)
{
    json_t *modules = NULL;
    *json = NULL;
    if (read_json(&modules, path, "modules.json", err) < 0)
        return -1;
    const int rc = describe_pooling(json, path, modules, err);
    json_decref(modules);
    return rc;
}

/* ---- unsupported forms of models: to recognise another one, add a row to the table `forms` ---- */

static const struct form {
    const char *begin, *end; /* prefix and suffix of the file name */
    const char *index;       /* the row applies only if this file is missing; NULL: always */
    const char *what;        /* description and advice, after the file name */
} forms[] = {
    {"", ".gguf", NULL, "a GGUF file: name that file itself"},
    {"model-00001-of-", ".safetensors", "model.safetensors.index.json",
     "sharded weights without their index: add model.safetensors.index.json to the folder"},
    {"pytorch_model-00001-of-", ".bin", "pytorch_model.bin.index.json",
     "sharded weights without their index: add pytorch_model.bin.index.json to the folder"},
    {"consolidated.", ".pth", NULL,
     "a checkpoint in its authors' own format: use the Hugging Face folder of the same model, with "
     "config.json and model.safetensors"},
    {"consolidated", ".safetensors", NULL,
     "a checkpoint in its authors' own format: use the Hugging Face folder of the same model, with "
     "config.json and model.safetensors"},
    {"tf_model", ".h5", NULL,
     "TensorFlow weights, which are not supported: save the model as safetensors "
     "(from_pretrained with from_tf=True, then save_pretrained)"},
    {"flax_model", ".msgpack", NULL,
     "Flax weights, which are not supported: save the model as safetensors "
     "(from_pretrained with from_flax=True, then save_pretrained)"},
    {"", ".onnx", NULL,
     "an ONNX graph, which is not supported: convert the original model, as safetensors"},
};

static bool name_has_form(const struct form *form, const char *name)
{
    const size_t len = strlen(name), begin = strlen(form->begin), end = strlen(form->end);
    return len >= begin + end && strncmp(name, form->begin, begin) == 0 &&
           strcmp(name + len - end, form->end) == 0;
}

static bool lists_file(struct dirent *const *files, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(files[i]->d_name, name) == 0)
            return true;
    return false;
}

/* The name of the first file in the folder that has this form, or NULL. */
static const char *file_of_form(struct dirent *const *files, int n, const struct form *form)
{
    if (form->index && lists_file(files, n, form->index))
        return NULL;
    for (int i = 0; i < n; i++)
        if (name_has_form(form, files[i]->d_name))
            return files[i]->d_name;
    return NULL;
}

/* Fails with the first unsupported form found, and what to do; returns 0 if none is found. */
static int diagnose_folder(const char *path, struct err *err)
{
    AUTO(free_auto) struct dirent **files = NULL;
    const int n = scandir(path, &files, NULL, alphasort);
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(forms) && rc == 0; i++) {
        const char *name = file_of_form(files, n, &forms[i]);
        if (name)
            rc = err_set(err, "%s: contains %s, %s", path, name, forms[i].what);
    }
    for (int i = 0; i < n; i++)
        free(files[i]);
    return rc;
}

/* ---- MXFP4 weights of safetensors files: a tensor of blocks and one of scales become one of elements ---- */

/* The tensor of scales that belongs to NAME_blocks; NULL: none. */
static struct source_tensor *find_scales(struct tensor_file *file, size_t n_files, const char *blocks)
{
    enum { NAME_SIZE = 512 };
    static const char ending[] = "_scales";
    char name[NAME_SIZE];
    const size_t len = strlen(blocks) - strlen("_blocks");
    if (len + sizeof ending > sizeof name)
        return NULL;
    memcpy(name, blocks, len);
    memcpy(name + len, ending, sizeof ending);
    for (size_t i = 0; i < n_files; i++) {
        const struct source_tensor *found = tensor_file_find(&file[i], name);
        if (found)
            return &file[i].tensor[found - file[i].tensor];
    }
    return NULL;
}

static bool of_bytes(const struct source_tensor *tensor)
{
    return tensor->type_name && strcmp(tensor->type_name, "U8") == 0 && !tensor->strided;
}

static int join_blocks(struct source_tensor *blocks, struct source_tensor *scales, const char *folder,
                       struct err *err)
{
    const size_t n = scales->n_dims;
    bool fits =
        of_bytes(scales) && n > 0 && blocks->n_dims == n + 1 && blocks->dim[n] == MXFP4_SPLIT_BYTES;
    for (size_t i = 0; fits && i < n; i++)
        fits = blocks->dim[i] == scales->dim[i];
    /* its bytes are in the file, so the number of elements, twice as many, cannot overflow */
    if (!fits)
        return err_set(err, "%s: tensors \"%s\" and \"%s\" are not blocks of MXFP4 and their scales",
                       folder, blocks->name, scales->name);
    blocks->type = DTYPE_MXFP4;
    blocks->type_name = "MXFP4";
    blocks->n_dims = n;
    blocks->dim[n - 1] *= block_types[DTYPE_MXFP4].elements;
    blocks->scales = scales->data;
    scales->is_scales = true;
    return 0;
}

int hf_mxfp4_join(struct tensor_file *file, size_t n_files, const char *folder, struct err *err)
{
    for (size_t f = 0; f < n_files; f++)
        for (size_t i = 0; i < file[f].n_tensors; i++) {
            struct source_tensor *blocks = &file[f].tensor[i];
            if (!of_bytes(blocks) || !text_ends(blocks->name, "_blocks"))
                continue;
            struct source_tensor *scales = find_scales(file, n_files, blocks->name);
            if (scales && join_blocks(blocks, scales, folder, err) < 0)
                return -1;
        }
    return 0;
}

/* ---- parsing the index of sharded weights ---- */

static bool is_file_of_folder(const json_t *file)
{
    const char *text = json_string_value(file);
    return text && *text && !strchr(text, '/') && strlen(text) == json_string_length(file);
}

int hf_index_parse(json_t **files, const char *text, size_t size, const char *name, struct err *err)
{
    json_t *index, *file;
    const char *tensor;
    int rc = 0;
    *files = NULL;
    if (json_parse_unique(text, size, name, &index, err) < 0)
        return -1;
    json_t *map = json_object_get(index, "weight_map");
    if (!json_is_object(map))
        rc = err_set(err, "%s: weight_map is %s, expected an object", name, json_type_name(map));
    json_object_foreach(map, tensor, file)
    {
        if (rc == 0 && !is_file_of_folder(file))
            rc = err_set(err, "%s: tensor \"%s\" is not in a file of the folder", name, tensor);
    }
    if (rc == 0)
        *files = json_incref(map);
    json_decref(index);
    return rc;
}

/* ---- the folder ---- */

/* Files other than weights, all mapped; missing ones are empty. Tokenizer files come first, then
 * JSON configurations. */
enum { FILES = SOURCE_TEXTS + SOURCE_JSONS };

struct hf_dir {
    const char *path;
    struct file_map file[FILES];
    /* generated: tokenizer.json, if there is only a vocabulary of another format; additional chat templates */
    struct buf made, templates;
    json_t **json; /* [SOURCE_JSONS], of the source */
    bool tekken;   /* the tokenizer is a tekken.json */
    struct tensor_file *shard;
    size_t n_shards;
    /* Copies of tensors in other shards than that which the index names; they are listed, but not searched */
    struct source_tensor *stale;
    size_t n_stale, cap_stale;
    struct split_weights *split; /* quantised matrices of several tensors */
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

static void path_in(char *path, const struct hf_dir *dir, const char *name)
{
    snprintf(path, PATH_SIZE, "%s/%s", dir->path, name);
}

static bool has_file(const struct hf_dir *dir, const char *name)
{
    char path[PATH_SIZE];
    path_in(path, dir, name);
    return file_exists(path);
}

static int open_json(struct hf_dir *dir, enum source_json which, struct err *err)
{
    const struct file_map *file = &dir->file[SOURCE_TEXTS + which];
    json_t **root = &dir->json[which];
    char path[PATH_SIZE];
    path_in(path, dir, file_names[SOURCE_TEXTS + which]);
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
    path_in(path, dir, name);
    if (tensor_file_open(&dir->shard[dir->n_shards], path, container->parse, err) < 0)
        return -1;
    dir->n_shards++;
    return 0;
}

static int alloc_shards(struct hf_dir *dir, size_t n, struct err *err)
{
    dir->shard = calloc(n + DENSE_MODULES, sizeof *dir->shard);
    return dir->shard ? 0 : err_no_memory(err, "%s: %zu weight files", dir->path, n);
}

/* Fails if two weight files have a tensor of the same name; `name` is that of file number i. */
static int check_shard_names(const struct hf_dir *dir, const char *const *name, struct err *err)
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
        rc = check_shard_names(dir, names, err);
    free(names);
    return rc;
}

static int open_shards(struct hf_dir *dir, const struct container *container, struct err *err)
{
    char path[PATH_SIZE];
    struct file_map map;
    json_t *files = NULL, *number = json_object();
    path_in(path, dir, container->index);
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

/* Joins quantised matrices. Fails if there are tensors of GPTQ or AWQ that config.json does not describe. */
static int join_quantized(struct hf_dir *dir, struct err *err)
{
    const json_t *config = dir->json[SOURCE_CONFIG];
    if (quantized_join(&dir->split, dir->shard, dir->n_shards, config, dir->path, err) < 0)
        return -1;
    for (size_t s = 0; s < dir->n_shards; s++)
        for (size_t i = 0; i < dir->shard[s].n_tensors; i++) {
            const char *name = dir->shard[s].tensor[i].name;
            if (text_ends(name, ".qweight"))
                return err_set(err,
                               "%s: tensor \"%.200s\" is of GPTQ or AWQ, but config.json has no "
                               "quantization_config for it (quant_method, bits, group_size): add it",
                               dir->path, name);
        }
    return hf_mxfp4_join(dir->shard, dir->n_shards, dir->path, err);
}

/* Fails for folders with only a LoRA adapter. */
static int check_adapter(const struct hf_dir *dir, struct err *err)
{
    static const char *const files[] = {"adapter_model.safetensors", "adapter_model.bin",
                                        "adapter_config.json"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (has_file(dir, files[i]))
            return err_set(err,
                           "%s: contains only a LoRA adapter (%s); convert its base model, and give "
                           "the adapter to bmc-gen --lora",
                           dir->path, files[i]);
    return 0;
}

static const struct container *find_container(const struct hf_dir *dir)
{
    for (size_t i = 0; i < ARRAY_LEN(containers); i++)
        if (has_file(dir, containers[i].index) || has_file(dir, containers[i].file))
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
    if (!has_file(dir, container->file))
        return open_shards(dir, container, err);
    return alloc_shards(dir, 1, err) < 0 ? -1 : add_shard(dir, container, container->file, err);
}

/* Opens the weights of the nth dense module. */
static int open_dense(struct hf_dir *dir, const char *folder, size_t nth, struct err *err)
{
    char file[256];
    const struct container *container = NULL;
    for (size_t i = 0; i < ARRAY_LEN(containers) && !container; i++) {
        snprintf(file, sizeof file, "%.200s/%s", folder, containers[i].file);
        container = has_file(dir, file) ? &containers[i] : NULL;
    }
    if (!container)
        return err_set(err, "%s: the folder %.100s, a module of modules.json, has no model.safetensors",
                       dir->path, folder);
    if (add_shard(dir, container, file, err) < 0)
        return -1;
    const struct tensor_file *shard = &dir->shard[dir->n_shards - 1];
    for (size_t i = 0; i < shard->n_tensors; i++) {
        const char *name = shard->tensor[i].name;
        const bool weight = strcmp(name, "linear.weight") == 0;
        if (!weight && strcmp(name, "linear.bias") != 0)
            return err_set(err, "%s: tensor \"%.100s\" in %.100s is none of a dense layer", dir->path,
                           name, file);
        shard->tensor[i].name = dense_names[nth][weight];
    }
    return 0;
}

static int open_dense_modules(struct hf_dir *dir, struct err *err)
{
    const json_t *says = dir->json[SOURCE_EMBEDDING];
    const json_int_t n = json_integer_value(json_object_get(says, "dense"));
    json_t *modules = NULL;
    int rc = n ? read_json(&modules, dir->path, "modules.json", err) : 0;
    for (size_t i = 0; rc == 0 && (json_int_t)i < n && i < DENSE_MODULES; i++) {
        const char *folder = find_dense(modules, i);
        if (is_name_of_file(folder))
            rc = open_dense(dir, folder, i, err);
    }
    json_decref(modules);
    return rc;
}

/* Maps config.json (optional for a tokenizer alone) and the other small files. */
static int open_small(struct hf_dir *dir, enum source_scope scope, struct err *err)
{
    if (scope == SOURCE_ALL && !has_file(dir, "config.json"))
        return refuse_known(dir, err) < 0
                   ? -1
                   : err_set(err, "%s: config.json is missing; expected a Hugging Face model folder",
                             dir->path);
    for (int i = 0; i < FILES; i++) {
        struct file_map *file = &dir->file[i];
        char name[PATH_SIZE];
        if (!file_names[i])
            continue;
        path_in(name, dir, file_names[i]);
        if (has_file(dir, file_names[i]) &&
            (file_map(file, name, err) < 0 ||
             detect_refuse(file->data, file->size, KIND_OTHER, "a text file", name, err) < 0))
            return -1;
    }
    for (int i = 0; i < SOURCE_JSONS; i++)
        if (dir->file[SOURCE_TEXTS + i].data && open_json(dir, (enum source_json)i, err) < 0)
            return -1;
    return scope == SOURCE_ALL ? hf_pooling_read(&dir->json[SOURCE_EMBEDDING], dir->path, err) : 0;
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
    path_in(path, dir, file_names[dir->file[SOURCE_TOKENIZER].data ? SOURCE_TOKENIZER : SOURCE_VOCAB]);
    if (dir->file[SOURCE_TOKENIZER].data || dir->file[SOURCE_VOCAB].data)
        return 0;
    *path = 0;
    for (size_t i = 0; i < ARRAY_LEN(vocabularies); i++) {
        if (!has_file(dir, vocabularies[i].file))
            continue;
        path_in(path, dir, vocabularies[i].file);
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
    path_in(path, dir, template_folder);
    const int n = scandir(path, &files, is_template, alphasort);
    AUTO(json_auto) json_t *list = json_array(), *all = json_object();
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
    return rc;
}

static void set_texts(struct weight_source *source, const struct hf_dir *dir)
{
    /* the names that transformers gives to the special tokens of a tekken.json, for chat templates */
    static const char named[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"unk_token\":\"<unk>\","
                                "\"pad_token\":\"<pad>\"}";
    struct source_bytes *text = source->text;
    for (size_t i = 0; i < SOURCE_TEXTS; i++)
        text[i] = (struct source_bytes){(const char *)dir->file[i].data, dir->file[i].size};
    if (dir->tekken && !text[SOURCE_SPECIAL_TOKENS].data)
        text[SOURCE_SPECIAL_TOKENS] = (struct source_bytes){named, sizeof named - 1};
    if (dir->made.len)
        text[SOURCE_TOKENIZER] = (struct source_bytes){dir->made.data, dir->made.len};
    text[SOURCE_CHAT_FOLDER] = (struct source_bytes){dir->templates.data, dir->templates.len};
}

static int set_lists(struct weight_source *source, const struct hf_dir *dir, struct err *err)
{
    if (source_alloc_lists(source, dir->n_shards + 1, err) < 0)
        return -1;
    for (size_t i = 0; i < dir->n_shards; i++)
        source->list[i] =
            (struct source_list){dir->shard[i].tensor, dir->shard[i].n_tensors, &dir->shard[i].map};
    source->list[dir->n_shards] = (struct source_list){dir->stale, dir->n_stale, NULL};
    source->n_searched = dir->n_shards;
    return 0;
}

static int open_folder(struct weight_source *source, enum source_scope scope, struct err *err)
{
    struct hf_dir *dir = source->state = calloc(1, sizeof *dir);
    char path[PATH_SIZE];
    if (!dir)
        return err_no_memory(err, "%s", source->path);
    dir->path = source->path;
    dir->json = source->json;
    snprintf(source->config_name, sizeof source->config_name, "%s/config.json", source->path);
    if (open_small(dir, scope, err) < 0)
        return -1;
    /* Unsupported weights are reported before other problems. */
    const char *method;
    if (scope == SOURCE_ALL &&
        (quantized_method(&method, dir->json[SOURCE_CONFIG], dir->path, err) < 0 ||
         open_weights(dir, err) < 0 || open_dense_modules(dir, err) < 0 ||
         join_quantized(dir, err) < 0))
        return -1;
    if (open_tokenizer(dir, path, err) < 0 || open_templates(dir, err) < 0)
        return -1;
    snprintf(source->tokenizer_name, sizeof source->tokenizer_name, "%s", path);
    set_texts(source, dir);
    return set_lists(source, dir, err);
}

/* Endings of the files that are read; others, as a model that was converted into the folder, do not change it. */
static int is_read(const struct dirent *entry)
{
    static const char *const endings[] = {".json", ".jinja", ".model", ".txt", ".safetensors", ".bin"};
    bool read = false;
    for (size_t i = 0; i < ARRAY_LEN(endings); i++)
        read |= *entry->d_name != '.' && text_ends(entry->d_name, endings[i]);
    return read;
}

static void identify_files(const char *folder, struct hasher *hasher)
{
    char path[2 * PATH_SIZE];
    struct dirent **files = NULL;
    struct stat st;
    const int n = scandir(folder, &files, is_read, alphasort);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]->d_name);
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            hasher_add(hasher, files[i]->d_name, strlen(files[i]->d_name) + 1);
            hasher_add_attributes(hasher, &st);
        }
        free(files[i]);
    }
    free(files);
}

static int identify(const char *path, struct hasher *hasher, struct err *err)
{
    static const char *const inner[] = {"", template_folder, "1_Pooling", "2_Dense", "3_Dense"};
    char folder[PATH_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(inner); i++) {
        const int len = snprintf(folder, sizeof folder, "%s/%s", path, inner[i]);
        if (len < 0 || (size_t)len >= sizeof folder)
            return err_set(err, "folder name is longer than %d bytes", PATH_SIZE);
        identify_files(folder, hasher);
    }
    return 0;
}

static void close_folder(struct weight_source *source)
{
    AUTO(free_auto) struct hf_dir *dir = source->state;
    if (!dir)
        return;
    for (size_t i = 0; i < dir->n_shards; i++)
        tensor_file_release(&dir->shard[i]);
    free(dir->shard);
    free(dir->stale);
    quantized_release(dir->split);
    buf_release(&dir->made);
    buf_release(&dir->templates);
    for (int i = 0; i < FILES; i++)
        file_unmap(&dir->file[i]);
}

const struct weight_format hf_folder = {
    .kind = KIND_FOLDER,
    .open = open_folder,
    .identify = identify,
    .close = close_folder,
};
