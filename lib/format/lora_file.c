/* Reads LoRA adapters: which tensors are A and B of which layer, and with which scale. */
#include "format/lora_file.h"

#include "base/mem.h"
#include "base/text_util.h"

/* ---- reads PEFT's adapter_config.json ---- */

struct lora_config {
    json_t *root;
    size_t rank; /* of layers that rank_pattern does not list */
    double alpha;
    const char *base_class; /* the architecture of its model, borrowed from `root`; NULL: unknown */
    bool rslora;            /* the scale is alpha / sqrt(rank), else alpha / rank */
    bool ranks;             /* rank_pattern lists others */
    const json_t *alphas;   /* alpha_pattern: an object */
};

/* Members that must be absent, null, false or empty, and what they ask for. */
static const struct {
    const char *key, *description;
} refused[] = {
    {"use_dora", "weight decomposition (DoRA)"},
    {"modules_to_save", "whole modules beside the adapter"},
    {"lora_bias", "biases of the adapter"},
    {"trainable_token_indices", "retrained embeddings of tokens"},
    {"layer_replication", "repeated layers"},
    {"target_parameters", "adapters of bare parameters, such as those of experts"},
    {"alora_invocation_tokens", "activation by tokens (aLoRA)"},
    {"use_qalora", "group-wise pooling (QALoRA)"},
    {"use_bdlora", "block-diagonal matrices (BD-LoRA)"},
    {"arrow_config", "routing between adapters (Arrow)"},
    {"kasa_config", "KaSA"},
    {"monteclora_config", "MonteCLoRA"},
};

static bool is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int check_features(const json_t *root, const char *name, struct err *err)
{
    const json_t *type = json_object_get(root, "peft_type"), *bias = json_object_get(root, "bias");
    const char *found = json_is_string(type) ? json_string_value(type) : json_type_name(type);
    if (!json_is_string(type) || strcmp(found, "LORA") != 0)
        return err_set(err, "%s: peft_type is %s, only LORA is supported", name,
                       excerpt_of(found, strlen(found)).text);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        if (!is_off(json_object_get(root, refused[i].key)))
            return err_set(err,
                           "%s: \"%s\" asks for %s, which is not supported; merge the adapter into the "
                           "model (merge_and_unload) before bmc-convert",
                           name, refused[i].key, refused[i].description);
    if (!is_off(bias) && !(json_is_string(bias) && strcmp(json_string_value(bias), "none") == 0))
        return err_set(err,
                       "%s: \"bias\" is not \"none\": retrained biases are not supported; merge the "
                       "adapter into the model (merge_and_unload) before bmc-convert",
                       name);
    return 0;
}

/* Initial values that change the model's weights, too, so that the adapter goes with the changed ones. */
static int check_initial(const json_t *root, const char *name, struct err *err)
{
    static const char *const changing[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    const char *how = json_string_value(json_object_get(root, "init_lora_weights"));
    for (size_t i = 0; how && i < ARRAY_LEN(changing); i++)
        if (strncmp(how, changing[i], strlen(changing[i])) == 0)
            return err_set(err,
                           "%s: init_lora_weights \"%s\" changes the model's weights, which is not "
                           "supported; save the adapter as a plain one "
                           "(path_initial_model_for_weight_conversion)",
                           name, excerpt_of(how, strlen(how)).text);
    return 0;
}

/* Patterns are regular expressions; names of modules are, too, and all that is supported. */
static int check_patterns(const json_t *patterns, const char *name, struct err *err)
{
    const char *key;
    json_t *value;
    if (patterns && !json_is_null(patterns) && !json_is_object(patterns))
        return err_set(err, "%s: \"alpha_pattern\" is %s, an object is expected", name,
                       json_type_name(patterns));
    json_object_foreach((json_t *)(uintptr_t)patterns, key, value)
    {
        if (strpbrk(key, "*+?[](){}|\\$") || strchr(key + (*key == '^'), '^'))
            return err_set(err,
                           "%s: \"alpha_pattern\" has the regular expression \"%s\", only names of "
                           "modules are supported",
                           name, excerpt_of(key, strlen(key)).text);
        if (!json_is_number(value) || !isfinite(json_number_value(value)))
            return err_set(err, "%s: \"alpha_pattern\": \"%s\" is %s, a number is expected", name,
                           excerpt_of(key, strlen(key)).text, json_type_name(value));
    }
    return 0;
}

static int read_members(struct lora_config *c, const char *name, struct err *err)
{
    const json_t *r = json_object_get(c->root, "r"), *alpha = json_object_get(c->root, "lora_alpha");
    if (check_features(c->root, name, err) < 0 || check_initial(c->root, name, err) < 0)
        return -1;
    if (!json_is_integer(r) || json_integer_value(r) < 1)
        return err_set(err, "%s: \"r\" must be a rank of at least 1", name);
    if (!json_is_number(alpha) || !isfinite(json_number_value(alpha)))
        return err_set(err, "%s: \"lora_alpha\" is %s, a number is expected", name,
                       json_type_name(alpha));
    c->rank = (size_t)json_integer_value(r);
    c->alpha = json_number_value(alpha);
    c->base_class = json_string_value(json_at(c->root, "auto_mapping.base_model_class"));
    c->rslora = json_is_true(json_object_get(c->root, "use_rslora"));
    c->ranks = !is_off(json_object_get(c->root, "rank_pattern"));
    c->alphas = json_object_get(c->root, "alpha_pattern");
    return check_patterns(c->alphas, name, err);
}

static void lora_config_release(struct lora_config *config)
{
    json_decref(config->root);
    *config = (struct lora_config){0};
}

/* Parses `size` bytes of a configuration called `name`; the caller releases it. */
static int lora_config_parse(struct lora_config *config, const char *text, size_t size,
                             const char *name, struct err *err)
{
    *config = (struct lora_config){0};
    if (json_parse_unique(text, size, name, &config->root, err) < 0)
        return -1;
    const int rc = json_is_object(config->root) ? read_members(config, name, err)
                                                : err_set(err, "%s: is %s, an object is expected", name,
                                                          json_type_name(config->root));
    if (rc < 0)
        lora_config_release(config);
    return rc;
}

/* True if a pattern names the module: all of its name, or, unless it begins with ^, whole parts at its
 * end. */
static bool pattern_names(const char *pattern, const char *module)
{
    const bool anchored = *pattern == '^';
    const size_t len = strlen(pattern + anchored), all = strlen(module);
    if (len > all || memcmp(module + all - len, pattern + anchored, len) != 0)
        return false;
    return len == all || (!anchored && module[all - len - 1] == '.');
}

/* The scale of a layer whose adapter has this rank. */
static double lora_config_scale(const struct lora_config *config, const char *module, size_t rank)
{
    double alpha = config->alpha;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config->alphas, key, value)
    {
        if (!pattern_names(key, module))
            continue;
        alpha = json_number_value(value);
        break;
    }
    return alpha / (config->rslora ? sqrt((double)rank) : (double)rank);
}

#define CONFIG_FILE  "adapter_config.json"
#define WEIGHTS_FILE "adapter_model.safetensors"
#define PICKLE_FILE  "adapter_model.bin"

enum { PATH_SIZE = 4096 + 64 };

/* A tensor as one half of a module. */
struct half {
    char *module;
    bool b;
    const struct source_tensor *tensor;
};

static struct excerpt name_of(const struct source_tensor *tensor)
{
    return excerpt_of(tensor->name, strlen(tensor->name));
}

/* ---- names ---- */

/* Splits "PREFIX.MODULE.lora_A.weight" or "..lora_A.ADAPTER.weight"; returns the length of MODULE, which
 * begins at *begin, or 0. */
static size_t split_peft(const char *name, const char **begin, bool *b)
{
    static const char prefix[] = "base_model.model.";
    const char *at = strstr(name, ".lora_A."), *end = at ? at : strstr(name, ".lora_B.");
    if (!end)
        return 0;
    const char *rest = end + strlen(".lora_A.");
    const char *dot = strchr(rest, '.');
    if (strcmp(rest, "weight") != 0 && !(dot && dot > rest && strcmp(dot, ".weight") == 0))
        return 0;
    *b = !at;
    *begin = strncmp(name, prefix, strlen(prefix)) == 0 ? name + strlen(prefix) : name;
    return end > *begin ? (size_t)(end - *begin) : 0;
}

/* Splits "MODULE.weight.lora_a". */
static size_t split_gguf(const char *name, const char **begin, bool *b)
{
    *begin = name;
    *b = text_ends(name, ".weight.lora_b");
    return *b || text_ends(name, ".weight.lora_a") ? strlen(name) - strlen(".weight.lora_a") : 0;
}

/* Parts of names of tensors that other kinds of adapters have. */
static const struct {
    const char *part, *description;
} others[] = {
    {"lora_magnitude_vector", "of weight decomposition (DoRA)"},
    {"lora_embedding_", "an adapter of an embedding"},
    {"token_embd.", "an adapter of an embedding"},
    {"modules_to_save", "a whole module beside the adapter"},
    {".bias", "a bias"},
    {".base_layer.", "of the base model"},
};

static int refuse_tensor(const struct source_tensor *tensor, const char *path, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (strstr(tensor->name, others[i].part))
            return err_set(err, "%s: tensor \"%s\" is %s, which is not supported", path,
                           name_of(tensor).text, others[i].description);
    return err_set(err, "%s: tensor \"%s\" is not one of a LoRA adapter", path, name_of(tensor).text);
}

/* ---- pairs ---- */

static int by_module(const void *a, const void *b)
{
    const struct half *x = a, *y = b;
    const int order = strcmp(x->module, y->module);
    return order ? order : x->b - y->b;
}

/* Collects the tensors as halves of modules, sorted. */
static int list_halves(struct half **halves, const struct lora_file *file,
                       const struct source_tensor *tensor, size_t n, const char *path, struct err *err)
{
    struct half *half = *halves = mem_zalloc(n + 1, sizeof *half);
    if (!half)
        return err_no_memory(err, "%s: %zu tensors", path, n);
    for (size_t i = 0; i < n; i++) {
        const char *begin = NULL;
        const char *name = tensor[i].name;
        const size_t len =
            file->arch ? split_gguf(name, &begin, &half[i].b) : split_peft(name, &begin, &half[i].b);
        if (!len || (file->arch && strncmp(name, "token_embd.", 11) == 0))
            return refuse_tensor(&tensor[i], path, err);
        half[i].tensor = &tensor[i];
        if (!(half[i].module = strndup(begin, len)))
            return err_no_memory(err, "%s: %zu tensors", path, n);
    }
    qsort(half, n, sizeof *half, by_module);
    return 0;
}

static int add_module(struct lora_file *file, struct half *half, size_t left, const char *path,
                      struct err *err)
{
    if (left < 2 || strcmp(half[0].module, half[1].module) != 0 || half[0].b || !half[1].b)
        return err_set(err, "%s: tensor \"%s\" must be one of a pair A and B", path,
                       name_of(half->tensor).text);
    if (left > 2 && strcmp(half[0].module, half[2].module) == 0)
        return err_set(err, "%s: \"%s\" has several adapters: save one of them only", path,
                       excerpt_of(half->module, strlen(half->module)).text);
    const struct source_tensor *a = half[0].tensor, *b = half[1].tensor;
    if (a->n_dims != 2 || b->n_dims != 2 || !a->dim[0] || !a->dim[1] || !b->dim[0] ||
        a->dim[0] != b->dim[1])
        return err_set(err,
                       "%s: \"%s\" and \"%s\" must be matrices [rank][inputs] and [outputs][rank] of "
                       "the same rank",
                       path, name_of(a).text, name_of(b).text);
    file->module[file->n_modules++] =
        (struct lora_module){.name = half->module, .a = a, .b = b, .rank = a->dim[0]};
    half->module = NULL; /* moved */
    return 0;
}

static int pair_tensors(struct lora_file *file, const struct source_tensor *tensor, size_t n,
                        const char *path, struct err *err)
{
    AUTO(free_auto) struct half *half = NULL;
    file->module = mem_zalloc(n / 2 + 1, sizeof *file->module);
    int rc = file->module ? list_halves(&half, file, tensor, n, path, err)
                          : err_no_memory(err, "%s: %zu tensors", path, n);
    if (rc == 0 && n == 0)
        rc = err_set(err, "%s: the adapter has no tensors", path);
    for (size_t i = 0; i < n && rc == 0; i += 2)
        rc = add_module(file, half + i, n - i, path, err);
    for (size_t i = 0; half && i < n; i++)
        free(half[i].module);
    return rc;
}

static int check_scale(const struct lora_module *module, const char *path, struct err *err)
{
    return isfinite((float)module->scale)
               ? 0
               : err_set(err, "%s: the scale of \"%s\" is not finite", path,
                         excerpt_of(module->name, strlen(module->name)).text);
}

/* ---- PEFT ---- */

static int set_scales(struct lora_file *file, const struct lora_config *config, const char *path,
                      struct err *err)
{
    for (struct lora_module *m = file->module; m < file->module + file->n_modules; m++) {
        if (!config->ranks && m->rank != config->rank)
            return err_set(err, "%s: \"%s\" has rank %zu, %s says %zu", path,
                           excerpt_of(m->name, strlen(m->name)).text, m->rank, CONFIG_FILE,
                           config->rank);
        m->scale = lora_config_scale(config, m->name, m->rank);
        if (check_scale(m, path, err) < 0)
            return -1;
    }
    return 0;
}

int lora_parse_peft(struct lora_file *file, const void *data, size_t size, const char *config,
                    size_t config_size, const char *name, struct err *err)
{
    struct lora_config settings;
    struct hasher hasher;
    char config_name[PATH_SIZE + 32];
    *file = (struct lora_file){0};
    snprintf(config_name, sizeof config_name, "%s: %s", name, CONFIG_FILE);
    if (lora_config_parse(&settings, config, config_size, config_name, err) < 0)
        return -1;
    int rc = safetensors_parse(&file->weights, data, size, name, err);
    if (rc == 0)
        rc = pair_tensors(file, file->weights.tensor, file->weights.n_tensors, name, err);
    if (rc == 0)
        rc = set_scales(file, &settings, name, err);
    if (rc == 0 && settings.base_class && !(file->base_class = strdup(settings.base_class)))
        rc = err_no_memory(err, "%s: an adapter", name);
    hasher_init(&hasher);
    hasher_add(&hasher, config, config_size);
    hasher_add(&hasher, data, size);
    file->hash = hasher_result(&hasher);
    lora_config_release(&settings);
    if (rc < 0)
        lora_file_release(file);
    return rc;
}

/* ---- GGUF ---- */

static bool has_text(const struct gguf *gguf, const char *key, const char *text)
{
    const struct gguf_value *value = gguf_value(gguf, key);
    struct gguf_element found = gguf_elements(value);
    return gguf_is_text(value) && gguf_next(&found) && found.len == strlen(text) &&
           memcmp(found.text, text, found.len) == 0;
}

static int read_gguf(struct lora_file *file, const char *path, struct err *err)
{
    struct gguf *gguf = &file->gguf;
    struct gguf_set set = {gguf, 1};
    const struct gguf_value *alpha = gguf_value(gguf, "adapter.lora.alpha");
    struct gguf_element number = gguf_elements(alpha);
    if (!has_text(gguf, "general.type", "adapter"))
        return err_set(err, "%s: is a model, an adapter is expected (general.type \"adapter\")", path);
    if (!has_text(gguf, "adapter.type", "lora"))
        return err_set(err, "%s: adapter.type is not \"lora\": only LoRA adapters are supported", path);
    if (gguf_value(gguf, "adapter.alora.invocation_tokens"))
        return err_set(err, "%s: is activated by tokens (aLoRA), which is not supported", path);
    if (!gguf_is_number(alpha) || alpha->is_array || !gguf_next(&number) || !isfinite(number.real))
        return err_set(err, "%s: adapter.lora.alpha is missing, or no number", path);
    if (gguf_arch_find(&file->arch, &set, path, err) < 0 ||
        pair_tensors(file, gguf->tensor, gguf->n_tensors, path, err) < 0)
        return -1;
    for (struct lora_module *m = file->module; m < file->module + file->n_modules; m++) {
        /* as llama.cpp has it, 0 stands for no scale */
        m->scale = number.real != 0 ? number.real / (double)m->rank : 1;
        if (check_scale(m, path, err) < 0)
            return -1;
    }
    return 0;
}

int lora_parse_gguf(struct lora_file *file, const void *data, size_t size, const char *name,
                    struct err *err)
{
    *file = (struct lora_file){0};
    if (gguf_parse(&file->gguf, data, size, name, true, err) < 0)
        return -1;
    file->hash = hash_of(data, size);
    const int rc = read_gguf(file, name, err);
    if (rc < 0)
        lora_file_release(file);
    return rc;
}

/* ---- files ---- */

/* Sets the paths of a PEFT adapter's files, of which `path` is the folder or the weights. */
static int find_files(const char *path, char weights[PATH_SIZE], char config[PATH_SIZE],
                      struct err *err)
{
    const char *slash = strrchr(path, '/');
    const bool folder = file_is_folder(path);
    const int len = folder ? (int)strlen(path) : slash ? (int)(slash - path) : 0;
    const char *join = len || folder ? "/" : slash ? "/" : "";
    if (strlen(path) >= PATH_SIZE - sizeof WEIGHTS_FILE - 1)
        return err_set(err, "%.64s..: the name is too long", path);
    snprintf(config, PATH_SIZE, "%.*s%s%s", len, path, join, CONFIG_FILE);
    snprintf(weights, PATH_SIZE, "%.*s%s%s", len, path, join, folder ? WEIGHTS_FILE : "");
    if (!folder)
        snprintf(weights, PATH_SIZE, "%s", path);
    if (!file_exists(config))
        return err_set(err,
                       "%s: is no adapter: %s is missing; a PEFT folder or a GGUF adapter is expected",
                       path, CONFIG_FILE);
    if (folder && !file_exists(weights))
        return err_set(err, "%s: %s is missing%s", path, WEIGHTS_FILE,
                       ": save the adapter as safetensors, " PICKLE_FILE " is not read");
    return 0;
}

static int open_peft(struct lora_file *file, const char *path, struct err *err)
{
    char weights[PATH_SIZE], config[PATH_SIZE];
    struct file_map settings = {0}, map = {0};
    if (find_files(path, weights, config, err) < 0 || file_map(&settings, config, err) < 0)
        return -1;
    int rc = file_map(&map, weights, err);
    if (rc == 0)
        rc = lora_parse_peft(file, map.data, map.size, (const char *)settings.data, settings.size, path,
                             err);
    if (rc == 0)
        file->weights.map = map;
    else
        file_unmap(&map);
    file_unmap(&settings);
    return rc;
}

static int open_gguf(struct lora_file *file, const char *path, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    const int rc = lora_parse_gguf(file, map.data, map.size, path, err);
    if (rc == 0)
        file->gguf.map = map;
    else
        file_unmap(&map);
    return rc;
}

int lora_file_open(struct lora_file *file, const char *path, struct err *err)
{
    *file = (struct lora_file){0};
    if (!file_exists(path))
        return detect_hub_name(path, "adapter", "give the folder to --lora", err) < 0
                   ? -1
                   : err_set(err, "%s: there is no such file or folder", path);
    return file_detect(path) == KIND_GGUF ? open_gguf(file, path, err) : open_peft(file, path, err);
}

void lora_file_release(struct lora_file *file)
{
    for (size_t i = 0; i < file->n_modules; i++)
        free(file->module[i].name);
    free(file->module);
    free(file->base_class);
    tensor_file_release(&file->weights);
    gguf_release(&file->gguf);
    *file = (struct lora_file){0};
}
