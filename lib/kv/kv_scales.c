/* Files of shared scales of a quantised KV cache. */
#include "kv/kv_scales.h"

#include "base/conf.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/text_util.h"
#include "format/detect.h"

enum { MOST_WORDS = 5, MODEL_ID_TEXT = 2 * HASH_BYTES + 1 };

/* Lines that say by which rules a file was measured; files of older programs lack them. */
struct rule {
    const char *key, *value, *older; /* older: how older programs differ */
};
static const struct rule in_order = {"layers", "in_order", "which counted layers in another order"},
                         scaled = {"keys", "scaled", "whose keys of this model had other scales"};

static size_t layer_ranges(const struct kv_shape *shape, size_t layer)
{
    const struct kv_sizes *sizes = kv_sizes_of(shape, layer);
    return size_times(kv_matrices(sizes), sizes->kv_heads);
}

size_t kv_scales_count(const struct kv_shape *shape)
{
    size_t n = 0;
    for (size_t l = 0; l < shape->layers; l++)
        n = size_plus(n, layer_ranges(shape, l));
    return n < SIZE_MAX / 4 ? n : 0;
}

size_t kv_scales_index(const struct kv_shape *shape, size_t layer, bool v, size_t head)
{
    size_t index = v * kv_sizes_of(shape, layer)->kv_heads + head;
    for (size_t l = 0; l < layer; l++)
        index += layer_ranges(shape, l);
    return index;
}

/* Splits a text at blanks, in place; returns the number of words, or `most` + 1 if there are more. */
static size_t split_words(char *at, char **word, size_t most)
{
    size_t n = 0;
    for (at += strspn(at, " \t"); *at && n < most; at += strspn(at, " \t")) {
        word[n++] = at;
        at += strcspn(at, " \t");
        if (*at)
            *at++ = 0;
    }
    return n + (*at != 0);
}

static bool parse_range(char **word, struct kv_extent *range)
{
    double low, high;
    if (!parse_double(word[0], &low) || !parse_double(word[1], &high) ||
        !(fabs(low) <= KV_SCALES_LARGEST) || !(fabs(high) <= KV_SCALES_LARGEST) || low > high)
        return false;
    *range = (struct kv_extent){(float)low, (float)high};
    return true;
}

/* Ranges that have not been read are NaN. */
static int take_line(struct kv_scales *s, const struct conf *conf, const struct conf_entry *entry,
                     const struct kv_shape *shape, struct err *err)
{
    char *word[MOST_WORDS], *copy = strdup(entry->value);
    if (!copy)
        return err_no_memory(err, "%s", conf->name);
    size_t layer, head = 0;
    struct kv_extent range[2];
    const size_t n = split_words(copy, word, MOST_WORDS);
    const bool numbers = parse_size(entry->key, &layer) && n && parse_size(word[0], &head);
    const bool exists = numbers && layer < shape->layers && head < kv_sizes_of(shape, layer)->kv_heads;
    const size_t matrices = kv_matrices(kv_sizes_of(shape, exists ? layer : 0));
    bool ranges = exists && n == 1 + 2 * matrices;
    for (size_t m = 0; ranges && m < matrices; m++)
        ranges = parse_range(word + 1 + 2 * m, &range[m]);
    free(copy);
    if (numbers && !exists)
        return err_set(err, "%s:%d: the model has no layer %zu with a KV head %zu, counted from 0",
                       conf->name, entry->line, layer, head);
    if (!ranges)
        return err_set(
            err,
            "%s:%d: a layer, a KV head and the smallest and largest value of K%s, of at most %g, "
            "are expected, found \"%s %s\"",
            conf->name, entry->line, matrices > 1 ? " and of V" : "", KV_SCALES_LARGEST,
            excerpt_of(entry->key, strlen(entry->key)).text,
            excerpt_of(entry->value, strlen(entry->value)).text);
    for (size_t m = 0; m < matrices; m++) {
        struct kv_extent *to = &s->range[kv_scales_index(shape, layer, m, head)];
        if (!isnan(to->low))
            return err_set(err, "%s:%d: layer %zu, head %zu is there a second time", conf->name,
                           entry->line, layer, head);
        *to = range[m];
    }
    return 0;
}

int kv_scales_check_model(const struct conf *conf, const struct hash *model_id, const char *what,
                          const char *remedy, struct err *err)
{
    char id[MODEL_ID_TEXT];
    const char *found = conf_get_once(conf, "model_id", err);
    if (!found)
        return -1;
    hash_hex(model_id, HASH_BYTES, id);
    return strcmp(found, id) == 0
               ? 0
               : err_set(err, "%s: %s (model_id %.16s.., this one has %.16s..); %s", conf->name, what,
                         excerpt_of(found, strlen(found)).text, id, remedy);
}

/* Fails if a file lacks the line of a rule that it needs. */
static int check_rule(const struct conf *conf, const struct rule *rule, bool needed, struct err *err)
{
    const char *found = conf_get(conf, rule->key);
    if (found ? strcmp(found, rule->value) == 0 : !needed)
        return 0;
    return err_set(
        err, "%s: was written by an older program, %s: measure them again with bmc-prof cache-scales",
        conf->name, rule->older);
}

static int check_complete(const struct kv_scales *s, const struct conf *conf,
                          const struct kv_shape *shape, struct err *err)
{
    for (size_t l = 0; l < shape->layers; l++)
        for (size_t h = 0; h < kv_sizes_of(shape, l)->kv_heads; h++)
            if (isnan(s->range[kv_scales_index(shape, l, false, h)].low))
                return err_set(err, "%s: layer %zu, head %zu is missing", conf->name, l, h);
    return 0;
}

static int take_entries(struct kv_scales *s, const struct conf *conf, const struct kv_shape *shape,
                        bool scaled_keys, struct err *err)
{
    if (check_rule(conf, &in_order, shape->n_sizes > 1, err) < 0 ||
        check_rule(conf, &scaled, scaled_keys, err) < 0)
        return -1;
    for (size_t i = 0; i < conf->n_entries; i++)
        if (strcmp(conf->entry[i].key, "model_id") != 0 &&
            strcmp(conf->entry[i].key, in_order.key) != 0 &&
            strcmp(conf->entry[i].key, scaled.key) != 0 &&
            take_line(s, conf, &conf->entry[i], shape, err) < 0)
            return -1;
    return check_complete(s, conf, shape, err);
}

static int scales_of_file(struct kv_scales *s, const struct conf *conf, const struct kv_shape *shape,
                          const struct hash *model_id, bool scaled_keys, struct err *err)
{
    if (kv_scales_check_model(conf, model_id, "has the scales of another model",
                              "bmc-prof cache-scales measures those of this model", err) < 0)
        return -1;
    const size_t n = kv_scales_count(shape);
    *s = (struct kv_scales){.n = n, .range = mem_alloc(n, sizeof *s->range)};
    if (!s->range)
        return err_no_memory(err, "%s: %zu ranges", conf->name, n);
    for (size_t i = 0; i < n; i++)
        s->range[i].low = NAN;
    if (take_entries(s, conf, shape, scaled_keys, err) < 0) {
        kv_scales_release(s);
        return -1;
    }
    s->id = hash_of(s->range, n * sizeof *s->range);
    return 0;
}

int kv_scales_parse(struct kv_scales *scales, const char *text, size_t size, const char *name,
                    const struct kv_shape *shape, const struct hash *model_id, bool scaled_keys,
                    struct err *err)
{
    struct conf conf;
    if (conf_parse(&conf, text, size, name, err) < 0)
        return -1;
    const int rc = scales_of_file(scales, &conf, shape, model_id, scaled_keys, err);
    conf_release(&conf);
    return rc;
}

int kv_scales_open(struct kv_scales *scales, const char *path, const struct kv_shape *shape,
                   const struct hash *model_id, bool scaled_keys, struct err *err)
{
    struct conf conf;
    if (conf_open(&conf, path, err) < 0)
        return -1;
    const int rc = scales_of_file(scales, &conf, shape, model_id, scaled_keys, err);
    conf_release(&conf);
    return rc;
}

void kv_scales_release(struct kv_scales *scales)
{
    free(scales->range);
    *scales = (struct kv_scales){0};
}

int kv_scales_format(const struct kv_scales *scales, const struct kv_shape *shape,
                     const struct hash *model_id, bool scaled_keys, struct buf *text, struct err *err)
{
    char id[MODEL_ID_TEXT];
    hash_hex(model_id, HASH_BYTES, id);
    int rc = buf_addf(text, err, RANGES_BEGIN ", for --cache-type q8:scales=FILE\nmodel_id %s\n", id);
    if (rc == 0 && shape->n_sizes > 1)
        rc = buf_addf(text, err, "%s %s\n", in_order.key, in_order.value);
    if (rc == 0 && scaled_keys)
        rc = buf_addf(text, err, "%s %s\n", scaled.key, scaled.value);
    for (size_t l = 0; l < shape->layers; l++)
        for (size_t h = 0; rc == 0 && h < kv_sizes_of(shape, l)->kv_heads; h++) {
            const size_t matrices = kv_matrices(kv_sizes_of(shape, l));
            rc = buf_addf(text, err, "%zu %zu", l, h);
            for (size_t m = 0; rc == 0 && m < matrices; m++) {
                const struct kv_extent *range = &scales->range[kv_scales_index(shape, l, m, h)];
                rc = buf_addf(text, err, " %.9g %.9g", (double)range->low, (double)range->high);
            }
            if (rc == 0)
                rc = buf_addf(text, err, "\n");
        }
    return rc;
}
