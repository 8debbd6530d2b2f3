/* Reads PEFT's adapter_config.json. */
#include "format/lora/lora_config.h"

#include <math.h>
#include <string.h>

#include "base/text_util.h"

/* Members that must be absent, null, false or empty, and what they ask for. */
static const struct {
    const char *key, *what;
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
                           name, refused[i].key, refused[i].what);
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

int lora_config_parse(struct lora_config *config, const char *text, size_t size, const char *name,
                      struct err *err)
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

void lora_config_release(struct lora_config *config)
{
    json_decref(config->root);
    *config = (struct lora_config){0};
}

/* True if a pattern names the module: all of its name, or, unless it begins with ^, whole parts at its
 * end. */
static bool names(const char *pattern, const char *module)
{
    const bool anchored = *pattern == '^';
    const size_t len = strlen(pattern + anchored), all = strlen(module);
    if (len > all || memcmp(module + all - len, pattern + anchored, len) != 0)
        return false;
    return len == all || (!anchored && module[all - len - 1] == '.');
}

double lora_config_scale(const struct lora_config *config, const char *module, size_t rank)
{
    double alpha = config->alpha;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config->alphas, key, value)
    {
        if (!names(key, module))
            continue;
        alpha = json_number_value(value);
        break;
    }
    return alpha / (config->rslora ? sqrt((double)rank) : (double)rank);
}
