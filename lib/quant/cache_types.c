/* Element types of a KV cache: f32, half precision; 8 bits with one scale for the K or V vector of a head (BASS
 * paper A.1), or 6, 5 or 4 bits with multipliers of it, of rotated vectors; and those of earlier versions. */
#include "quant/cache_types.h"

#include <strings.h>

#include "quant/kv_entries.h"

const struct cache_type cache_types[] = {
    {"f32", DTYPE_F32},   {"bf16", DTYPE_BF16},
    {"f16", DTYPE_F16},   {"q8", DTYPE_KV8},
    {"q6", DTYPE_KV6},    {"q5", DTYPE_KV5},
    {"q4", DTYPE_KV4},    {"q8_channel", DTYPE_Q8_CHANNEL},
    {"q4_1", DTYPE_Q4_1}, {"q4h", DTYPE_Q4_1_ROTATED},
    {NULL, DTYPE_COUNT},
};

const char *cache_type_name(enum dtype type)
{
    for (size_t i = 0; cache_types[i].name; i++)
        if (cache_types[i].type == type)
            return cache_types[i].name;
    return NULL;
}

bool cache_type_find(const char *name, enum dtype *type)
{
    for (size_t i = 0; cache_types[i].name; i++)
        if (strcasecmp(name, cache_types[i].name) == 0) {
            *type = cache_types[i].type;
            return true;
        }
    return false;
}

static int unknown_type(const char *name, size_t len, struct err *err)
{
    char names[128] = "";
    for (size_t i = 0; cache_types[i].name; i++) {
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", cache_types[i].name);
    }
    return err_set(err,
                   "cache type \"%.*s\" is unknown; there are: %s, k=TYPE,v=TYPE, and with shared "
                   "scales q8:scales=FILE and q4:scales=FILE",
                   (int)size_min(len, 40), name, names);
}

static int parse_type(enum dtype *type, const char *text, size_t len, struct err *err)
{
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)size_min(len, sizeof name - 1), text);
    return len < sizeof name && cache_type_find(name, type) ? 0 : unknown_type(text, len, err);
}

/* Parses "k=q8" and "v=q4", in any order, each once. */
static int parse_apart(struct kv_types *types, const char *text, size_t len, struct err *err)
{
    bool given[2] = {false};
    for (const char *at = text, *end = text + len; at < end;) {
        const char *comma = memchr(at, ',', (size_t)(end - at)), *next = comma ? comma : end;
        const bool v = *at == 'v';
        if (next - at < 3 || (*at != 'k' && !v) || at[1] != '=')
            return err_set(err, "cache type \"%.40s\": \"%.*s\" is expected to be k=TYPE or v=TYPE",
                           text, (int)size_min((size_t)(next - at), 40), at);
        if (given[v])
            return err_set(err, "cache type \"%.40s\": %c= is given twice", text, *at);
        if (parse_type(v ? &types->v : &types->k, at + 2, (size_t)(next - at) - 2, err) < 0)
            return -1;
        given[v] = true;
        at = comma ? comma + 1 : end;
    }
    return 0;
}

/* The type that stands for "q8" or "q4" with shared scales, which are those of vectors that are not rotated. */
static enum dtype with_shared_scales(enum dtype type)
{
    return type == DTYPE_KV8 ? DTYPE_Q8_CHANNEL : type == DTYPE_KV4 ? DTYPE_Q4_1 : type;
}

int cache_types_parse(struct cache_types *types, const char *text, const char **scales, struct err *err)
{
    static const char before[] = ":scales=";
    const size_t len = strcspn(text, ":");
    struct kv_types all = {DTYPE_F32, DTYPE_F32};
    *scales = NULL;
    if (memchr(text, '=', len)) {
        if (parse_apart(&all, text, len, err) < 0)
            return -1;
    } else {
        if (parse_type(&all.k, text, len, err) < 0)
            return -1;
        all.v = all.k;
    }
    *types = (struct cache_types){.all = all};
    if (!text[len])
        return 0;
    types->all = (struct kv_types){with_shared_scales(all.k), with_shared_scales(all.v)};
    if (strncmp(text + len, before, sizeof before - 1) != 0 || !text[len + sizeof before - 1] ||
        !cache_type_shares_scales(types->all.k) || !cache_type_shares_scales(types->all.v))
        return err_set(err,
                       "cache type \"%.80s\": only q8:scales=FILE and q4:scales=FILE, or both apart, "
                       "can follow a colon",
                       text);
    *scales = text + len + sizeof before - 1;
    return 0;
}

/* The end of the layers from `first` on that have the same types. */
static size_t alike_end(const struct cache_types *types, size_t first)
{
    size_t end = first + 1;
    while (end < types->n && kv_types_equal(types->layer[end], types->layer[first]))
        end++;
    return end;
}

struct cache_types_text cache_types_format(const struct cache_types *types)
{
    struct cache_types_text t;
    const struct kv_types first = cache_types_of(types, 0);
    if (alike_end(types, 0) < types->n)
        snprintf(t.text, sizeof t.text, "per layer");
    else if (first.k == first.v)
        snprintf(t.text, sizeof t.text, "%s", cache_type_name(first.k));
    else
        snprintf(t.text, sizeof t.text, "k=%s,v=%s", cache_type_name(first.k),
                 cache_type_name(first.v));
    return t;
}

int cache_types_add(struct buf *text, const struct cache_types *types, struct err *err)
{
    int rc = 0;
    if (alike_end(types, 0) >= types->n)
        return buf_addf(text, err, "%s", cache_types_format(types).text);
    for (size_t first = 0, end; first < types->n && rc == 0; first = end) {
        const struct cache_types one = {.all = types->layer[first]};
        const char *space = first ? " " : "";
        end = alike_end(types, first);
        rc = end - first == 1 ? buf_addf(text, err, "%s%zu:", space, first)
                              : buf_addf(text, err, "%s%zu-%zu:", space, first, end - 1);
        if (rc == 0)
            rc = buf_addf(text, err, "%s", cache_types_format(&one).text);
    }
    return rc;
}

bool cache_types_any(const struct cache_types *types, bool (*is)(enum dtype type))
{
    bool any = !types->n && (is(types->all.k) || is(types->all.v));
    for (size_t i = 0; i < types->n; i++)
        any = any || is(types->layer[i].k) || is(types->layer[i].v);
    return any;
}

bool cache_type_shares_scales(enum dtype type)
{
    return type == DTYPE_Q8_CHANNEL || type == DTYPE_Q4_1;
}

bool cache_type_narrow(enum dtype type)
{
    return type == DTYPE_F16 || dtype_stored(type) == DTYPE_Q4_1;
}

bool cache_type_overflowed(enum dtype type, const void *row, const float *x, size_t n)
{
    return cache_type_narrow(type) && !dtype_finite(type, row, n) && dtype_finite(DTYPE_F32, x, n);
}
