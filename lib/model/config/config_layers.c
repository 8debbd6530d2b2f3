/* Values that differ by layer, as text, and their checks. */
#include "model/config/config_layers.h"

#include <string.h>

#include "base/number.h"

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

static bool parse_number(const char *text, size_t len, size_t *value)
{
    char number[32];
    if (len == 0 || len >= sizeof number)
        return false;
    memcpy(number, text, len);
    number[len] = 0;
    return parse_size(number, value);
}

/* Parses NAME or NAME*COUNT. */
static bool parse_run(const char *text, size_t len, const struct layer_words *words, uint32_t *value,
                      size_t *count)
{
    const char *star = memchr(text, '*', len);
    const size_t name_len = star ? (size_t)(star - text) : len;
    *count = 1;
    if (star && (!parse_number(star + 1, len - name_len - 1, count) || *count == 0))
        return false;
    if (!words->names) {
        size_t number;
        const bool ok =
            parse_number(text, name_len, &number) && number >= words->min && number <= words->max;
        *value = ok ? (uint32_t)number : 0;
        return ok;
    }
    for (size_t i = 0; words->names[i]; i++)
        if (strlen(words->names[i]) == name_len && memcmp(words->names[i], text, name_len) == 0) {
            *value = (uint32_t)(words->alias ? words->alias[i] : (int)i);
            return true;
        }
    return false;
}

static int refuse_run(const struct layer_words *words, const char *text, size_t len, size_t layer,
                      const char *name, struct err *err)
{
    const int shown = len > 40 ? 40 : (int)len;
    if (words->names)
        return err_set(err, "%s: \"%s\" is %.*s for layer %zu; bmc-family(5) lists known kinds", name,
                       words->key, shown, text, layer);
    return err_set(err, "%s: \"%s\" is %.*s for layer %zu, expected a number from %zu to %zu", name,
                   words->key, shown, text, layer, words->min, words->max);
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
        uint32_t value = 0;
        size_t count = 0;
        len = strcspn(text, between);
        if (len == 3 && memcmp(text, "...", 3) == 0 && list->n && !text[len]) {
            repeats = true;
            continue;
        }
        if (!parse_run(text, len, words, &value, &count))
            return refuse_run(words, text, len, list->n, name, err);
        if (count > layers - list->n)
            return err_set(err, "%s: \"%s\" has more than %zu entries for %zu layers", name, words->key,
                           layers, layers);
        for (const size_t end = list->n + count; list->n < end;)
            list->value[list->n++] = value;
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

static int write_value(const struct layer_words *words, uint32_t value, struct buf *text,
                       struct err *err)
{
    size_t i = 0;
    if (!words->names)
        return buf_addf(text, err, " %u", value);
    while (words->alias && words->alias[i] != (int)value)
        i++;
    return buf_addf(text, err, " %s", words->names[words->alias ? i : value]);
}

int config_write_layers(const struct layer_list *list, const struct layer_words *words, size_t layers,
                        struct buf *text, struct err *err)
{
    int rc = buf_addf(text, err, "%s", words->key);
    for (size_t i = 0, run; i < list->n && rc == 0; i += run) {
        for (run = 1; i + run < list->n && list->value[i + run] == list->value[i];)
            run++;
        rc = write_value(words, list->value[i], text, err);
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
        if ((int)list->value[layer % list->n] != standard(c, layer))
            return;
    list->n = 0;
}

static int standard_kind(const struct config *c, size_t layer)
{
    return (int)keys_default_kind(c, layer);
}
static int standard_rope(const struct config *c, size_t layer)
{
    return (int)keys_default_rope(c, layer);
}

/* A list of sizes of heads replaces the key for layers with full attention, and the key of the others is its largest;
 * a list of equal sizes is none. */
static void reset_size_list(struct layer_list *list, size_t *size, size_t *of_full)
{
    if (!list->n)
        return;
    *size = *of_full = 0;
    for (size_t i = 0; i < list->n; i++)
        *size = size_max(*size, list->value[i]);
    if (list->n == 1)
        list->n = 0;
}

/* Sizes of layers with full attention that are those of the others, or of all layers, are no others. */
static void reset_sizes(struct config *c, struct config_keys *keys)
{
    bool all = true, any = false;
    reset_size_list(&keys->layer_kv_heads, &c->kv_heads, &keys->full_kv_heads);
    reset_size_list(&keys->layer_head_dim, &c->head_dim, &keys->full_head_dim);
    for (size_t layer = 0; layer < c->layers; layer++) {
        const bool full = keys_kind(c, layer) == LAYER_FULL;
        all &= full;
        any |= full;
    }
    if (all && keys->full_head_dim)
        c->head_dim = keys->full_head_dim;
    if (all && keys->full_kv_heads)
        c->kv_heads = keys->full_kv_heads;
    if (all || !any || keys->full_head_dim == c->head_dim)
        keys->full_head_dim = 0;
    if (all || !any || keys->full_kv_heads == c->kv_heads)
        keys->full_kv_heads = 0;
    if (!keys->kv_shared || keys->kv_shared_ffn == c->ffn)
        keys->kv_shared_ffn = 0;
}

/* Checks what depends on shared keys and values. */
static int check_sources(const struct config *c, const char *name, struct err *err)
{
    const size_t shared = c->keys->kv_shared;
    if (shared >= c->layers)
        return err_set(err, "%s: kv_shared must be less than the %zu layers, found %zu", name,
                       c->layers, shared);
    for (size_t layer = c->layers - shared; layer < c->layers; layer++)
        if (keys_kind(c, keys_kv_source(c, layer)) != keys_kind(c, layer))
            return err_set(err,
                           "%s: layer %zu has no keys and values, and no layer of its kind before "
                           "the last kv_shared, %zu, has any",
                           name, layer, shared);
    return 0;
}

/* last_full that says nothing new is reset. */
static void reset_last_full(const struct config *c, struct config_keys *keys)
{
    const bool last_full = keys->last_full;
    keys->last_full = false;
    keys->last_full = last_full && keys_kind(c, c->layers - 1) != LAYER_FULL;
}

int config_finish_layers(struct config_text *text, const char *name, struct err *err)
{
    struct config_keys *keys = &text->keys;
    struct config *c = &text->config;
    reset_last_full(c, keys);
    drop_defaults(c, &keys->layer_types, standard_kind);
    drop_defaults(c, &keys->layer_rope, standard_rope);
    for (size_t layer = 0; layer < c->layers && !keys->window; layer++) {
        const enum layer_kind kind = keys_kind(c, layer);
        if (kind == LAYER_SLIDING || kind == LAYER_CHUNKED)
            return err_set(err, "%s: layer_types has %s attention in layer %zu, but there is no window",
                           name, kind == LAYER_SLIDING ? "sliding" : "chunked", layer);
    }
    if (c->position != POSITION_ROPE && keys->layer_rope.n)
        return err_set(err, "%s: layer_rope needs position rope", name);
    reset_sizes(c, keys);
    return check_sources(c, name, err);
}

int config_check_rotations(const struct config *c, const char *name, struct err *err)
{
    bool differ = false;
    for (size_t layer = 0; layer < c->layers; layer++)
        differ |= c->plan[layer].head_dim != c->head_dim;
    for (size_t layer = 0; layer < c->layers && differ; layer++) {
        const enum layer_rope rope = c->plan[layer].rope;
        const size_t dim = c->plan[layer].head_dim;
        if (rope != LAYER_NOPE && c->rope[rope].dim != dim)
            return err_set(err,
                           "%s: heads of layer %zu have %zu elements, but others with the same "
                           "rotation have %zu, or rope_dim is given",
                           name, layer, dim, c->rope[rope].dim);
    }
    return 0;
}
