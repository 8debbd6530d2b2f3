/* Lists of heads that look far: read and checked line by line, and counted. */
#include "kv/kv_sparse.h"

#include <stdlib.h>
#include <string.h>

#include "base/conf.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/words.h"

enum { MOST_ROWS = 1 << 30 };

static int bad_line(const struct conf *conf, const struct conf_entry *entry, const char *expected,
                    struct err *err)
{
    return err_set(err, "%s:%d: %s is expected, found \"%s %s\"", conf->name, entry->line, expected,
                   excerpt_of(entry->key, strlen(entry->key)).text,
                   excerpt_of(entry->value, strlen(entry->value)).text);
}

static int take_rows(const struct conf *conf, const struct conf_entry *entry, size_t *rows,
                     struct err *err)
{
    const bool recent = strcmp(entry->key, "recent") == 0;
    if (conf_once(conf, entry, err) < 0)
        return -1;
    return parse_count(entry->value, rows) && *rows <= MOST_ROWS && *rows >= recent
               ? 0
               : bad_line(conf, entry, "a number of rows", err);
}

static int take_head(struct kv_sparse *s, const struct conf *conf, const struct conf_entry *entry,
                     struct err *err)
{
    size_t layer, head;
    if (!parse_size(entry->key, &layer) || !parse_size(entry->value, &head))
        return bad_line(conf, entry, "a layer and a KV head, or sink ROWS or recent ROWS,", err);
    if (layer >= s->layers || head >= s->kv_heads)
        return err_set(err,
                       "%s:%d: layer %zu, head %zu: the model has %zu layers of %zu KV heads, counted "
                       "from 0",
                       conf->name, entry->line, layer, head, s->layers, s->kv_heads);
    bool *is = &s->is[layer * s->kv_heads + head];
    if (!*is)
        return err_set(err, "%s:%d: layer %zu, head %zu is listed a second time", conf->name,
                       entry->line, layer, head);
    *is = false;
    s->n--;
    return 0;
}

static int take_entries(struct kv_sparse *s, const struct conf *conf, struct err *err)
{
    for (size_t i = 0; i < conf->n_entries; i++) {
        const struct conf_entry *entry = &conf->entry[i];
        const int rc = strcmp(entry->key, "sink") == 0     ? take_rows(conf, entry, &s->sink, err)
                       : strcmp(entry->key, "recent") == 0 ? take_rows(conf, entry, &s->recent, err)
                                                           : take_head(s, conf, entry, err);
        if (rc < 0)
            return -1;
    }
    return conf->n_entries
               ? 0
               : err_set(err, "%s: says nothing: bmc-prof heads makes such a list", conf->name);
}

static int take(struct kv_sparse *s, const struct conf *conf, size_t layers, size_t kv_heads,
                struct err *err)
{
    const size_t n = layers * kv_heads;
    *s = (struct kv_sparse){layers, kv_heads, SPARSE_SINK, SPARSE_RECENT, n, mem_alloc(n, 1)};
    if (!s->is)
        return err_set(err, "out of memory for a list of %zu heads", n);
    memset(s->is, true, n);
    if (take_entries(s, conf, err) == 0)
        return 0;
    kv_sparse_release(s);
    return -1;
}

int kv_sparse_parse(struct kv_sparse *sparse, const char *text, size_t size, const char *name,
                    size_t layers, size_t kv_heads, struct err *err)
{
    struct conf conf;
    if (conf_parse(&conf, text, size, name, err) < 0)
        return -1;
    const int rc = take(sparse, &conf, layers, kv_heads, err);
    conf_release(&conf);
    return rc;
}

int kv_sparse_open(struct kv_sparse *sparse, const char *path, size_t layers, size_t kv_heads,
                   struct err *err)
{
    struct conf conf;
    if (conf_open(&conf, path, err) < 0)
        return -1;
    const int rc = take(sparse, &conf, layers, kv_heads, err);
    conf_release(&conf);
    return rc;
}

int kv_sparse_copy(struct kv_sparse *to, const struct kv_sparse *from, struct err *err)
{
    const size_t n = from->layers * from->kv_heads;
    bool *is = mem_alloc(n, sizeof *is);
    if (!is)
        return err_set(err, "out of memory for a list of %zu heads", n);
    memcpy(is, from->is, n * sizeof *is);
    *to = *from;
    to->is = is;
    return 0;
}

void kv_sparse_release(struct kv_sparse *sparse)
{
    free(sparse->is);
    *sparse = (struct kv_sparse){0};
}

size_t kv_sparse_others(const struct kv_sparse *sparse, size_t layer, size_t end)
{
    size_t n = 0;
    for (size_t head = 0; head < end; head++)
        n += !kv_sparse_has(sparse, layer, head);
    return n;
}

size_t kv_sparse_widest(const struct kv_sparse *sparse, size_t group)
{
    size_t widest = 0;
    for (size_t l = 0; l < sparse->layers; l++)
        for (size_t head = 0, end; head < sparse->kv_heads; head = end) {
            end = size_min(head + group, sparse->kv_heads);
            widest =
                size_max(widest, kv_sparse_others(sparse, l, end) - kv_sparse_others(sparse, l, head));
        }
    return widest;
}
