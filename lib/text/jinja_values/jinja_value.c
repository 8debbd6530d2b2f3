/* Values of templates: lists and dicts. */
#include "text/jinja_values/jinja_value.h"

#include <math.h>
#include <string.h>

enum { FEW_ENTRIES = 8 };

struct jv jv_listed(struct jinja_state *j, enum jv_kind kind, size_t n)
{
    struct jv_list *list = jinja_alloc(j, 1, sizeof *list);
    *list = (struct jv_list){jinja_alloc(j, n, sizeof *list->item), n, 0};
    jinja_touch(j, 2 * n);
    return (struct jv){.kind = kind, .list = list};
}

struct jv jv_pair(struct jinja_state *j, struct jv a, struct jv b)
{
    const struct jv pair = jv_listed(j, JV_TUPLE, 2);
    pair.list->item[0] = a;
    pair.list->item[1] = b;
    return pair;
}

void jv_push(struct jinja_state *j, struct jv_items *items, struct jv value)
{
    jinja_touch(j, 2);
    items->item = jinja_grow(j, items->item, &items->cap, items->n, sizeof value);
    items->item[items->n++] = value;
}

struct jv jv_items_done(struct jinja_state *j, const struct jv_items *items, enum jv_kind kind)
{
    struct jv_list *list = jinja_alloc(j, 1, sizeof *list);
    *list = (struct jv_list){items->item ? items->item : jinja_alloc(j, 1, sizeof *items->item),
                             items->n, 0};
    jinja_touch(j, 2 * items->n);
    return (struct jv){.kind = kind, .list = list};
}

struct jv jv_dict_new(struct jinja_state *j)
{
    return (struct jv){.kind = JV_DICT, .dict = jinja_zalloc(j, 1, sizeof(struct jv_dict))};
}

bool jv_is_key(struct jv value)
{
    if (value.kind != JV_TUPLE)
        return value.kind >= JV_NONE && value.kind <= JV_STRING;
    for (size_t i = 0; i < value.list->n; i++) /* tuples of tuples are no keys here */
        if (value.list->item[i].kind == JV_TUPLE || !jv_is_key(value.list->item[i]))
            return false;
    return true;
}

static uint64_t hash_bytes(const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint64_t hash = 14695981039346656037U;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ at[i]) * 1099511628211U;
    return hash;
}

static bool is_number(struct jv v)
{
    return v.kind == JV_BOOL || v.kind == JV_INT || v.kind == JV_FLOAT;
}

/* The number that a key is; equal ones of different types are the same key. */
static double number_of(struct jv v)
{
    return v.kind == JV_FLOAT ? v.f : v.kind == JV_BOOL ? v.b : (double)v.i;
}

static uint64_t hash_key(struct jv key)
{
    uint64_t hash = 0;
    if (key.kind == JV_STRING)
        return hash_bytes(key.s->text, key.s->len);
    if (is_number(key)) {
        const double x = number_of(key) + 0.0; /* -0 is 0 */
        return hash_bytes(&x, sizeof x);
    }
    for (size_t i = 0; key.kind == JV_TUPLE && i < key.list->n; i++)
        hash = hash * 31 + hash_key(key.list->item[i]);
    return hash;
}

static bool same_key(struct jv a, struct jv b)
{
    if (is_number(a) && is_number(b))
        return a.kind == JV_FLOAT || b.kind == JV_FLOAT
                   ? number_of(a) == number_of(b)
                   : (a.kind == JV_BOOL ? a.b : a.i) == (b.kind == JV_BOOL ? b.b : b.i);
    if (a.kind != b.kind)
        return false;
    if (a.kind == JV_STRING)
        return js_equal(a.s, b.s);
    if (a.kind != JV_TUPLE)
        return true; /* none */
    if (a.list->n != b.list->n)
        return false;
    for (size_t i = 0; i < a.list->n; i++)
        if (!same_key(a.list->item[i], b.list->item[i]))
            return false;
    return true;
}

/* Counts the work of looking for a key: its bytes are hashed, and compared with those of some entries. */
static void touch_key(struct jinja_state *j, struct jv key)
{
    size_t bytes = key.kind == JV_STRING ? key.s->len : 0;
    for (size_t i = 0; key.kind == JV_TUPLE && i < key.list->n; i++)
        bytes += 4 + (key.list->item[i].kind == JV_STRING ? key.list->item[i].s->len : 0);
    jinja_touch(j, JINJA_STEP / 2 + 2 * bytes);
}

static void add_index(struct jinja_state *j, struct jv_dict *dict, size_t number)
{
    touch_key(j, dict->entry[number].key);
    size_t at = (size_t)hash_key(dict->entry[number].key) % dict->index_size;
    while (dict->index[at]) {
        jinja_touch(j, 4);
        at = (at + 1) % dict->index_size;
    }
    dict->index[at] = (uint32_t)number + 1;
}

struct jv *jv_dict_get(struct jinja_state *j, const struct jv_dict *dict, struct jv key)
{
    if (!jv_is_key(key))
        return NULL;
    touch_key(j, key);
    if (!dict->index) {
        for (size_t i = 0; i < dict->n; i++)
            if (same_key(dict->entry[i].key, key))
                return &dict->entry[i].value;
        return NULL;
    }
    size_t at = (size_t)hash_key(key) % dict->index_size;
    for (; dict->index[at]; at = (at + 1) % dict->index_size) {
        struct jv_entry *entry = &dict->entry[dict->index[at] - 1];
        touch_key(j, key);
        if (same_key(entry->key, key))
            return &entry->value;
    }
    return NULL;
}

void jv_dict_set(struct jinja_state *j, struct jv_dict *dict, struct jv key, struct jv value)
{
    if (key.kind == JV_UNDEFINED)
        jv_fail_undefined(j, key);
    if (!jv_is_key(key))
        jinja_fail(j, "a value of type %s cannot be a key", jv_type(key));
    struct jv *present = jv_dict_get(j, dict, key);
    if (present) {
        *present = value;
        return;
    }
    dict->entry = jinja_grow(j, dict->entry, &dict->cap, dict->n, sizeof *dict->entry);
    dict->entry[dict->n++] = (struct jv_entry){key, value};
    if (dict->n <= FEW_ENTRIES)
        return;
    if (dict->n > UINT32_MAX / 4)
        jinja_fail(j, "a dict has too many entries");
    if (dict->index && 2 * dict->n <= dict->index_size) {
        add_index(j, dict, dict->n - 1);
        return;
    }
    dict->index_size = 4 * dict->n;
    dict->index = jinja_zalloc(j, dict->index_size, sizeof *dict->index);
    for (size_t i = 0; i < dict->n; i++)
        add_index(j, dict, i);
}

const char *jv_type(struct jv value)
{
    static const char *const names[JV_KINDS] = {
        [JV_ABSENT] = "absent",
        [JV_UNDEFINED] = "Undefined",
        [JV_NONE] = "NoneType",
        [JV_BOOL] = "bool",
        [JV_INT] = "int",
        [JV_FLOAT] = "float",
        [JV_STRING] = "str",
        [JV_LIST] = "list",
        [JV_TUPLE] = "tuple",
        [JV_DICT] = "dict",
        [JV_RANGE] = "range",
        [JV_VIEW] = "dict view",
        [JV_ITERATOR] = "generator",
        [JV_NAMESPACE] = "Namespace",
        [JV_MACRO] = "Macro",
        [JV_FUNCTION] = "function",
        [JV_METHOD] = "method",
        [JV_LOOP] = "LoopContext",
        [JV_CYCLER] = "Cycler",
        [JV_JOINER] = "Joiner",
    };
    return names[value.kind];
}

void jv_fail_undefined(struct jinja_state *j, struct jv value)
{
    const int len = value.s ? (int)size_min(value.s->len, 100) : 0;
    if (value.s && value.owner != JV_ABSENT)
        jinja_fail(j, "a value of type %s has no attribute \"%.*s\" that templates may use",
                   jv_type((struct jv){.kind = value.owner}), len, value.s->text);
    if (value.s)
        jinja_fail(j, "\"%.*s\" is undefined", len, value.s->text);
    jinja_fail(j, "an undefined value is used");
}
