/* Architectures whose files have values per layer, or as a tensor, that config.json has as single members, or as lists of its own:
 * Gemma 4, Gemma 3n and Step 3.5. */
#include "format/gguf/gguf_config_layers.h"

#include "base/repro_math.h"
#include "format/gguf/gguf.h"

/* ---- values ---- */

/* Sets the member at path "a" or "a.b" of a JSON object, creating "a" if needed. */
static int put_at(json_t *object, const char *path, size_t len, json_t *value, struct err *err)
{
    char key[64];
    const char *dot = memchr(path, '.', len);
    if (dot) {
        snprintf(key, sizeof key, "%.*s", (int)(dot - path), path);
        if (!json_object_get(object, key) && json_put(object, key, json_object(), err) < 0) {
            json_decref(value);
            return -1;
        }
        object = json_object_get(object, key);
        len -= (size_t)(dot + 1 - path);
        path = dot + 1;
    }
    snprintf(key, sizeof key, "%.*s", (int)len, path);
    return json_put(object, key, value, err);
}

/* Sets `value` at each of the comma-separated paths of a JSON object. */
int gguf_config_put(json_t *object, const char *paths, json_t *value, struct err *err)
{
    int rc = value ? 0 : err_no_memory(err, "\"%s\"", paths);
    while (rc == 0 && *paths) {
        const size_t len = strcspn(paths, ",");
        rc = put_at(object, paths, len, json_incref(value), err);
        paths += len + (paths[len] == ',');
    }
    json_decref(value);
    return rc;
}

int64_t gguf_config_integer(const struct config_job *job, const char *key, int64_t fallback)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(job->arch, job->set, key));
    return e.of && gguf_is_number(e.of) && gguf_next(&e) ? e.integer : fallback;
}

int64_t gguf_head_dim(const struct config_job *job)
{
    const int64_t width = gguf_config_integer(job, "embedding_length", 0),
                  heads = gguf_config_integer(job, "attention.head_count", 0);
    return gguf_config_integer(job, "attention.key_length", heads > 0 ? width / heads : 0);
}

/* Takes the number of layers from layer_types, which has as many entries as block_count. */
static int count_layers(struct config_job *job, struct err *err)
{
    job->layers = json_array_size(json_object_get(job->config, "layer_types"));
    if (!job->layers)
        return err_set(err, "%s: %s.attention.sliding_window_pattern is no list of booleans", job->path,
                       job->arch->name);
    return job->layers <= SOURCE_MAX_LAYERS
               ? 0
               : err_set(err, "%s: %s.block_count is %zu, more than %d layers", job->path,
                         job->arch->name, job->layers, SOURCE_MAX_LAYERS);
}

/* ---- Gemma 4 ---- */

/* Fails unless a key is missing, a number, or a list of as many numbers as layers. */
static int check_list(const struct config_job *job, const char *key, struct err *err)
{
    const struct gguf_value *value = gguf_arch_value(job->arch, job->set, key);
    const size_t all = job->layers + (size_t)gguf_config_integer(job, "nextn_predict_layers", 0);
    if (!value || (gguf_is_number(value) &&
                   (!value->is_array || value->count == job->layers || value->count == all)))
        return 0;
    if (!gguf_is_number(value))
        return err_set(err, "%s: %s.%s is no list of numbers", job->path, job->arch->name, key);
    return err_set(err, "%s: %s.%s has %zu entries for %zu layers", job->path, job->arch->name, key,
                   value->count, job->layers);
}

/* The value of a key for a layer: an entry of its list, or the number that holds for all; -1: no such key. */
static int64_t of_layer(const struct config_job *job, const char *key, size_t layer)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(job->arch, job->set, key));
    size_t left = e.of && e.of->is_array ? layer + 1 : 1;
    bool found = e.of && gguf_is_number(e.of);
    while (found && left-- > 0)
        found = gguf_next(&e);
    return found ? e.integer : -1;
}

static bool has_in_layer(const struct config_job *job, const char *tensor, size_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, tensor);
    return gguf_set_find(job->set, name) != NULL;
}

static int put_integer(const struct config_job *job, const char *key, int64_t value, struct err *err)
{
    return json_put(job->config, key, json_integer(value), err);
}

static bool is_sliding(const struct config_job *job, size_t layer)
{
    const json_t *kinds = json_object_get(job->config, "layer_types");
    const char *kind = json_string_value(json_array_get(kinds, layer));
    return kind && strcmp(kind, "sliding_attention") == 0;
}

/* Sets members to the value that layers of each kind have; those of a kind must agree. */
static int put_by_kind(const struct config_job *job, const char *key, const char *sliding,
                       const char *full, struct err *err)
{
    int64_t found[2];
    bool seen[2] = {false, false};
    if (check_list(job, key, err) < 0)
        return -1;
    if (!gguf_arch_value(job->arch, job->set, key))
        return 0;
    for (size_t layer = 0; layer < job->layers; layer++) {
        const bool kind = is_sliding(job, layer);
        const int64_t value = of_layer(job, key, layer);
        if (seen[kind] && value != found[kind])
            return err_set(
                err, "%s: %s.%s is %lld for layer %zu, and %lld for another layer with %s attention",
                job->path, job->arch->name, key, (long long)value, layer, (long long)found[kind],
                kind ? "sliding" : "full");
        found[kind] = value;
        seen[kind] = true;
    }
    if (seen[1] && put_integer(job, sliding, found[1], err) < 0)
        return -1;
    return seen[0] ? put_integer(job, seen[1] ? full : sliding, found[0], err) : 0;
}

/* Sizes of heads; layers without a projection of values have keys in their place. */
static int put_heads(const struct config_job *job, struct err *err)
{
    const int64_t full = gguf_config_integer(job, "attention.key_length", -1),
                  sliding = gguf_config_integer(job, "attention.key_length_swa", full);
    const size_t shared = (size_t)gguf_config_integer(job, "attention.shared_kv_layers", 0);
    bool v_is_k = false;
    for (size_t layer = 0; layer + shared < job->layers; layer++)
        v_is_k |= !is_sliding(job, layer) && !has_in_layer(job, "attn_v", layer);
    if (gguf_config_integer(job, "attention.value_length_swa", sliding) != sliding)
        return err_set(
            err,
            "%s: %s.attention.key_length_swa and value_length_swa differ: different head sizes "
            "are not supported",
            job->path, job->arch->name);
    if (put_by_kind(job, "attention.head_count_kv", "num_key_value_heads", "num_global_key_value_heads",
                    err) < 0 ||
        json_put(job->config, "attention_k_eq_v", json_boolean(v_is_k), err) < 0 ||
        put_integer(job, "global_head_dim", full, err) < 0)
        return -1;
    return put_integer(job, "head_dim", sliding, err);
}

/* Widths of MLPs: one, or twice as much in the layers that share keys and values. */
static int put_widths(const struct config_job *job, struct err *err)
{
    static const char key[] = "feed_forward_length";
    const size_t shared = (size_t)gguf_config_integer(job, "attention.shared_kv_layers", 0);
    if (check_list(job, key, err) < 0)
        return -1;
    const int64_t width = of_layer(job, key, 0), last = of_layer(job, key, job->layers - 1);
    for (size_t layer = 0; layer < job->layers; layer++) {
        const bool wide = last != width && layer >= job->layers - shared;
        const int64_t value = of_layer(job, key, layer);
        if (wide ? value % 2 || value / 2 != width : value != width)
            return err_set(
                err,
                "%s: %s.%s is %lld for layer %zu, expected %lld, or twice as much in all of the "
                "last %zu, which share keys and values",
                job->path, job->arch->name, key, (long long)value, layer, (long long)width, shared);
    }
    return json_put(job->config, "use_double_wide_mlp", json_boolean(last != width), err);
}

/* The share of rotary pairs that layers with full attention rotate: the divisors of their frequencies are 1,
 * those of the others so large that nothing turns. */
static int put_share(const struct config_job *job, json_t *full, struct err *err)
{
    const struct source_tensor *divisors = gguf_set_find(job->set, "rope_freqs.weight");
    const int64_t head = gguf_config_integer(job, "attention.key_length", -1);
    size_t turned = 0;
    if (!divisors)
        return json_put(full, "rope_type", json_string("default"), err);
    if (divisors->type != DTYPE_F32 || divisors->n_dims != 1 || !divisors->dim[0])
        return err_set(err, "%s: rope_freqs.weight is not a vector of F32", job->path);
    if (head % 2 || head / 2 != (int64_t)divisors->dim[0])
        return err_set(
            err,
            "%s: rope_freqs.weight has %zu elements, expected half of %s.attention.key_length, "
            "%lld",
            job->path, divisors->dim[0], job->arch->name, (long long)head);
    for (size_t i = 0; i < divisors->dim[0]; i++) {
        float divisor;
        memcpy(&divisor, divisors->data + 4 * i, sizeof divisor);
        if (divisor == 1 && turned == i)
            turned++;
        else if (!(divisor >= 1e20f))
            return err_set(err,
                           "%s: element %zu of rope_freqs.weight is %g; expected 1 for pairs that are "
                           "rotated, the first ones, and at least 1e20 for the others",
                           job->path, i, (double)divisor);
    }
    if (json_put(full, "rope_type", json_string("proportional"), err) < 0)
        return -1;
    return json_put(full, "partial_rotary_factor", json_real((double)turned / (double)divisors->dim[0]),
                    err);
}

static int put_base(const struct config_job *job, const char *key, json_t *rope, struct err *err)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(job->arch, job->set, key));
    return e.of && gguf_is_number(e.of) && gguf_next(&e)
               ? json_put(rope, "rope_theta", gguf_json(&e), err)
               : 0;
}

static int put_rotation(const struct config_job *job, struct err *err)
{
    AUTO(json_auto) json_t *full = json_object(), *sliding = json_object(), *both = json_object();
    const int64_t rotated = gguf_config_integer(job, "rope.dimension_count_swa", -1),
                  head = gguf_config_integer(job, "attention.key_length_swa", rotated);
    int rc = rotated >= 0 && rotated != head
                 ? err_set(err,
                           "%s: rotates %lld of %lld dimensions with sliding attention; only all are "
                           "supported",
                           job->path, (long long)rotated, (long long)head)
                 : 0;
    if (rc == 0)
        rc = put_share(job, full, err);
    if (rc == 0)
        rc = put_base(job, "rope.freq_base", full, err);
    if (rc == 0)
        rc = put_base(job, "rope.freq_base_swa", sliding, err);
    if (rc == 0)
        rc = json_put(both, "full_attention", json_incref(full), err);
    if (rc == 0)
        rc = json_put(both, "sliding_attention", json_incref(sliding), err);
    return rc < 0 ? -1 : json_put(job->config, "rope_parameters", json_incref(both), err);
}

int gguf_put_gemma4(struct config_job *job, struct err *err)
{
    const char *path = job->path, *arch = job->arch->name;
    if (strcmp(job->arch->name, "gemma4") != 0)
        return 0;
    const int64_t shared = gguf_config_integer(job, "attention.shared_kv_layers", 0),
                  input = gguf_config_integer(job, "embedding_length_per_layer_input", 0);
    if (count_layers(job, err) < 0)
        return -1;
    if (shared < 0 || (uint64_t)shared >= job->layers)
        return err_set(err, "%s: %s.attention.shared_kv_layers is %lld of %zu layers", path, arch,
                       (long long)shared, job->layers);
    if (put_integer(job, "num_kv_shared_layers", shared, err) < 0 ||
        put_integer(job, "hidden_size_per_layer_input", input, err) < 0 ||
        json_put(job->config, "enable_moe_block",
                 json_boolean(gguf_config_integer(job, "expert_count", 0) > 0), err) < 0 ||
        put_heads(job, err) < 0 || put_widths(job, err) < 0)
        return -1;
    return put_rotation(job, err);
}

/* ---- Step 3.5 ---- */

int64_t gguf_step_rotated(const struct config_job *job)
{
    const int64_t rotated = gguf_config_integer(job, "rope.dimension_count", gguf_head_dim(job));
    return rotated > 0 ? rotated / 2 : 0;
}

/* The rotation of one kind of layers. */
static int put_turned(const struct config_job *job, json_t *both, const char *kind, const char *base,
                      int64_t dims, struct err *err)
{
    AUTO(json_auto) json_t *rope = json_object();
    const int64_t head = gguf_head_dim(job);
    if (!rope || json_put(rope, "rope_type", json_string("default"), err) < 0 ||
        put_base(job, base, rope, err) < 0 ||
        json_put(rope, "partial_rotary_factor", json_real(head ? (double)dims / (double)head : 1),
                 err) < 0)
        return -1;
    return json_put(both, kind, json_incref(rope), err);
}

/* A list of numbers, one per layer; files may have more, of MTP layers. */
static int put_numbers(const struct config_job *job, const char *key, const char *member,
                       struct err *err)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(job->arch, job->set, key));
    if (!e.of)
        return 0;
    if (check_list(job, key, err) < 0)
        return -1;
    const bool one = !e.of->is_array && gguf_next(&e);
    json_t *list = json_array();
    while (list && json_array_size(list) < job->layers && (one || gguf_next(&e)))
        if (json_push(list, gguf_json(&e), err) < 0) {
            json_decref(list);
            return -1;
        }
    return gguf_config_put(job->config, member, list, err);
}

int gguf_put_step(struct config_job *job, struct err *err)
{
    const int64_t full = gguf_step_rotated(job);
    AUTO(json_auto) json_t *both = json_object();
    if (strcmp(job->arch->name, "step35") != 0)
        return 0;
    if (count_layers(job, err) < 0)
        return -1;
    if (!gguf_arch_value(job->arch, job->set, "rope.freq_base_swa"))
        return err_set(err, "%s: step35.rope.freq_base_swa is missing", job->path);
    if (put_by_kind(job, "attention.head_count", "num_sliding_attention_heads", "num_attention_heads",
                    err) < 0 ||
        put_by_kind(job, "attention.head_count_kv", "num_sliding_key_value_heads",
                    "num_key_value_heads", err) < 0 ||
        put_numbers(job, "swiglu_clamp_exp", "swiglu_limits", err) < 0 ||
        put_numbers(job, "swiglu_clamp_shexp", "swiglu_limits_shared", err) < 0 || !both ||
        put_turned(job, both, "full_attention", "rope.freq_base", full, err) < 0 ||
        put_turned(job, both, "sliding_attention", "rope.freq_base_swa",
                   gguf_config_integer(job, "rope.dimension_count_swa", 2 * full), err) < 0)
        return -1;
    return json_put(job->config, "rope_parameters", json_incref(both), err);
}

/* ---- Gemma 3n ---- */

/* Shares of the gate's elements that layers drop, from cutoffs in standard deviations, which are stored with some 7
 * digits; those of layers that drop none are -infinity. */
static int put_sparsity(const struct config_job *job, size_t layers, struct err *err)
{
    static const char key[] = "activation_sparsity_scale";
    const struct gguf_value *value = gguf_arch_value(job->arch, job->set, key);
    struct gguf_element e = gguf_elements(value);
    if (!value || !gguf_is_number(value) || !value->is_array || value->count != layers)
        return err_set(err, "%s: %s.%s is no list of %zu numbers, one per layer", job->path,
                       job->arch->name, key, layers);
    json_t *list = json_array();
    while (list && gguf_next(&e)) {
        const double share = e.real >= -8 && e.real <= 8 ? repro_normal(e.real) : e.real > 8;
        if (json_push(list, json_real(floor(share * 1e6 + 0.5) / 1e6), err) < 0) {
            json_decref(list);
            return -1;
        }
    }
    return gguf_config_put(job->config, "activation_sparsity_pattern", list, err);
}

int gguf_put_gemma3n(const struct config_job *job, struct err *err)
{
    const struct source_tensor *laurel = gguf_set_find(job->set, "blk.0.laurel_l.weight");
    const json_t *kinds = json_object_get(job->config, "layer_types");
    if (strcmp(job->arch->name, "gemma3n") != 0)
        return 0;
    if (!json_array_size(kinds))
        return err_set(err, "%s: gemma3n.attention.sliding_window_pattern is no list of booleans",
                       job->path);
    if (!laurel || laurel->n_dims != 2)
        return err_set(err, "%s: blk.0.laurel_l.weight is missing, or no matrix", job->path);
    if (put_integer(job, "num_kv_shared_layers",
                    gguf_config_integer(job, "attention.shared_kv_layers", 0), err) < 0 ||
        put_integer(job, "hidden_size_per_layer_input",
                    gguf_config_integer(job, "embedding_length_per_layer_input", 0), err) < 0 ||
        put_integer(job, "laurel_rank", (int64_t)laurel->dim[0], err) < 0)
        return -1;
    return put_sparsity(job, json_array_size(kinds), err);
}
