/* Layers with recurrent state: what follows from a configuration, and its checks. */
#include "model/config/config_layers.h"

enum layer_kind config_state_kind(const struct config *c)
{
    for (size_t layer = 0; layer < c->layers; layer++)
        if (c->plan[layer].has_state)
            return c->plan[layer].kind;
    return LAYER_FULL;
}

size_t config_state_layers(const struct config *c, size_t first, size_t n)
{
    size_t found = 0;
    for (size_t layer = first; layer < first + n; layer++)
        found += c->plan[layer].has_state;
    return found;
}

struct state_shape config_state_shape(const struct config *c)
{
    const enum layer_kind kind = config_state_kind(c);
    if (!layer_kind_has_state(kind))
        return (struct state_shape){0};
    return (struct state_shape){
        .layers = config_state_layers(c, 0, c->layers),
        .taps = c->recurrent->conv_kernel - 1,
        .conv = config_conv_width(c),
        .heads = c->recurrent->heads,
        .key_heads = c->recurrent->key_heads,
        .group = c->recurrent->heads ? c->recurrent->heads / c->recurrent->key_heads : 0,
        .key_dim = c->recurrent->key_dim,
        .value_dim = c->recurrent->value_dim,
        .tiled = c->recurrent->tiled,
        .delta = kind == LAYER_DELTA};
}

/* All sizes of a recurrence, or none of them. */
static int check_sizes(const struct config *c, enum layer_kind kind, const char *name, struct err *err)
{
    enum { MAX_WIDTH = 1 << 20 };
    const size_t heads = c->recurrent->heads, key_heads = c->recurrent->key_heads;
    if (kind == LAYER_CONV) {
        if (!heads && !key_heads && !c->recurrent->key_dim && !c->recurrent->value_dim)
            return 0;
        return err_set(err, "%s: layers of kind conv have no state_heads, found %zu", name, heads);
    }
    if (!heads || !key_heads || heads % key_heads || !c->recurrent->key_dim || !c->recurrent->value_dim)
        return err_set(
            err,
            "%s: layers of kind delta and mamba need sizes above 0, and state_heads a multiple "
            "of state_key_heads; found %zu heads of %zu, and %zu heads of keys of %zu",
            name, heads, c->recurrent->value_dim, key_heads, c->recurrent->key_dim);
    if (config_conv_width(c) > MAX_WIDTH)
        return err_set(err, "%s: a recurrent state of %zu heads of %zu and %zu of %zu is too wide",
                       name, heads, c->recurrent->value_dim, key_heads, c->recurrent->key_dim);
    return 0;
}

void config_reset_state(struct config_text *text)
{
    for (size_t layer = 0; layer < text->config.layers; layer++)
        if (layer_kind_has_state(keys_kind(&text->config, layer)))
            return;
    const struct recurrent_plan old = text->keys.recurrent;
    text->keys.recurrent = (struct recurrent_plan){
        .in_scale = old.in_scale, .out_scale = old.out_scale, .scales = old.scales, .norm = true};
}

int config_check_state(const struct config *c, const char *name, struct err *err)
{
    const enum layer_kind kind = config_state_kind(c);
    if (!layer_kind_has_state(kind))
        return 0;
    for (size_t layer = 0; layer < c->layers; layer++) {
        const enum layer_kind own = c->plan[layer].kind;
        if (layer_kind_has_state(own) && own != kind)
            return err_set(err, "%s: layer_types has layers with state of several kinds", name);
    }
    if (kind == LAYER_MAMBA_FULL && config_changes_output(c))
        return err_set(
            err, "%s: layers of kind mamba+full need norm_place before and no residual_scale", name);
    if (c->recurrent->conv_kernel < 2)
        return err_set(err, "%s: layers with a state need a conv_kernel from 2 to 64, found %zu", name,
                       c->recurrent->conv_kernel);
    if (!config_kv_layers(c, 0, c->layers))
        return err_set(err, "%s: models without any attention layer are not supported", name);
    if (c->latent->kv_rank)
        return err_set(err, "%s: layers with a state beside latent attention are not supported", name);
    if (config_is_draft_head(c) || c->block != BLOCK_SEQUENTIAL || c->draft->no_attn_norm)
        return err_set(err, "%s: layers with a state need a sequential block, and no draft head", name);
    return check_sizes(c, kind, name, err);
}
