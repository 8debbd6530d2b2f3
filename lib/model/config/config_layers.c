/* Values that differ by layer: their text, and what follows from them for a layer. */
#include "model/config/config_layers.h"

#include <string.h>

#include "base/number.h"

/* ---- the traits of a layer ---- */

static enum layer_kind default_kind(const struct config *c, size_t layer)
{
    const bool full = c->window_every && (layer + 1) % c->window_every == 0;
    return c->window && !full ? LAYER_SLIDING : LAYER_FULL;
}

enum layer_kind config_layer_kind(const struct config *c, size_t layer)
{
    const struct layer_list *list = &c->layer_types;
    if (c->last_full && layer + 1 == c->layers)
        return LAYER_FULL;
    return list->n ? (enum layer_kind)list->value[layer % list->n] : default_kind(c, layer);
}

size_t config_layer_window(const struct config *c, size_t layer)
{
    const enum layer_kind kind = config_layer_kind(c, layer);
    return kind == LAYER_SLIDING || kind == LAYER_CHUNKED ? c->window : 0;
}

size_t config_layer_chunk(const struct config *c, size_t layer)
{
    return config_layer_kind(c, layer) == LAYER_CHUNKED ? c->window : 0;
}

static enum layer_rope default_rope(const struct config *c, size_t layer)
{
    if (c->rope_every && (layer + 1) % c->rope_every == 0)
        return LAYER_NOPE;
    if (c->window == 0)
        return LAYER_ROPE;
    return (enum layer_rope)(config_layer_window(c, layer) ? c->rope_sliding : c->rope_full);
}

enum layer_rope config_layer_rope(const struct config *c, size_t layer)
{
    const struct layer_list *list = &c->layer_rope;
    if (c->position != POSITION_ROPE)
        return LAYER_NOPE;
    return list->n ? (enum layer_rope)list->value[layer % list->n] : default_rope(c, layer);
}

bool config_layer_qk_norm(const struct config *c, size_t layer)
{
    return c->qk_norm && (!c->qk_norm_rotated || config_layer_rope(c, layer) != LAYER_NOPE);
}

size_t config_rope_tables(const struct config *c)
{
    size_t tables = 1;
    for (size_t layer = 0; layer < c->layers; layer++)
        if (config_layer_rope(c, layer) == LAYER_ROPE_LOCAL)
            tables = 2;
    return tables;
}

size_t config_table_dim(const struct config *c, enum layer_rope rope)
{
    for (size_t layer = 0; layer < c->layers && !c->rope_dim; layer++)
        if (config_layer_rope(c, layer) == rope && config_layer_is_other(c, layer) && c->full_head_dim)
            return c->full_head_dim;
    return config_rope_dim(c);
}

/* ---- keys and values ---- */

bool config_layer_is_other(const struct config *c, size_t layer)
{
    return (c->full_head_dim || c->full_kv_heads) && config_layer_kind(c, layer) == LAYER_FULL;
}

size_t config_kv_source(const struct config *c, size_t layer)
{
    const size_t first = c->layers - c->kv_shared;
    size_t source = layer;
    while (layer >= first && source > 0 &&
           (source >= first || config_layer_kind(c, source) != config_layer_kind(c, layer)))
        source--;
    return source;
}

bool config_owns_kv(const struct config *c, size_t layer)
{
    return layer_kind_attends(config_layer_kind(c, layer)) && config_kv_source(c, layer) == layer;
}

bool config_kv_read_from(const struct config *c, size_t layer, size_t from, size_t end)
{
    if (!config_owns_kv(c, layer))
        return false;
    for (size_t l = size_max(from, c->layers - c->kv_shared); l < end; l++)
        if (config_kv_source(c, l) == layer)
            return true;
    return false;
}

bool config_stores_kv(const struct config *c, size_t first, size_t n, size_t layer)
{
    return layer < first ? config_kv_read_from(c, layer, first, first + n)
                         : layer < first + n && config_owns_kv(c, layer);
}

size_t config_kv_layers(const struct config *c, size_t first, size_t n, enum kv_sizes sizes)
{
    size_t found = 0;
    for (size_t layer = 0; layer < first + n; layer++)
        found += config_stores_kv(c, first, n, layer) &&
                 (sizes == KV_ALL_SIZES || config_layer_is_other(c, layer) == (sizes == KV_OTHER));
    return found;
}

size_t config_kv_index(const struct config *c, size_t first, size_t n, size_t layer)
{
    const size_t source = config_kv_source(c, layer);
    const bool other = config_layer_is_other(c, source);
    /* an empty cache has a layer, too */
    size_t index = other ? size_max(1, config_kv_layers(c, first, n, KV_MAIN)) : 0;
    for (size_t l = 0; l < source; l++)
        index += config_stores_kv(c, first, n, l) && config_layer_is_other(c, l) == other;
    return index;
}

struct kv_shape config_kv_shape(const struct config *c, size_t max_rows, enum dtype type)
{
    const size_t other = config_kv_layers(c, 0, c->layers, KV_OTHER);
    return (struct kv_shape){.layers = config_kv_layers(c, 0, c->layers, KV_MAIN),
                             .kv_heads = c->kv_heads,
                             .head_dim = c->head_dim,
                             .max_rows = max_rows,
                             .type = type,
                             .v_dim = c->kv_lora_rank,
                             .other_layers = other,
                             .other_kv_heads = config_full_kv_heads(c),
                             .other_head_dim = config_full_head_dim(c)};
}

const struct config *config_of_layer(const struct config *c, size_t layer, struct config *own)
{
    const bool other = config_layer_is_other(c, layer),
               wide = c->kv_shared_ffn && layer >= c->layers - c->kv_shared;
    if (!other && !wide)
        return c;
    *own = *c;
    if (other) {
        own->head_dim = config_full_head_dim(c);
        own->kv_heads = config_full_kv_heads(c);
    }
    if (wide)
        own->ffn = c->kv_shared_ffn;
    return own;
}

bool config_layers_differ(const struct config *c)
{
    return c->full_head_dim || c->full_kv_heads || c->kv_shared || c->layer_input || c->expert_beside;
}

size_t config_rope_dim(const struct config *config)
{
    return config->rope_dim ? config->rope_dim : config->head_dim;
}

/* ---- lists as text ---- */

/* Shortens a list to its smallest period. */
static void shorten(struct layer_list *list)
{
    for (size_t period = 1; period < list->n; period++) {
        size_t i = period;
        while (i < list->n && list->value[i] == list->value[i - period])
            i++;
        if (i == list->n)
            list->n = period;
    }
}

/* Parses NAME or NAME*COUNT. */
static bool parse_run(const char *text, size_t len, const struct layer_words *words, uint8_t *value,
                      size_t *count)
{
    char number[32];
    const char *star = memchr(text, '*', len);
    const size_t name_len = star ? (size_t)(star - text) : len, digits = len - name_len;
    *count = 1;
    if (star) {
        if (digits < 2 || digits > sizeof number)
            return false;
        memcpy(number, star + 1, digits - 1);
        number[digits - 1] = 0;
        if (!parse_size(number, count) || *count == 0)
            return false;
    }
    for (size_t i = 0; words->names[i]; i++)
        if (strlen(words->names[i]) == name_len && memcmp(words->names[i], text, name_len) == 0) {
            *value = (uint8_t)(words->alias ? words->alias[i] : (int)i);
            return true;
        }
    return false;
}

int config_read_layers(struct layer_list *list, const char *text, const struct layer_words *words,
                       size_t layers, const char *name, struct err *err)
{
    static const char between[] = " \t,";
    bool repeats = false;
    *list = (struct layer_list){0};
    if (strcmp(text, "none") == 0)
        return 0;
    for (size_t len; *(text += strspn(text, between)); text += len) {
        uint8_t value = 0;
        size_t count = 0;
        len = strcspn(text, between);
        if (len == 3 && memcmp(text, "...", 3) == 0 && list->n && !text[len]) {
            repeats = true;
            continue;
        }
        if (!parse_run(text, len, words, &value, &count))
            return err_set(err, "%s: \"%s\" is %.*s for layer %zu; bmc-family(5) lists known kinds",
                           name, words->key, len > 40 ? 40 : (int)len, text, list->n);
        if (count > layers - list->n)
            return err_set(err, "%s: \"%s\" has more than %zu entries for %zu layers", name, words->key,
                           layers, layers);
        memset(list->value + list->n, value, count);
        list->n += count;
    }
    if (list->n != layers && !repeats)
        return err_set(err, "%s: \"%s\" has %zu entries for %zu layers", name, words->key, list->n,
                       layers);
    for (size_t i = list->n; i < layers; i++)
        list->value[i] = list->value[i - list->n];
    list->n = layers;
    shorten(list);
    return 0;
}

static const char *name_of(const struct layer_words *words, uint8_t value)
{
    size_t i = 0;
    while (words->alias && words->alias[i] != value)
        i++;
    return words->names[words->alias ? i : value];
}

int config_write_layers(const struct layer_list *list, const struct layer_words *words, size_t layers,
                        struct buf *text, struct err *err)
{
    int rc = buf_addf(text, err, "%s", words->key);
    for (size_t i = 0, run; i < list->n && rc == 0; i += run) {
        for (run = 1; i + run < list->n && list->value[i + run] == list->value[i];)
            run++;
        rc = buf_addf(text, err, " %s", name_of(words, list->value[i]));
        if (rc == 0 && run > 1)
            rc = buf_addf(text, err, "*%zu", run);
    }
    return rc < 0 ? -1 : buf_addf(text, err, "%s\n", list->n < layers ? " ..." : "");
}

/* ---- a whole configuration ---- */

/* Empties `list` if every layer has its default value. */
static void drop_defaults(const struct config *c, struct layer_list *list,
                          int (*standard)(const struct config *c, size_t layer))
{
    for (size_t layer = 0; layer < c->layers && list->n; layer++)
        if (list->value[layer % list->n] != standard(c, layer))
            return;
    list->n = 0;
}

static int standard_kind(const struct config *c, size_t layer) { return (int)default_kind(c, layer); }
static int standard_rope(const struct config *c, size_t layer) { return (int)default_rope(c, layer); }

/* Sizes of layers with full attention that are those of the others, or of all layers, are no others. */
static void reset_sizes(struct config *c)
{
    bool all = true, any = false;
    for (size_t layer = 0; layer < c->layers; layer++) {
        const bool full = config_layer_kind(c, layer) == LAYER_FULL;
        all &= full;
        any |= full;
    }
    if (all && c->full_head_dim)
        c->head_dim = c->full_head_dim;
    if (all && c->full_kv_heads)
        c->kv_heads = c->full_kv_heads;
    if (all || !any || c->full_head_dim == c->head_dim)
        c->full_head_dim = 0;
    if (all || !any || c->full_kv_heads == c->kv_heads)
        c->full_kv_heads = 0;
    if (!c->kv_shared || c->kv_shared_ffn == c->ffn)
        c->kv_shared_ffn = 0;
}

/* Checks what depends on sizes and on shared keys and values. */
static int finish_sizes(struct config *c, const char *name, struct err *err)
{
    reset_sizes(c);
    if (c->kv_shared >= c->layers)
        return err_set(err, "%s: kv_shared must be less than the %zu layers, found %zu", name,
                       c->layers, c->kv_shared);
    for (size_t layer = c->layers - c->kv_shared; layer < c->layers; layer++)
        if (config_layer_kind(c, config_kv_source(c, layer)) != config_layer_kind(c, layer))
            return err_set(err,
                           "%s: layer %zu has no keys and values, and no layer of its kind before "
                           "the last kv_shared, %zu, has any",
                           name, layer, c->kv_shared);
    for (size_t layer = 0; layer < c->layers; layer++) {
        const enum layer_rope rope = config_layer_rope(c, layer);
        const size_t dim = config_layer_is_other(c, layer) ? config_full_head_dim(c) : c->head_dim;
        if (rope != LAYER_NOPE && c->full_head_dim && config_table_dim(c, rope) != dim)
            return err_set(err,
                           "%s: heads of layer %zu have %zu elements, but others with the same "
                           "rotation have %zu, or rope_dim is given",
                           name, layer, dim, config_table_dim(c, rope));
    }
    return 0;
}

/* last_full that says nothing new is reset. */
static void reset_last_full(struct config *c)
{
    const bool last_full = c->last_full;
    c->last_full = false;
    c->last_full = last_full && config_layer_kind(c, c->layers - 1) != LAYER_FULL;
}

int config_finish_layers(struct config *c, const char *name, struct err *err)
{
    reset_last_full(c);
    drop_defaults(c, &c->layer_types, standard_kind);
    drop_defaults(c, &c->layer_rope, standard_rope);
    for (size_t layer = 0; layer < c->layers; layer++)
        if (!c->window && (config_layer_kind(c, layer) == LAYER_SLIDING ||
                           config_layer_kind(c, layer) == LAYER_CHUNKED))
            return err_set(err, "%s: layer_types has %s attention in layer %zu, but there is no window",
                           name, config_layer_kind(c, layer) == LAYER_SLIDING ? "sliding" : "chunked",
                           layer);
    if (c->position != POSITION_ROPE && c->layer_rope.n)
        return err_set(err, "%s: layer_rope needs position rope", name);
    return finish_sizes(c, name, err);
}
