/* Gemma 4: what its GGUF files have per layer, or as a tensor, and config.json as single members. */
#include "format/gguf/gguf_gemma4.h"

#include <stdio.h>
#include <string.h>

#include "format/gguf/gguf.h"

struct gemma4 {
    json_t *config;
    const struct gguf_arch *arch;
    const struct gguf_set *set;
    const char *path;
    size_t layers;
};

static int64_t integer_of(const struct gemma4 *g, const char *key, int64_t fallback)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(g->arch, g->set, key));
    return e.of && gguf_is_number(e.of) && gguf_next(&e) ? e.integer : fallback;
}

/* Fails unless a key is missing, a number, or a list of as many numbers as layers. */
static int check_list(const struct gemma4 *g, const char *key, struct err *err)
{
    const struct gguf_value *value = gguf_arch_value(g->arch, g->set, key);
    if (!value || (gguf_is_number(value) && (!value->is_array || value->count == g->layers)))
        return 0;
    if (!gguf_is_number(value))
        return err_set(err, "%s: %s.%s is no list of numbers", g->path, g->arch->name, key);
    return err_set(err, "%s: %s.%s has %zu entries for %zu layers", g->path, g->arch->name, key,
                   value->count, g->layers);
}

/* The value of a key for a layer: an entry of its list, or the number that holds for all; -1: no such key. */
static int64_t of_layer(const struct gemma4 *g, const char *key, size_t layer)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(g->arch, g->set, key));
    size_t left = e.of && e.of->is_array ? layer + 1 : 1;
    bool found = e.of && gguf_is_number(e.of);
    while (found && left-- > 0)
        found = gguf_next(&e);
    return found ? e.integer : -1;
}

static bool has_in_layer(const struct gemma4 *g, const char *tensor, size_t layer)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%zu.%s.weight", layer, tensor);
    return gguf_set_find(g->set, name) != NULL;
}

static int put_integer(const struct gemma4 *g, const char *key, int64_t value, struct err *err)
{
    return json_put(g->config, key, json_integer(value), err);
}

static bool is_sliding(const struct gemma4 *g, size_t layer)
{
    const json_t *kinds = json_object_get(g->config, "layer_types");
    const char *kind = json_string_value(json_array_get(kinds, layer));
    return kind && strcmp(kind, "sliding_attention") == 0;
}

/* Sets members to the value that layers of each kind have; those of a kind must agree. */
static int put_by_kind(const struct gemma4 *g, const char *key, const char *sliding, const char *full,
                       struct err *err)
{
    int64_t found[2];
    bool seen[2] = {false, false};
    if (check_list(g, key, err) < 0)
        return -1;
    if (!gguf_arch_value(g->arch, g->set, key))
        return 0;
    for (size_t layer = 0; layer < g->layers; layer++) {
        const bool kind = is_sliding(g, layer);
        const int64_t value = of_layer(g, key, layer);
        if (seen[kind] && value != found[kind])
            return err_set(
                err, "%s: %s.%s is %lld for layer %zu, and %lld for another layer with %s attention",
                g->path, g->arch->name, key, (long long)value, layer, (long long)found[kind],
                kind ? "sliding" : "full");
        found[kind] = value;
        seen[kind] = true;
    }
    if (seen[1] && put_integer(g, sliding, found[1], err) < 0)
        return -1;
    return seen[0] ? put_integer(g, seen[1] ? full : sliding, found[0], err) : 0;
}

/* Sizes of heads; layers without a projection of values have keys in their place. */
static int put_heads(const struct gemma4 *g, struct err *err)
{
    const int64_t full = integer_of(g, "attention.key_length", -1),
                  sliding = integer_of(g, "attention.key_length_swa", full);
    const size_t shared = (size_t)integer_of(g, "attention.shared_kv_layers", 0);
    bool v_is_k = false;
    for (size_t layer = 0; layer + shared < g->layers; layer++)
        v_is_k |= !is_sliding(g, layer) && !has_in_layer(g, "attn_v", layer);
    if (integer_of(g, "attention.value_length_swa", sliding) != sliding)
        return err_set(
            err,
            "%s: %s.attention.key_length_swa and value_length_swa differ: different head sizes "
            "are not supported",
            g->path, g->arch->name);
    if (put_by_kind(g, "attention.head_count_kv", "num_key_value_heads", "num_global_key_value_heads",
                    err) < 0 ||
        json_put(g->config, "attention_k_eq_v", json_boolean(v_is_k), err) < 0 ||
        put_integer(g, "global_head_dim", full, err) < 0)
        return -1;
    return put_integer(g, "head_dim", sliding, err);
}

/* Widths of MLPs: one, or twice as much in the layers that share keys and values. */
static int put_widths(const struct gemma4 *g, struct err *err)
{
    static const char key[] = "feed_forward_length";
    const size_t shared = (size_t)integer_of(g, "attention.shared_kv_layers", 0);
    if (check_list(g, key, err) < 0)
        return -1;
    const int64_t width = of_layer(g, key, 0), last = of_layer(g, key, g->layers - 1);
    for (size_t layer = 0; layer < g->layers; layer++) {
        const bool wide = last != width && layer >= g->layers - shared;
        const int64_t value = of_layer(g, key, layer);
        if (wide ? value % 2 || value / 2 != width : value != width)
            return err_set(
                err,
                "%s: %s.%s is %lld for layer %zu, expected %lld, or twice as much in all of the "
                "last %zu, which share keys and values",
                g->path, g->arch->name, key, (long long)value, layer, (long long)width, shared);
    }
    return json_put(g->config, "use_double_wide_mlp", json_boolean(last != width), err);
}

/* The share of rotary pairs that layers with full attention rotate: the divisors of their frequencies are 1,
 * those of the others so large that nothing turns. */
static int put_share(const struct gemma4 *g, json_t *full, struct err *err)
{
    const struct source_tensor *divisors = gguf_set_find(g->set, "rope_freqs.weight");
    const int64_t head = integer_of(g, "attention.key_length", -1);
    size_t turned = 0;
    if (!divisors)
        return json_put(full, "rope_type", json_string("default"), err);
    if (divisors->type != DTYPE_F32 || divisors->n_dims != 1 || !divisors->dim[0])
        return err_set(err, "%s: rope_freqs.weight is not a vector of F32", g->path);
    if (head % 2 || head / 2 != (int64_t)divisors->dim[0])
        return err_set(
            err,
            "%s: rope_freqs.weight has %zu elements, expected half of %s.attention.key_length, "
            "%lld",
            g->path, divisors->dim[0], g->arch->name, (long long)head);
    for (size_t i = 0; i < divisors->dim[0]; i++) {
        float divisor;
        memcpy(&divisor, divisors->data + 4 * i, sizeof divisor);
        if (divisor == 1 && turned == i)
            turned++;
        else if (!(divisor >= 1e20f))
            return err_set(err,
                           "%s: element %zu of rope_freqs.weight is %g; expected 1 for pairs that are "
                           "rotated, the first ones, and at least 1e20 for the others",
                           g->path, i, (double)divisor);
    }
    if (json_put(full, "rope_type", json_string("proportional"), err) < 0)
        return -1;
    return json_put(full, "partial_rotary_factor", json_real((double)turned / (double)divisors->dim[0]),
                    err);
}

static int put_base(const struct gemma4 *g, const char *key, json_t *rope, struct err *err)
{
    struct gguf_element e = gguf_elements(gguf_arch_value(g->arch, g->set, key));
    return e.of && gguf_is_number(e.of) && gguf_next(&e)
               ? json_put(rope, "rope_theta", gguf_json(&e), err)
               : 0;
}

static int put_rotation(const struct gemma4 *g, struct err *err)
{
    json_t *full = json_object(), *sliding = json_object(), *both = json_object();
    const int64_t rotated = integer_of(g, "rope.dimension_count_swa", -1),
                  head = integer_of(g, "attention.key_length_swa", rotated);
    int rc = rotated >= 0 && rotated != head
                 ? err_set(err,
                           "%s: rotates %lld of %lld dimensions with sliding attention; only all are "
                           "supported",
                           g->path, (long long)rotated, (long long)head)
                 : 0;
    if (rc == 0)
        rc = put_share(g, full, err);
    if (rc == 0)
        rc = put_base(g, "rope.freq_base", full, err);
    if (rc == 0)
        rc = put_base(g, "rope.freq_base_swa", sliding, err);
    if (rc == 0)
        rc = json_put(both, "full_attention", json_incref(full), err);
    if (rc == 0)
        rc = json_put(both, "sliding_attention", json_incref(sliding), err);
    if (rc == 0)
        rc = json_put(g->config, "rope_parameters", json_incref(both), err);
    json_decref(full);
    json_decref(sliding);
    json_decref(both);
    return rc;
}

int gguf_gemma4(json_t *config, const struct gguf_arch *arch, const struct gguf_set *set,
                const char *path, struct err *err)
{
    struct gemma4 g = {config, arch, set, path, 0};
    if (strcmp(arch->name, "gemma4") != 0)
        return 0;
    const json_t *kinds = json_object_get(config, "layer_types");
    const int64_t shared = integer_of(&g, "attention.shared_kv_layers", 0),
                  input = integer_of(&g, "embedding_length_per_layer_input", 0);
    g.layers = json_array_size(kinds); /* as many as block_count: gguf_config() */
    if (!g.layers)
        return err_set(err, "%s: %s.attention.sliding_window_pattern is no list of booleans", path,
                       arch->name);
    if (g.layers > SOURCE_MAX_LAYERS)
        return err_set(err, "%s: %s.block_count is %zu, more than %d layers", path, arch->name,
                       g.layers, SOURCE_MAX_LAYERS);
    if (shared < 0 || (uint64_t)shared >= g.layers)
        return err_set(err, "%s: %s.attention.shared_kv_layers is %lld of %zu layers", path, arch->name,
                       (long long)shared, g.layers);
    if (put_integer(&g, "num_kv_shared_layers", shared, err) < 0 ||
        put_integer(&g, "hidden_size_per_layer_input", input, err) < 0 ||
        json_put(config, "enable_moe_block", json_boolean(integer_of(&g, "expert_count", 0) > 0), err) <
            0 ||
        put_heads(&g, err) < 0 || put_widths(&g, err) < 0)
        return -1;
    return put_rotation(&g, err);
}
