/* Files of costs of KV entries' types, and the choice of types within a budget. */
#include "kv/kv_sensitivity.h"

#include "base/conf.h"
#include "base/file.h"
#include "base/number.h"
#include "base/text_util.h"
#include "format/detect.h"
#include "kv/kv_scales.h"

enum { MODEL_ID_TEXT = 2 * HASH_BYTES + 1, VERSION = 1 };

#define TYPE_PREFIX "type."

/* Parses "K V": two costs. */
static bool parse_costs(const char *text, double *cost)
{
    char first[40];
    const size_t len = strcspn(text, " \t");
    snprintf(first, sizeof first, "%.*s", (int)size_min(len, sizeof first - 1), text);
    text += len + strspn(text + len, " \t");
    return len < sizeof first && parse_double(first, &cost[0]) && parse_double(text, &cost[1]) &&
           cost[0] >= 0 && cost[1] >= 0 && cost[0] <= 1e9 && cost[1] <= 1e9;
}

/* True for keys that take() reads. */
static bool is_setting(const char *key)
{
    static const char *const names[] = {"version", "model_id", "tokens", "probe"};
    bool is = false;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        is = is || strcmp(key, names[i]) == 0;
    return is;
}

/* Parts that have not been read are NaN. */
static int take_line(struct kv_sensitivity *s, const struct conf *conf, const struct conf_entry *entry,
                     struct err *err)
{
    const bool type = strncmp(entry->key, TYPE_PREFIX, sizeof TYPE_PREFIX - 1) == 0;
    double cost[2];
    size_t layer = 0;
    enum dtype found = DTYPE_F32;
    if (is_setting(entry->key))
        return 0;
    if (type ? !cache_type_find(entry->key + sizeof TYPE_PREFIX - 1, &found)
             : !parse_size(entry->key, &layer) || layer >= s->layers)
        return err_set(err, "%s:%d: \"%s\" is no cache type of this program, or no layer of %zu",
                       conf->name, entry->line, excerpt_of(entry->key, strlen(entry->key)).text,
                       s->layers);
    if (!parse_costs(entry->value, cost))
        return err_set(err, "%s:%d: two costs, of keys and of values, are expected, found \"%s\"",
                       conf->name, entry->line, excerpt_of(entry->value, strlen(entry->value)).text);
    if (!type) {
        if (!isnan(s->part[layer][0]))
            return err_set(err, "%s:%d: layer %zu is there a second time", conf->name, entry->line,
                           layer);
        memcpy(s->part[layer], cost, sizeof cost);
        return 0;
    }
    if (s->n_types == KV_SENSITIVITY_TYPES || conf_once(conf, entry, err) < 0)
        return s->n_types == KV_SENSITIVITY_TYPES
                   ? err_set(err, "%s:%d: more than %d types", conf->name, entry->line,
                             KV_SENSITIVITY_TYPES)
                   : -1;
    s->type[s->n_types].type = found;
    memcpy(s->type[s->n_types++].kld, cost, sizeof cost);
    return 0;
}

static int check_model(const struct conf *conf, const struct hash *model_id, struct err *err)
{
    size_t version;
    if (conf_get_size(conf, "version", VERSION, VERSION, &version, err) < 0)
        return -1;
    return kv_scales_check_model(conf, model_id, "was measured on another model",
                                 "bmc-prof cache-types measures this model", err);
}

static int take(struct kv_sensitivity *s, const struct conf *conf, const struct kv_shape *shape,
                const struct hash *model_id, struct err *err)
{
    if (check_model(conf, model_id, err) < 0)
        return -1;
    s->layers = shape->layers;
    s->part = mem_alloc(shape->layers, sizeof *s->part);
    if (!s->part)
        return err_no_memory(err, "%s: %zu layers", conf->name, shape->layers);
    for (size_t l = 0; l < shape->layers; l++)
        s->part[l][0] = NAN;
    const char *probe = conf_get_once(conf, "probe", err);
    if (!probe || conf_get_size(conf, "tokens", 1, SIZE_MAX / 2, &s->tokens, err) < 0)
        return -1;
    if (!cache_type_find(probe, &s->probe))
        return err_set(err, "%s: the probe \"%s\" is no cache type of this program", conf->name,
                       excerpt_of(probe, strlen(probe)).text);
    for (size_t i = 0; i < conf->n_entries; i++)
        if (take_line(s, conf, &conf->entry[i], err) < 0)
            return -1;
    for (size_t l = 0; l < shape->layers; l++)
        if (isnan(s->part[l][0]))
            return err_set(err, "%s: layer %zu is missing", conf->name, l);
    return s->n_types ? 0 : err_set(err, "%s: has no types", conf->name);
}

/* Releases the text, too. */
static int take_text(struct kv_sensitivity *s, struct conf *conf, const struct kv_shape *shape,
                     const struct hash *model_id, struct err *err)
{
    *s = (struct kv_sensitivity){0};
    const int rc = take(s, conf, shape, model_id, err);
    conf_release(conf);
    if (rc < 0)
        kv_sensitivity_release(s);
    return rc;
}

int kv_sensitivity_parse(struct kv_sensitivity *s, const char *text, size_t size, const char *name,
                         const struct kv_shape *shape, const struct hash *model_id, struct err *err)
{
    struct conf conf;
    return conf_parse(&conf, text, size, name, err) < 0 ? -1
                                                        : take_text(s, &conf, shape, model_id, err);
}

/* The same of a file. */
static MUST_USE int kv_sensitivity_open(struct kv_sensitivity *s, const char *path,
                                        const struct kv_shape *shape, const struct hash *model_id,
                                        struct err *err)
{
    struct conf conf;
    return conf_open(&conf, path, err) < 0 ? -1 : take_text(s, &conf, shape, model_id, err);
}

void kv_sensitivity_release(struct kv_sensitivity *s)
{
    free(s->part);
    *s = (struct kv_sensitivity){0};
}

int kv_sensitivity_format(const struct kv_sensitivity *s, const struct hash *model_id, struct buf *text,
                          struct err *err)
{
    char id[MODEL_ID_TEXT];
    hash_hex(model_id, HASH_BYTES, id);
    int rc =
        buf_addf(text, err,
                 SENSITIVITY_BEGIN ", for --cache-kld\nversion %d\nmodel_id %s\ntokens %zu\nprobe %s\n",
                 VERSION, id, s->tokens, cache_type_name(s->probe));
    for (size_t i = 0; rc == 0 && i < s->n_types; i++)
        rc = buf_addf(text, err, TYPE_PREFIX "%s %.6g %.6g\n", cache_type_name(s->type[i].type),
                      s->type[i].kld[0], s->type[i].kld[1]);
    for (size_t l = 0; rc == 0 && l < s->layers; l++)
        rc = buf_addf(text, err, "%zu %.6g %.6g\n", l, s->part[l][0], s->part[l][1]);
    return rc;
}

/* ---- the choice ---- */

/* Types of K and V of a layer, by their numbers in kv_sensitivity.type; n_types is f32, at no cost. */
struct option_of_layer {
    size_t k, v;
};

struct choosing {
    const struct kv_sensitivity *s;
    const struct kv_shape *shape;
    double sum[2];               /* of parts */
    struct option_of_layer *now; /* [layers] */
};

static enum dtype type_of(const struct choosing *c, size_t i)
{
    return i < c->s->n_types ? c->s->type[i].type : DTYPE_F32;
}

static double cost_of(const struct choosing *c, size_t layer, struct option_of_layer o)
{
    const size_t of[2] = {o.k, o.v};
    double cost = 0;
    for (size_t m = 0; m < kv_matrices(kv_sizes_of(c->shape, layer)); m++)
        if (of[m] < c->s->n_types && c->sum[m] > 0)
            cost += c->s->type[of[m]].kld[m] * c->s->part[layer][m] / c->sum[m];
    return cost;
}

static size_t bytes_of(const struct choosing *c, size_t layer, struct option_of_layer o)
{
    struct kv_sizes sizes = *kv_sizes_of(c->shape, layer);
    sizes.type[KV_K] = type_of(c, o.k);
    sizes.type[KV_V] = type_of(c, o.v);
    return kv_sizes_bytes(&sizes);
}

/* Finds the change of one layer that saves the most bytes per cost, and costs at most `left`; false: there is none. */
static bool find_change(const struct choosing *c, double left, size_t *layer,
                        struct option_of_layer *to)
{
    double best = 0;
    for (size_t l = 0; l < c->shape->layers; l++) {
        const double cost = cost_of(c, l, c->now[l]);
        const size_t bytes = bytes_of(c, l, c->now[l]);
        const bool one = kv_matrices(kv_sizes_of(c->shape, l)) == 1;
        for (size_t k = 0; k < c->s->n_types; k++)
            for (size_t v = one ? k : 0; v < (one ? k + 1 : c->s->n_types); v++) {
                const struct option_of_layer o = {k, v};
                const double more = cost_of(c, l, o) - cost;
                if (dtype_is_quantized(type_of(c, k)) != dtype_is_quantized(type_of(c, v)) ||
                    bytes_of(c, l, o) >= bytes || more > left)
                    continue;
                const double rate = (double)(bytes - bytes_of(c, l, o)) / fmax(more, 1e-30);
                if (rate <= best)
                    continue;
                best = rate;
                *layer = l;
                *to = o;
            }
    }
    return best > 0;
}

int kv_sensitivity_choose(const struct kv_sensitivity *s, const struct kv_shape *shape, double budget,
                          struct kv_types *types, double *cost, struct err *err)
{
    struct choosing c = {s, shape, {0, 0}, mem_alloc(shape->layers, sizeof *c.now)};
    struct kv_shape chosen = {.max_rows = shape->max_rows};
    size_t layer;
    struct option_of_layer to;
    *cost = 0;
    if (!c.now)
        return err_no_memory(err, "%zu layers", shape->layers);
    for (size_t l = 0; l < shape->layers; l++) {
        c.now[l] = (struct option_of_layer){s->n_types, s->n_types};
        for (size_t m = 0; m < 2; m++)
            c.sum[m] += s->part[l][m];
    }
    while (find_change(&c, budget - *cost, &layer, &to)) {
        *cost += cost_of(&c, layer, to) - cost_of(&c, layer, c.now[layer]);
        c.now[layer] = to;
    }
    bool fits = true;
    for (size_t l = 0; l < shape->layers; l++) {
        struct kv_sizes sizes = *kv_sizes_of(shape, l);
        types[l] = (struct kv_types){type_of(&c, c.now[l].k), type_of(&c, c.now[l].v)};
        sizes.type[KV_K] = types[l].k;
        sizes.type[KV_V] = types[l].v;
        fits = fits && kv_shape_add(&chosen, sizes);
    }
    free(c.now);
    return fits
               ? 0
               : err_set(err, "layers would have more than %d different sizes and types", KV_MAX_SIZES);
}

int kv_chosen_types_open(struct kv_chosen_types *chosen, const char *text, const char *path,
                         const struct kv_shape *shape, const struct hash *model_id, struct err *err)
{
    const size_t len = strcspn(text, ":");
    const char *file = text[len] ? text + len + 1 : path;
    struct kv_sensitivity s;
    char number[32];
    double budget;
    snprintf(number, sizeof number, "%.*s", (int)size_min(len, sizeof number - 1), text);
    if (!parse_double(number, &budget) || !(budget >= 0) || (text[len] && !*file))
        return err_code(err, ERR_INVALID,
                        "--cache-kld: a divergence of 0 or more is expected, as 0.01 or 0.01:FILE, "
                        "found \"%.80s\"",
                        text);
    if (!file)
        return err_code(err, ERR_INVALID,
                        "--cache-kld: the file of costs is missing: give it, as %s:FILE", number);
    if (!text[len] && !file_exists(file))
        return err_set(err, "--cache-kld: %s does not exist: bmc-prof cache-types measures the model",
                       file);
    if (kv_sensitivity_open(&s, file, shape, model_id, err) < 0)
        return err_prefix(err, "--cache-kld");
    *chosen =
        (struct kv_chosen_types){mem_alloc(shape->layers, sizeof *chosen->layer), shape->layers, 0};
    const int rc = chosen->layer
                       ? kv_sensitivity_choose(&s, shape, budget, chosen->layer, &chosen->kld, err)
                       : err_no_memory(err, "%zu layers", shape->layers);
    kv_sensitivity_release(&s);
    if (rc < 0)
        kv_chosen_types_release(chosen);
    return rc;
}

void kv_chosen_types_release(struct kv_chosen_types *chosen)
{
    free(chosen->layer);
    *chosen = (struct kv_chosen_types){0};
}

struct cache_types kv_chosen_types_of(const struct kv_chosen_types *chosen)
{
    return (struct cache_types){chosen->layer[0], chosen->layers, chosen->layer};
}
