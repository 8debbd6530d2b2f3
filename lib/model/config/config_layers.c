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

int config_finish_layers(struct config *c, const char *name, struct err *err)
{
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
    return 0;
}
