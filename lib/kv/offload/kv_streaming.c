/* Parses lists of retrieval heads, and counts such heads. */
#include "kv/offload/kv_streaming.h"

#include "base/conf.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/text_util.h"

enum { MOST_ROWS = 1 << 30 };

static int bad_line(const struct conf *conf, const struct conf_entry *entry, const char *expected,
                    struct err *err)
{
    return err_set(err, "%s:%d: %s is expected, found \"%s %s\"", conf->name, entry->line, expected,
                   excerpt_of(entry->key, strlen(entry->key)).text,
                   excerpt_of(entry->value, strlen(entry->value)).text);
}

static int take_count(const struct conf *conf, const struct conf_entry *entry, size_t *rows,
                      struct err *err)
{
    const bool recent = strcmp(entry->key, "recent") == 0;
    if (conf_once(conf, entry, err) < 0)
        return -1;
    return parse_count(entry->value, rows) && *rows <= MOST_ROWS && *rows >= recent
               ? 0
               : bad_line(conf, entry, "a number of rows", err);
}

static int take_head(struct kv_streaming *s, const struct conf *conf, const struct conf_entry *entry,
                     struct err *err)
{
    size_t layer, head;
    if (!parse_size(entry->key, &layer) || !parse_size(entry->value, &head))
        return bad_line(conf, entry, "a layer and a KV head, sink ROWS or recent ROWS", err);
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

static int take_entries(struct kv_streaming *s, const struct conf *conf, struct err *err)
{
    for (size_t i = 0; i < conf->n_entries; i++) {
        const struct conf_entry *entry = &conf->entry[i];
        const int rc = strcmp(entry->key, "sink") == 0     ? take_count(conf, entry, &s->sink, err)
                       : strcmp(entry->key, "recent") == 0 ? take_count(conf, entry, &s->recent, err)
                                                           : take_head(s, conf, entry, err);
        if (rc < 0)
            return -1;
    }
    return conf->n_entries
               ? 0
               : err_set(err, "%s: the list of retrieval heads is empty: bmc-prof heads writes one",
                         conf->name);
}

static int streaming_of_file(struct kv_streaming *s, const struct conf *conf, size_t layers,
                             size_t kv_heads, struct err *err)
{
    const size_t n = layers * kv_heads;
    *s = (struct kv_streaming){layers, kv_heads, STREAMING_SINK, STREAMING_RECENT, n, mem_alloc(n, 1)};
    if (!s->is)
        return err_no_memory(err, "a list of %zu heads", n);
    memset(s->is, true, n);
    if (take_entries(s, conf, err) == 0)
        return 0;
    kv_streaming_release(s);
    return -1;
}

int kv_streaming_parse(struct kv_streaming *streaming, const char *text, size_t size, const char *name,
                       size_t layers, size_t kv_heads, struct err *err)
{
    struct conf conf;
    if (conf_parse(&conf, text, size, name, err) < 0)
        return -1;
    const int rc = streaming_of_file(streaming, &conf, layers, kv_heads, err);
    conf_release(&conf);
    return rc;
}

int kv_streaming_open(struct kv_streaming *streaming, const char *path, size_t layers, size_t kv_heads,
                      struct err *err)
{
    struct conf conf;
    if (conf_open(&conf, path, err) < 0)
        return -1;
    const int rc = streaming_of_file(streaming, &conf, layers, kv_heads, err);
    conf_release(&conf);
    return rc;
}

int kv_streaming_copy(struct kv_streaming *to, const struct kv_streaming *from, struct err *err)
{
    const size_t n = from->layers * from->kv_heads;
    bool *is = mem_alloc(n, sizeof *is);
    if (!is)
        return err_no_memory(err, "a list of %zu heads", n);
    memcpy(is, from->is, n * sizeof *is);
    *to = *from;
    to->is = is;
    return 0;
}

void kv_streaming_release(struct kv_streaming *streaming)
{
    free(streaming->is);
    *streaming = (struct kv_streaming){0};
}

size_t kv_retrieval_count(const struct kv_streaming *streaming, size_t layer, size_t end)
{
    size_t n = 0;
    for (size_t head = 0; head < end; head++)
        n += !kv_is_streaming(streaming, layer, head);
    return n;
}

size_t kv_retrieval_widest(const struct kv_streaming *streaming, size_t group)
{
    size_t widest = 0;
    for (size_t l = 0; l < streaming->layers; l++)
        for (size_t head = 0, end; head < streaming->kv_heads; head = end) {
            end = size_min(head + group, streaming->kv_heads);
            widest = size_max(widest, kv_retrieval_count(streaming, l, end) -
                                          kv_retrieval_count(streaming, l, head));
        }
    return widest;
}
