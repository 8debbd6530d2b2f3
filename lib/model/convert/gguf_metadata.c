/* Hyperparameters: a GGUF key is read as members of config.json, of which lines of the family make a configuration.
 * A member with a mark for its value shows which line reads it; the value of that line's key is the one to write. */
#include "model/convert/gguf_metadata.h"

#include "base/mem.h"
#include "base/number.h"
#include "base/text_util.h"
#include "format/gguf/gguf_config.h"
#include "format/gguf/gguf_config_layers.h"
#include "format/gguf/gguf_source.h"
#include "model/family/family_words.h"

int gguf_metadata_family(struct family *family, const struct gguf_out *out, struct err *err)
{
    struct buf path = {0};
    int rc = buf_addf(&path, err, "%s/families/%s.family", out->models_dir, out->config->family);
    if (rc == 0)
        rc = family_open(family, out->models_dir, path.data, err);
    buf_release(&path);
    return rc;
}

const struct gguf_arch *gguf_metadata_arch(const struct family *family, size_t nth)
{
    const struct gguf_arch *arch, *last = NULL;
    for (size_t i = 0; i < family->conf.n_entries; i++) {
        const struct conf_entry *entry = &family->conf.entry[i];
        if (strcmp(entry->key, "architecture") != 0)
            continue;
        for (size_t n = 0; (arch = gguf_arch_of(entry->value, n)); last = arch, n++)
            if (arch != last && nth-- == 0)
                return arch;
    }
    return NULL;
}

/* ---- values of a configuration ---- */

static double number_of(const struct config *config, const char *key)
{
    struct buf text = {0};
    enum config_value kind;
    bool usual;
    struct err ignored;
    double number = 0;
    if (config_get(config, key, &text, &kind, &usual, &ignored) < 0 ||
        !parse_double(text.data, &number))
        number = 0;
    buf_release(&text);
    return number;
}

static bool word_is(const struct config *config, const char *key, const char *word)
{
    struct buf text = {0};
    enum config_value kind;
    bool usual;
    struct err ignored;
    const bool same =
        config_get(config, key, &text, &kind, &usual, &ignored) == 0 && strcmp(text.data, word) == 0;
    buf_release(&text);
    return same;
}

/* ---- keys that the table has ---- */

#define MARK      918273645
#define MARK_TEXT "918273645"

/* The configuration key that a line sets from members of `json` with the mark, or from a variable that is; *power: the
 * exponent that the variable has there. */
struct reading {
    char key[WORD_SIZE];
    double power;
};

/* Finds the variable or key that a line of the family reads from the marked members. */
static bool find_reader(const struct family *family, const json_t *json, const char *keyword,
                        char name[WORD_SIZE])
{
    char found[64];
    for (size_t i = family->n_lines; i > 0; i--) {
        const struct conf_entry *entry = family->line[i - 1].entry;
        struct words w;
        if (strcmp(entry->key, keyword) == 0 && words_split(&w, entry->value) && w.n >= 3 &&
            strcmp(w.word[1], "from") == 0 && !strstr(entry->value, " reading ") &&
            family_look_up(json, w.word[2], found, sizeof found) && strcmp(found, MARK_TEXT) == 0) {
            snprintf(name, WORD_SIZE, "%s", w.word[0]);
            return true;
        }
    }
    return false;
}

/* Finds a line "config KEY is @NAME" or "@NAME^POWER". */
static bool find_use(const struct family *family, const char *name, struct reading *reading)
{
    const size_t len = strlen(name);
    for (size_t i = 0; i < family->n_lines; i++) {
        const struct conf_entry *entry = family->line[i].entry;
        struct words w;
        if (strcmp(entry->key, "config") != 0 || !words_split(&w, entry->value) || w.n != 3 ||
            strcmp(w.word[1], "is") != 0 || *w.word[2] != '@' || strncmp(w.word[2] + 1, name, len) != 0)
            continue;
        const char *rest = w.word[2] + 1 + len;
        reading->power = 1;
        if (*rest && (*rest != '^' || !parse_double(rest + 1, &reading->power)))
            continue;
        snprintf(reading->key, sizeof reading->key, "%s", w.word[0]);
        return true;
    }
    return false;
}

/* Finds out which configuration key a GGUF key becomes: 1; 0: none. */
static int find_reading(struct reading *reading, const struct family *family, const char *members,
                        struct err *err)
{
    json_t *json = json_object(), *text = NULL;
    int rc =
        json ? gguf_config_put(json, members, json_integer(MARK), err) : err_no_memory(err, "metadata");
    if (rc == 0 && !(text = family_text_config(family, json, err)))
        rc = -1;
    if (rc == 0) {
        char name[WORD_SIZE];
        reading->power = 1;
        rc = find_reader(family, text, "config", reading->key) ||
             (find_reader(family, text, "let", name) && find_use(family, name, reading));
    }
    json_decref(text);
    json_decref(json);
    return rc;
}

static void put_typed(struct gguf_values *values, const char *key, enum config_value kind, double power,
                      const char *text)
{
    double number = 0;
    if (kind == CONFIG_WORD) {
        gguf_put_text(values, key, text, strlen(text));
        return;
    }
    if (kind == CONFIG_BOOL) {
        gguf_put_integer(values, key, GGUF_BOOL, *text == 't');
        return;
    }
    if (!parse_double(text, &number))
        return;
    if (kind == CONFIG_REAL)
        gguf_put_real(values, key, power == 1 ? number : pow(number, 1 / power));
    else
        gguf_put_integer(values, key, GGUF_U32, (int64_t)number);
}

/* Architectures with widths of MLPs, and numbers of KV heads, by layer. */
#define NEMOTRON "nemotron_h nemotron_h_moe"

/* Keys that put_special() writes, and that older files have in place of others. */
static bool is_special(const char *key, const struct config *config, const struct gguf_arch *arch)
{
    static const char special[] = "rope.dimension_count rope.scale_linear attention.head_count_kv "
                                  "attention.key_length attention.value_length_mla ssm.inner_size "
                                  "full_attention_interval";
    const bool scaling = strncmp(key, "rope.scaling", strlen("rope.scaling")) == 0;
    return text_lists(special, key, strlen(key)) ||
           (strcmp(key, "feed_forward_length") == 0 && gguf_arch_listed(arch, NEMOTRON)) ||
           (scaling &&
            (word_is(config, "rope_scaling", "none") || word_is(config, "rope_scaling", "llama3"))) ||
           (strcmp(key, "rope.scaling.original_context_length") == 0 &&
            word_is(config, "rope_scaling", "linear"));
}

/* Configuration keys of GGUF keys that the family does not read, or derives. */
static const struct {
    const char *gguf, *key;
} derived[] = {
    {"feed_forward_length", "ffn"},
    {"context_length", "context"},
    {"attention.head_count", "heads"},
    {"attention.layer_norm_epsilon", "norm_eps"},
    {"expert_feed_forward_length", "expert_ffn"},
    {"expert_shared_feed_forward_length", "shared_ffn"},
    {"ssm.conv_kernel", "conv_kernel"},
    {"ssm.group_count", "state_key_heads"},
    {"ssm.time_step_rank", "state_heads"},
    {"ssm.state_size", "state_key_dim"},
};

/* Finds the configuration key of a GGUF key by that table; false: there is none. */
static bool find_derived(struct reading *reading, const char *key, const struct config *config)
{
    for (size_t i = 0; i < ARRAY_LEN(derived); i++)
        if (strcmp(derived[i].gguf, key) == 0 &&
            (strcmp(derived[i].key, "norm_eps") != 0 || config->norm == NORM_LAYER)) {
            snprintf(reading->key, sizeof reading->key, "%s", derived[i].key);
            reading->power = 1;
            return true;
        }
    return false;
}

static int put_key(struct gguf_values *values, const struct gguf_out *out, const struct gguf_arch *arch,
                   const struct family *family, const char *key, const char *members, bool wanted,
                   struct err *err)
{
    struct reading reading;
    char name[128];
    struct buf text = {0};
    enum config_value kind;
    bool usual;
    if (is_special(key, out->config, arch))
        return 0;
    const int found = find_reading(&reading, family, members, err);
    if (found <= 0 && (found < 0 || !find_derived(&reading, key, out->config)))
        return found;
    if (config_get(out->config, reading.key, &text, &kind, &usual, err) < 0)
        return -1;
    snprintf(name, sizeof name, "%s.%s", arch->name, key);
    if (wanted || !usual)
        put_typed(values, name, kind, reading.power, text.data);
    buf_release(&text);
    return 0;
}

/* ---- others ---- */

static void put_number(struct gguf_values *values, const struct gguf_arch *arch, const char *key,
                       size_t number)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", arch->name, key);
    gguf_put_integer(values, name, GGUF_U32, (int64_t)number);
}

/* Numbers of KV heads, by layer where layers of some have none. */
static void put_kv_heads(struct gguf_values *values, const struct config *config,
                         const struct gguf_arch *arch)
{
    static const char by_layer[] = "lfm2 lfm2moe granitehybrid " NEMOTRON;
    char name[128];
    snprintf(name, sizeof name, "%s.attention.head_count_kv", arch->name);
    if (!gguf_arch_listed(arch, by_layer)) {
        gguf_put_integer(values, name, GGUF_U32,
                         config->latent->kv_rank ? 1 : (int64_t)config->kv_heads);
        return;
    }
    gguf_put_array(values, name, GGUF_I32, config->layers);
    for (size_t i = 0; i < config->layers; i++)
        gguf_add_integer(values, GGUF_I32, config->plan[i].attends ? (int64_t)config->kv_heads : 0);
}

/* Widths of MLPs, or of experts, by layer. */
static void put_widths(struct gguf_values *values, const struct config *config,
                       const struct gguf_arch *arch)
{
    char name[128];
    snprintf(name, sizeof name, "%s.feed_forward_length", arch->name);
    gguf_put_array(values, name, GGUF_I32, config->layers);
    for (size_t i = 0; i < config->layers; i++)
        gguf_add_integer(values, GGUF_I32,
                         config->plan[i].has_experts ? (int64_t)config->moe->ffn
                         : config->plan[i].has_mlp   ? (int64_t)config->plan[i].ffn
                                                     : 0);
}

/* The layers with sliding windows, where the architecture does not imply them. */
static void put_windows(struct gguf_values *values, const struct config *config,
                        const struct gguf_arch *arch)
{
    size_t sliding = 0;
    char name[128];
    for (size_t i = 0; i < config->layers; i++)
        sliding += config->plan[i].kind == LAYER_SLIDING;
    if (!sliding || (word_is(config, "layer_types", "none") && !gguf_arch_listed(arch, "exaone4")))
        return;
    snprintf(name, sizeof name, "%s.attention.sliding_window_pattern", arch->name);
    gguf_put_array(values, name, GGUF_BOOL, config->layers);
    for (size_t i = 0; i < config->layers; i++)
        gguf_add_integer(values, GGUF_BOOL, config->plan[i].kind == LAYER_SLIDING);
}

/* Sizes of heads; in latent attention, of the latents, which all heads share, and of the heads. */
static void put_heads(struct gguf_values *values, const struct config *config,
                      const struct gguf_arch *arch)
{
    const struct latent_plan *latent = config->latent;
    const size_t rope = config_rope_dim(config);
    if (!config->heads)
        return;
    put_number(values, arch, "attention.key_length",
               latent->kv_rank ? latent->kv_rank + rope : config->head_dim);
    put_number(values, arch, "attention.value_length",
               latent->kv_rank ? latent->kv_rank : config->head_dim);
    if (latent->kv_rank) {
        put_number(values, arch, "attention.key_length_mla", latent->nope_dim + rope);
        put_number(values, arch, "attention.value_length_mla", latent->v_dim);
    }
    if (config->position == POSITION_ROPE)
        put_number(values, arch, "rope.dimension_count", rope);
    put_kv_heads(values, config, arch);
}

static size_t first_attending(const struct config *config)
{
    size_t layer = 0;
    while (layer + 1 < config->layers && !config->plan[layer].attends)
        layer++;
    return layer;
}

/* Keys that follow from several values, or whose values GGUF spells otherwise. */
static void put_special(struct gguf_values *values, const struct config *config,
                        const struct gguf_arch *arch)
{
    enum { SIGMOID = 2 };
    static const double alibi = 8;          /* the largest exponent of slopes */
    static const double latent_share = 0.1; /* of the factor, in files of latent attention */
    const struct recurrent_plan *state = config->recurrent;
    char name[128];
    put_heads(values, config, arch);
    put_windows(values, config, arch);
    if (gguf_arch_listed(arch, NEMOTRON))
        put_widths(values, config, arch);
    if (state->heads)
        put_number(values, arch, "ssm.inner_size", config_state_values(config));
    if (gguf_arch_listed(arch, "qwen3next qwen35 qwen35moe"))
        put_number(values, arch, "full_attention_interval", first_attending(config) + 1);
    if (gguf_arch_listed(arch, "glm4moe lfm2moe deepseek2") &&
        (word_is(config, "router", "sigmoid") || word_is(config, "router", "topk_sigmoid")))
        put_number(values, arch, "expert_gating_func", SIGMOID);
    if (gguf_arch_listed(arch, "nemotron_h_moe") && config->moe->shared_ffn)
        put_number(values, arch, "expert_shared_count", 1);
    if (gguf_arch_listed(arch, "glm4moe ernie4_5-moe deepseek2") && config->moe->shared_ffn &&
        config->moe->ffn)
        put_number(values, arch, "expert_shared_count", config->moe->shared_ffn / config->moe->ffn);
    snprintf(name, sizeof name, "%s.rope.scaling.yarn_log_multiplier", arch->name);
    if (number_of(config, "rope_mscale_all") != 0)
        gguf_put_real(values, name,
                      number_of(config, "rope_mscale_all") *
                          (gguf_arch_listed(arch, "deepseek2") ? latent_share : 1));
    snprintf(name, sizeof name, "%s.rope.scaling.finetuned", arch->name);
    if (gguf_arch_listed(arch, "granitehybrid"))
        gguf_put_integer(values, name, GGUF_BOOL,
                         config->plan[first_attending(config)].rope != LAYER_NOPE);
    snprintf(name, sizeof name, "%s.use_parallel_residual", arch->name);
    if (gguf_arch_listed(arch, "gptneox stablelm"))
        gguf_put_integer(values, name, GGUF_BOOL, config->block != BLOCK_SEQUENTIAL);
    snprintf(name, sizeof name, "%s.attention.max_alibi_bias", arch->name);
    if (config->position == POSITION_ALIBI)
        gguf_put_real(values, name, alibi);
}

/* "model" for "folder/model.bmc". */
static void put_name(struct gguf_values *values, const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t begin = len;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    const char *name = path + begin, *dot = memrchr(name, '.', len - begin);
    const bool ends = dot && dot > name && len - begin - (size_t)(dot - name) <= 5;
    gguf_put_text(values, "general.name", name, ends ? (size_t)(dot - name) : len - begin);
}

int gguf_metadata(struct gguf_values *values, const struct gguf_out *out, const struct gguf_arch *arch,
                  const struct family *family, bool all, struct err *err)
{
    const char *key, *members;
    bool needed;
    gguf_put_text(values, "general.architecture", arch->name, strlen(arch->name));
    gguf_put_text(values, "general.type", "model", strlen("model"));
    put_name(values, out->name);
    for (size_t i = 0; gguf_config_key(arch, i, &key, &members, &needed); i++)
        if (put_key(values, out, arch, family, key, members, all || needed, err) < 0)
            return -1;
    put_special(values, out->config, arch);
    return values->failed ? -1 : gguf_vocabulary(values, out, err);
}

/* ---- vectors ---- */

static int add_llama3(struct gguf_tensors *tensors, const struct config *config, struct err *err)
{
    const size_t pairs = config_rope_dim(config) / 2, original = config->rope->original;
    const double theta = number_of(config, "rope_theta"), factor = number_of(config, "rope_factor"),
                 high = number_of(config, "rope_high");
    float *divisor = mem_alloc(pairs, sizeof *divisor);
    if (!divisor)
        return err_no_memory(err, "factors of rotary frequencies");
    for (size_t i = 0; i < pairs; i++)
        divisor[i] = (float)gguf_llama3_divisor(theta, factor, high, original, i, pairs);
    return gguf_tensors_add_vector(tensors, "rope_freqs.weight", divisor, pairs, err);
}

static int add_list(struct gguf_tensors *tensors, const struct config *config, const char *key,
                    const char *name, struct err *err)
{
    struct buf text = {0};
    enum config_value kind;
    bool usual;
    size_t n = 0;
    if (config_get(config, key, &text, &kind, &usual, err) < 0)
        return -1;
    float *factor = mem_alloc(text.len + 1, sizeof *factor);
    int rc = factor ? 0 : err_no_memory(err, "factors of rotary frequencies");
    for (char *rest = text.data, *word; rc == 0 && !usual && (word = strsep(&rest, " "));) {
        double number;
        if (parse_double(word, &number))
            factor[n++] = (float)number;
    }
    buf_release(&text);
    if (rc == 0 && n)
        return gguf_tensors_add_vector(tensors, name, factor, n, err);
    free(factor);
    return rc;
}

int gguf_metadata_vectors(struct gguf_tensors *tensors, const struct gguf_out *out, struct err *err)
{
    const struct config *config = out->config;
    if (word_is(config, "rope_scaling", "llama3"))
        return add_llama3(tensors, config, err);
    return add_list(tensors, config, "rope_short", "rope_factors_short.weight", err) < 0
               ? -1
               : add_list(tensors, config, "rope_long", "rope_factors_long.weight", err);
}
