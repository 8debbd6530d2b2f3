/* Resolves the keys of a configuration to the plan of its layers, and adds up what follows from the plan. */
#include "model/config/config_keys.h"

#include "base/repro_math.h"

/* ---- from keys to layers ---- */

enum layer_kind keys_default_kind(const struct config *c, size_t layer)
{
    const bool full = c->keys->window_every && (layer + 1) % c->keys->window_every == 0;
    return c->keys->window && !full ? LAYER_SLIDING : LAYER_FULL;
}

enum layer_kind keys_kind(const struct config *c, size_t layer)
{
    const struct layer_list *list = &c->keys->layer_types;
    if (c->keys->last_full && layer + 1 == c->layers)
        return LAYER_FULL;
    return list->n ? (enum layer_kind)list->value[layer % list->n] : keys_default_kind(c, layer);
}

static bool has_window(enum layer_kind kind) { return kind == LAYER_SLIDING || kind == LAYER_CHUNKED; }

enum layer_rope keys_default_rope(const struct config *c, size_t layer)
{
    if (c->keys->rope_every && (layer + 1) % c->keys->rope_every == 0)
        return LAYER_NOPE;
    if (c->keys->window == 0)
        return LAYER_ROPE;
    return (enum layer_rope)(has_window(keys_kind(c, layer)) ? c->keys->rope_sliding
                                                             : c->keys->rope_full);
}

enum layer_rope keys_rope(const struct config *c, size_t layer)
{
    const struct layer_list *list = &c->keys->layer_rope;
    if (c->position != POSITION_ROPE)
        return LAYER_NOPE;
    return list->n ? (enum layer_rope)list->value[layer % list->n] : keys_default_rope(c, layer);
}

/* True if a list of layers' numbers has `layer`. */
static bool lists_layer(const struct factors *list, size_t layer)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->x[i] == (double)layer)
            return true;
    return false;
}

bool keys_list_experts(const struct config *c, size_t layer)
{
    return lists_layer(&c->keys->expert_layers, layer);
}

bool keys_default_experts(const struct config *c, size_t layer)
{
    return !lists_layer(&c->keys->mlp_layers, layer) && c->moe->experts &&
           layer >= c->keys->expert_first && (!c->keys->expert_last || layer <= c->keys->expert_last) &&
           (layer + 1) % c->keys->expert_every == 0;
}

size_t keys_kv_source(const struct config *c, size_t layer)
{
    const size_t first = c->layers - c->keys->kv_shared;
    size_t source = layer;
    while (layer >= first && source > 0 &&
           (source >= first || keys_kind(c, source) != keys_kind(c, layer)))
        source--;
    return source;
}

/* ---- the plan ---- */

/* The x below which a share of a standard normal distribution is; the share is in (0, 1). */
static double normal_quantile(double share)
{
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        const double x = (low + high) / 2;
        *(repro_normal(x) < share ? &low : &high) = x;
    }
    return low;
}

/* A size of a layer: of a list, of layers with full attention if `full`, or of all. */
static size_t keys_size(const struct layer_list *list, size_t layer, bool full, size_t of_full,
                        size_t of_all)
{
    if (list->n)
        return list->value[layer % list->n];
    return full && of_full ? of_full : of_all;
}

/* The number of a layer in a list that has one for each, or `otherwise` if it has none. */
static double of_layer(const struct factors *list, size_t layer, double otherwise)
{
    return layer < list->n ? list->x[layer] : otherwise;
}

static struct layer_plan plan_layer(const struct config *c, size_t layer)
{
    const enum layer_kind kind = keys_kind(c, layer);
    const enum layer_rope rope = keys_rope(c, layer);
    const struct config_keys *keys = c->keys;
    const bool full = kind == LAYER_FULL, last = layer >= c->layers - keys->kv_shared;
    struct layer_plan plan = {
        .kind = kind,
        .attends = layer_kind_attends(kind),
        .has_state = layer_kind_has_state(kind),
        .window = has_window(kind) ? keys->window : 0,
        .ahead = !keys->bidirectional ? 0
                 : has_window(kind)   ? keys->window - 1
                                      : SIZE_MAX,
        .chunk = kind == LAYER_CHUNKED ? keys->window : 0,
        .attn_norm = !layer_kind_is_mlp(kind) && (layer || !keys->no_attn_norm),
        .round_inputs = keys->round_inputs,
        .sub_norm = keys->sub_norm,
        .rope = rope,
        .qk_norm = c->qk_norm && (!keys->qk_norm_rotated || rope != LAYER_NOPE),
        .temperature =
            c->temperature->scale != 0 && (!keys->temperature_unrotated || rope == LAYER_NOPE),
        .v_is_k = keys->v_is_k && full,
        .heads = keys_size(&keys->layer_heads, layer, full, keys->full_heads, c->heads),
        .kv_heads = keys_size(&keys->layer_kv_heads, layer, full, keys->full_kv_heads, c->kv_heads),
        .head_dim = keys_size(&keys->layer_head_dim, layer, full, keys->full_head_dim, c->head_dim),
        .has_index = c->latent->index_heads &&
                     (!keys->index_types.n ||
                      keys->index_types.value[layer % keys->index_types.n] == INDEX_FULL),
        .kv_source = keys_kv_source(c, layer),
        .ffn = last && keys->kv_shared_ffn ? keys->kv_shared_ffn : c->ffn};
    const double sparsity = of_layer(&keys->activation_sparsity, layer, 0);
    plan.sparse = sparsity > 0;
    plan.cutoff = plan.sparse ? normal_quantile(sparsity) : 0;
    plan.mlp_limit = of_layer(&keys->mlp_limits, layer, keys->mlp.limit);
    plan.expert_limit = of_layer(&keys->expert_limits, layer, keys->mlp.limit);
    plan.owns_kv = plan.attends && plan.kv_source == layer;
    if (keys->one_sublayer)
        plan.has_experts = kind == LAYER_EXPERTS;
    else
        plan.has_experts = keys->expert_layers.n ? c->moe->experts && keys_list_experts(c, layer)
                                                 : keys_default_experts(c, layer);
    plan.has_mlp = keys->one_sublayer ? kind == LAYER_MLP : c->moe->beside || !plan.has_experts;
    return plan;
}

/* Adds the layers with KV entries; false: they have too many different sizes. */
static bool add_layers(struct kv_shape *shape, const struct config *c, const struct cache_types *types)
{
    bool ok = true;
    for (size_t layer = 0; layer < c->layers && ok; layer++)
        ok = !c->plan[layer].owns_kv || kv_shape_add(shape, config_kv_sizes(c, layer, types));
    return ok && config_add_indexers(shape, c, types);
}

/* Rotary dimensions of layers with a rotation: those of the keys, else all of a head. */
static size_t table_dim(const struct config *c, const struct layer_plan *plan, enum layer_rope rope)
{
    if (rope == LAYER_ROPE_LOCAL && c->keys->rope_local_dim)
        return c->keys->rope_local_dim;
    for (size_t l = 0; l < c->layers && !c->keys->rope.dim; l++)
        if (plan[l].rope == rope && plan[l].head_dim != c->head_dim)
            return plan[l].head_dim;
    return config_rope_dim(c);
}

/* What one configuration owns. */
struct planned {
    struct config_keys keys;
    struct rope_plan rope[LAYER_NOPE];
    struct layer_plan plan[];
};

static const struct config_keys default_keys = {CONFIG_KEY_DEFAULTS};

void config_borrow_keys(struct config *c, const struct config_keys *keys)
{
    c->keys = keys;
    c->temperature = &keys->temperature;
    c->latent = &keys->latent;
    c->mlp = &keys->mlp;
    c->moe = &keys->moe;
    c->recurrent = &keys->recurrent;
    c->draft = &keys->draft;
}

int config_plan(struct config *c, struct err *err)
{
    const struct config_keys *keys = c->keys ? c->keys : &default_keys;
    struct planned *own = mem_zalloc(1, sizeof *own + c->layers * sizeof *own->plan);
    c->keys = NULL;
    c->plan = NULL;
    if (!own)
        return err_no_memory(err, "a plan of %zu layers", c->layers);
    own->keys = *keys;
    config_borrow_keys(c, &own->keys);
    for (size_t l = 0; l < c->layers; l++)
        own->plan[l] = plan_layer(c, l);
    own->rope[LAYER_ROPE] = keys->rope;
    own->rope[LAYER_ROPE_LOCAL] = (struct rope_plan){
        .theta = keys->rope_local_theta != 0 ? keys->rope_local_theta : keys->rope.theta,
        .factor = 1,
        .original = keys->rope.original};
    for (enum layer_rope rope = LAYER_ROPE; rope < LAYER_NOPE; rope++)
        own->rope[rope].dim = table_dim(c, own->plan, rope);
    c->rope = own->rope;
    c->plan = own->plan;
    struct kv_shape shape = {0};
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    if (add_layers(&shape, c, &f32))
        return 0;
    config_close(c);
    return err_set(err, "layers have more than %d different sizes of KV heads", KV_MAX_SIZES);
}

void config_close(struct config *c)
{
    if (c->plan)
        free((void *)(uintptr_t)c->keys);
    c->keys = NULL;
    c->plan = NULL;
}

/* ---- what follows from it ---- */

size_t config_rope_tables(const struct config *c)
{
    for (size_t layer = 0; layer < c->layers; layer++)
        if (c->plan[layer].rope == LAYER_ROPE_LOCAL)
            return 2;
    return 1;
}

size_t config_rope_dim(const struct config *config)
{
    return config->keys->rope.dim ? config->keys->rope.dim : config->head_dim;
}

size_t config_max_ffn(const struct config *c)
{
    size_t most = 0;
    for (size_t layer = 0; layer < c->layers; layer++)
        most = size_max(most, c->plan[layer].ffn);
    return most;
}

size_t config_max_attn_width(const struct config *c)
{
    size_t most = config_attn_width(c);
    for (size_t layer = 0; layer < c->layers; layer++)
        most = size_max(most, c->latent->kv_rank ? 0 : c->plan[layer].heads * c->plan[layer].head_dim);
    return most;
}

bool config_kv_read_from(const struct config *c, size_t layer, size_t from, size_t end)
{
    if (!c->plan[layer].owns_kv)
        return false;
    for (size_t l = from; l < end; l++)
        if (c->plan[l].kv_source == layer)
            return true;
    return false;
}

bool config_stores_kv(const struct config *c, size_t first, size_t n, size_t layer)
{
    return layer < first ? config_kv_read_from(c, layer, first, first + n)
                         : layer < first + n && c->plan[layer].owns_kv;
}

size_t config_kv_layers(const struct config *c, size_t first, size_t n)
{
    size_t found = 0;
    for (size_t layer = 0; layer < first + n; layer++)
        found += config_stores_kv(c, first, n, layer);
    return found;
}

size_t config_kv_index(const struct config *c, size_t first, size_t n, size_t layer)
{
    size_t index = 0;
    for (size_t l = 0; l < c->plan[layer].kv_source; l++)
        index += config_stores_kv(c, first, n, l);
    return index;
}

struct kv_sizes config_kv_sizes(const struct config *c, size_t layer, const struct cache_types *types)
{
    const struct layer_plan *plan = &c->plan[layer];
    const struct kv_types own = cache_types_of(types, config_kv_index(c, 0, c->layers, layer));
    return (struct kv_sizes){plan->kv_heads, plan->head_dim, c->latent->kv_rank, {own.k, own.v}};
}

bool config_add_indexers(struct kv_shape *shape, const struct config *c,
                         const struct cache_types *types)
{
    const size_t dim = c->latent->index_dim;
    bool ok = true;
    for (size_t layer = 0; layer < c->layers && ok; layer++)
        if (c->plan[layer].has_index) {
            const struct kv_types own = cache_types_of(types, config_kv_index(c, 0, c->layers, layer));
            ok = kv_shape_add(shape, (struct kv_sizes){1, dim, dim, {own.k, own.k}});
        }
    return ok;
}

size_t config_indexer_index(const struct config *c, size_t layer)
{
    size_t index = config_kv_layers(c, 0, c->layers);
    for (size_t l = 0; l < layer; l++)
        index += c->plan[l].has_index;
    return index;
}

struct kv_shape config_kv_shape(const struct config *c, size_t max_rows,
                                const struct cache_types *types)
{
    struct kv_shape shape = {.max_rows = max_rows};
    (void)add_layers(&shape, c, types); /* config_plan() has made sure that they fit */
    return shape;
}

const struct config *config_of_layer(const struct config *c, size_t layer, struct config *own)
{
    const struct layer_plan *plan = &c->plan[layer];
    if (plan->heads == c->heads && plan->head_dim == c->head_dim && plan->kv_heads == c->kv_heads &&
        plan->ffn == c->ffn)
        return c;
    *own = *c;
    own->heads = plan->heads;
    own->head_dim = plan->head_dim;
    own->kv_heads = plan->kv_heads;
    own->ffn = plan->ffn;
    return own;
}

bool config_heads_differ(const struct config *c)
{
    for (size_t layer = 0; layer < c->layers; layer++)
        if (c->plan[layer].heads != c->heads || c->plan[layer].kv_heads != c->kv_heads ||
            c->plan[layer].head_dim != c->head_dim)
            return true;
    return false;
}

/* ---- recurrent state ---- */

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
        .delta = kind == LAYER_DELTA,
        .by_row = c->recurrent->by_row};
}
