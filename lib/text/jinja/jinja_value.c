/* Values of templates: arena and limits, strings, lists and dicts, operators. */
#include "text/jinja/jinja_value.h"

#include <utf8proc.h>

#include "base/mem.h"
#include "text/utf8.h"

/* ---- arena, limits and errors of the template interpreter ---- */

enum { CHUNK_BYTES = 1 << 16, ALIGN = 16 };

struct jinja_chunk {
    struct jinja_chunk *next;
    size_t size;
    _Alignas(ALIGN) char bytes[];
};

/* Line and column, from 1, of offset `pos`; columns count characters. */
static void place_of(const struct jinja_state *j, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < j->pos && i < j->source_len; i++) {
        const unsigned char c = (unsigned char)j->source[i];
        if (c == '\n') {
            ++*line;
            *column = 1;
        } else if ((c & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

void jinja_fail(struct jinja_state *j, const char *format, ...)
{
    char what[sizeof j->err->text];
    size_t line, column;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    text_make_printable(what, strlen(what), "");
    place_of(j, &line, &column);
    (void)err_set(j->err, "%s: line %zu, column %zu: %.*s", j->name, line, column,
                  (int)sizeof what / 4 * 3, what);
    longjmp(j->way_out, 1);
}

void *jinja_alloc(struct jinja_state *j, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > j->most_memory - j->used)
        jinja_fail(j, "the template needs more than %zu MB of memory", j->most_memory >> 20);
    bytes = bytes ? (bytes + ALIGN - 1) / ALIGN * ALIGN : ALIGN;
    if (bytes > j->left) {
        const size_t room = bytes > CHUNK_BYTES / 4 ? bytes : CHUNK_BYTES;
        struct jinja_chunk *chunk = malloc(sizeof *chunk + room);
        if (!chunk) {
            err_no_memory(j->err, "%s", j->name);
            longjmp(j->way_out, 1);
        }
        chunk->size = room;
        if (room == bytes && j->chunk) { /* the newest one keeps its free bytes */
            chunk->next = j->chunk->next;
            j->chunk->next = chunk;
            j->used += j->used + bytes > j->most_memory ? j->most_memory - j->used : bytes;
            return chunk->bytes;
        }
        chunk->next = j->chunk;
        j->chunk = chunk;
        j->left = room;
    }
    void *at = j->chunk->bytes + j->chunk->size - j->left;
    j->left -= bytes;
    j->used += size_min(bytes, j->most_memory - j->used);
    return at;
}

void *jinja_zalloc(struct jinja_state *j, size_t count, size_t size)
{
    void *at = jinja_alloc(j, count, size);
    memset(at, 0, count * size);
    return at;
}

void jinja_touch(struct jinja_state *j, size_t sixteenths)
{
    if (__builtin_add_overflow(j->work, sixteenths, &j->work))
        j->work = UINT64_MAX;
    if (j->work > j->most_work)
        jinja_fail(j, "the template takes more than %llu steps",
                   (unsigned long long)j->most_work / JINJA_STEP);
}

void jinja_enter(struct jinja_state *j)
{
    if (j->depth >= j->most_depth)
        jinja_fail(j, "nested deeper than %u levels", j->most_depth);
    j->depth++;
}

void *jinja_grow(struct jinja_state *j, void *array, size_t *cap, size_t used, size_t size)
{
    if (used < *cap)
        return array;
    const size_t more = *cap ? 2 * *cap : 4;
    void *copy = jinja_alloc(j, more, size);
    if (used)
        memcpy(copy, array, used * size);
    *cap = more;
    return copy;
}

void jinja_state_release(struct jinja_state *j)
{
    while (j->chunk) {
        struct jinja_chunk *next = j->chunk->next;
        free(j->chunk);
        j->chunk = next;
    }
}

/* ---- strings of templates ---- */

const struct js js_empty = {"", 0, NULL, false, true};

static bool is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return false;
    return true;
}

const struct js *js_new(struct jinja_state *j, const char *text, size_t len, bool content)
{
    struct js *s = jinja_alloc(j, 1, sizeof *s);
    jinja_touch(j, len / 2);
    *s = (struct js){len ? text : "", len, NULL, content, is_ascii(text, len)};
    return s;
}

const struct js *js_literal(struct jinja_state *j, const char *text)
{
    return js_new(j, text, strlen(text), false);
}

static void reserve(struct js_builder *b, size_t more)
{
    if (more <= b->cap - b->len)
        return;
    size_t cap = b->cap ? b->cap : 32;
    while (cap - b->len < more)
        if (__builtin_mul_overflow(cap, (size_t)2, &cap))
            jinja_fail(b->j, "a string is too long");
    char *text = jinja_alloc(b->j, cap, 1);
    unsigned char *mask = b->mask ? jinja_alloc(b->j, cap, 1) : NULL;
    if (b->len)
        memcpy(text, b->text, b->len);
    if (b->len && mask)
        memcpy(mask, b->mask, b->len);
    b->text = text;
    b->mask = mask;
    b->cap = cap;
}

/* Makes room for `more` bytes of an origin, or of several (`mixed`). */
static void open_room(struct js_builder *b, size_t more, bool content, bool mixed)
{
    reserve(b, more);
    jinja_touch(b->j, 4 + more / 4);
    if (b->len == 0 && !b->mask)
        b->content = content;
    if (b->mask || (!mixed && b->content == content))
        return;
    b->mask = jinja_alloc(b->j, b->cap, 1);
    memset(b->mask, b->content, b->len);
}

void js_add(struct js_builder *b, const char *text, size_t len, bool content)
{
    if (!len)
        return;
    open_room(b, len, content, false);
    memcpy(b->text + b->len, text, len);
    if (b->mask)
        memset(b->mask + b->len, content, len);
    b->len += len;
}

void js_add_part(struct js_builder *b, const struct js *s, size_t start, size_t end)
{
    if (!s->mask) {
        js_add(b, s->text + start, end - start, s->content);
        return;
    }
    if (start == end)
        return;
    open_room(b, end - start, s->content, true);
    memcpy(b->text + b->len, s->text + start, end - start);
    memcpy(b->mask + b->len, s->mask + start, end - start);
    b->len += end - start;
}

void js_add_str(struct js_builder *b, const struct js *s) { js_add_part(b, s, 0, s->len); }

void js_add_char(struct js_builder *b, uint32_t code, bool content)
{
    char bytes[UTF8_MAX];
    js_add(b, bytes, utf8_write(code, bytes), content);
}

const struct js *js_done(struct js_builder *b)
{
    struct js *s = jinja_alloc(b->j, 1, sizeof *s);
    jinja_touch(b->j, b->len / 2);
    *s = (struct js){b->len ? b->text : "", b->len, b->len ? b->mask : NULL, b->content,
                     is_ascii(b->text, b->len)};
    return s;
}

const struct js *js_part(struct jinja_state *j, const struct js *s, size_t start, size_t end)
{
    struct js *part = jinja_alloc(j, 1, sizeof *part);
    *part = *s;
    part->text += start;
    part->len = end - start;
    if (part->mask)
        part->mask += start;
    if (!part->len)
        part->mask = NULL;
    return part;
}

size_t js_count(struct jinja_state *j, const struct js *s)
{
    size_t n = 0;
    if (s->ascii)
        return s->len;
    jinja_touch(j, s->len / 2);
    for (size_t i = 0; i < s->len; i++)
        n += ((unsigned char)s->text[i] & 0xC0) != 0x80;
    return n;
}

size_t js_offset(struct jinja_state *j, const struct js *s, size_t i)
{
    if (s->ascii)
        return size_min(i, s->len);
    size_t at = 0;
    jinja_touch(j, size_min(i, s->len));
    for (size_t n = 0; at < s->len && n < i; n++) {
        uint32_t code;
        at += utf8_decode(s->text + at, &code);
    }
    return at;
}

bool js_is_content(const struct js *s, size_t at)
{
    return s->mask && s->len ? s->mask[size_min(at, s->len - 1)] : s->content;
}

bool js_any_content(const struct js *s)
{
    return s->mask ? memchr(s->mask, 1, s->len) != NULL : s->len && s->content;
}

bool js_is(const struct js *s, const char *text)
{
    return s->len == strlen(text) && memcmp(s->text, text, s->len) == 0;
}

bool js_equal(const struct js *a, const struct js *b)
{
    return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static int js_order(const struct js *a, const struct js *b)
{
    const int order = memcmp(a->text, b->text, size_min(a->len, b->len));
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

size_t js_find(struct jinja_state *j, const struct js *s, const struct js *what, size_t start,
               size_t end)
{
    if (start > end || end > s->len || what->len > end - start)
        return SIZE_MAX;
    /* memmem() may compare short strings at each position */
    const size_t each = 1 + size_min(what->len, 256) / 64;
    jinja_touch(j, JINJA_STEP + each * (end - start));
    const char *at =
        what->len ? memmem(s->text + start, end - start, what->text, what->len) : s->text + start;
    if (!at)
        return SIZE_MAX;
    j->work -= each * (end - (size_t)(at - s->text) - what->len); /* not looked at */
    return (size_t)(at - s->text);
}

size_t js_rfind(struct jinja_state *j, const struct js *s, const struct js *what, size_t start,
                size_t end)
{
    if (start > end || end > s->len || what->len > end - start)
        return SIZE_MAX;
    for (size_t at = end - what->len;; at--) {
        const bool begins = what->len == 0 || s->text[at] == *what->text;
        jinja_touch(j, begins ? JINJA_STEP + what->len / 4 : 1);
        if (begins && memcmp(s->text + at, what->text, what->len) == 0 &&
            (at == s->len || ((unsigned char)s->text[at] & 0xC0) != 0x80))
            return at;
        if (at == start)
            return SIZE_MAX;
    }
}

bool js_is_space(uint32_t code) { return (code >= 0x1C && code <= 0x1F) || utf8_is_space(code); }

/* True if a character is to be stripped. */
static bool strips(struct jinja_state *j, const struct js *chars, uint32_t code)
{
    jinja_touch(j, 4);
    if (!chars)
        return js_is_space(code);
    for (size_t i = 0; i < chars->len;) {
        uint32_t one;
        i += utf8_decode(chars->text + i, &one);
        jinja_touch(j, 2);
        if (one == code)
            return true;
    }
    return false;
}

const struct js *js_strip(struct jinja_state *j, const struct js *s, const struct js *chars,
                          unsigned sides)
{
    size_t start = 0, end = s->len;
    uint32_t code;
    while ((sides & JS_LEFT) && start < end) {
        const unsigned len = utf8_decode(s->text + start, &code);
        if (!strips(j, chars, code))
            break;
        start += len;
    }
    while ((sides & JS_RIGHT) && end > start) {
        const size_t before = utf8_before(s->text, end);
        utf8_decode(s->text + before, &code);
        if (!strips(j, chars, code))
            break;
        end = before;
    }
    return start == 0 && end == s->len ? s : js_part(j, s, start, end);
}

/* ---- upper and lower case, classes of characters ---- */

static bool is_letter(uint32_t code)
{
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static uint32_t lower(uint32_t code) { return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code); }
static uint32_t upper(uint32_t code) { return (uint32_t)utf8proc_toupper((utf8proc_int32_t)code); }
static bool is_cased(uint32_t code) { return lower(code) != code || upper(code) != code; }

static void add_upper(struct js_builder *b, uint32_t code, bool content, bool title)
{
    if (code == 0xDF) /* the only common letter whose upper case is two */
        js_add(b, title ? "Ss" : "SS", 2, content);
    else
        js_add_char(b, title ? (uint32_t)utf8proc_totitle((utf8proc_int32_t)code) : upper(code),
                    content);
}

static bool parts_words(uint32_t code)
{
    return js_is_space(code) || (code && code < 0x80 && strchr("-({[<", (int)code));
}

const struct js *js_case(struct jinja_state *j, const struct js *s, enum js_case to)
{
    struct js_builder b = {.j = j};
    bool begins = true; /* a word */
    jinja_touch(j, 12 * s->len);
    for (size_t at = 0; at < s->len;) {
        uint32_t code;
        const bool content = js_is_content(s, at);
        at += utf8_decode(s->text + at, &code);
        if (to == JS_UPPER || (to > JS_UPPER && begins))
            add_upper(&b, code, content, to != JS_UPPER);
        else
            js_add_char(&b, lower(code), content);
        begins = to == JS_TITLE ? !is_cased(code) : to == JS_WORDS ? parts_words(code) : false;
    }
    return js_done(&b);
}

static bool in_class(uint32_t code, enum js_class class)
{
    switch (class) {
    case JS_ALPHA: return is_letter(code);
    case JS_DIGIT: return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
    case JS_ALNUM: return is_letter(code) || utf8_is_numeric(code);
    case JS_SPACE: return js_is_space(code);
    case JS_IS_LOWER: return lower(code) == code;
    case JS_IS_UPPER: return upper(code) == code;
    }
    return false;
}

bool js_is_all(struct jinja_state *j, const struct js *s, enum js_class class)
{
    bool cased = class != JS_IS_LOWER && class != JS_IS_UPPER;
    for (size_t at = 0; at < s->len;) {
        uint32_t code;
        jinja_touch(j, 8);
        at += utf8_decode(s->text + at, &code);
        if (!in_class(code, class))
            return false;
        cased |= is_cased(code);
    }
    return s->len && cased;
}

/* ---- values of templates: lists and dicts ---- */

enum { FEW_ENTRIES = 8 };

struct jv jv_listed(struct jinja_state *j, enum jv_kind kind, size_t n)
{
    struct jv_list *list = jinja_alloc(j, 1, sizeof *list);
    *list = (struct jv_list){jinja_alloc(j, n, sizeof *list->item), n, 0};
    jinja_touch(j, 2 * n);
    return (struct jv){.kind = kind, .list = list};
}

struct jv jv_copied(struct jinja_state *j, enum jv_kind kind, const struct jv *item, size_t n)
{
    const struct jv copy = jv_listed(j, kind, n);
    if (n)
        memcpy(copy.list->item, item, n * sizeof *item);
    return copy;
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

/* Python's names of the kinds of values, and what can be done with them. */
static const struct {
    const char *type;
    unsigned traits;
} kinds[JV_KINDS] = {
    [JV_ABSENT] = {"absent", 0},
    [JV_UNDEFINED] = {"Undefined", JV_ITERABLE | JV_SEQUENCE | JV_CALLABLE},
    [JV_NONE] = {"NoneType", 0},
    [JV_BOOL] = {"bool", 0},
    [JV_INT] = {"int", 0},
    [JV_FLOAT] = {"float", 0},
    [JV_STRING] = {"str", JV_ITERABLE | JV_SEQUENCE},
    [JV_LIST] = {"list", JV_ITERABLE | JV_SEQUENCE},
    [JV_TUPLE] = {"tuple", JV_ITERABLE | JV_SEQUENCE},
    [JV_DICT] = {"dict", JV_ITERABLE | JV_SEQUENCE},
    [JV_RANGE] = {"range", JV_ITERABLE | JV_SEQUENCE},
    [JV_VIEW] = {"dict view", JV_ITERABLE},
    [JV_ITERATOR] = {"generator", JV_ITERABLE},
    [JV_NAMESPACE] = {"Namespace", 0},
    [JV_MACRO] = {"Macro", JV_CALLABLE},
    [JV_FUNCTION] = {"function", JV_CALLABLE},
    [JV_METHOD] = {"method", JV_CALLABLE},
    [JV_LOOP] = {"LoopContext", JV_CALLABLE},
};

const char *jv_type(struct jv value) { return kinds[value.kind].type; }

bool jv_has(struct jv value, enum jv_trait trait) { return kinds[value.kind].traits & trait; }

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

/* ---- truth, equality, order, membership and iteration of template values ---- */

bool jv_truth(struct jv value)
{
    switch (value.kind) {
    case JV_ABSENT:
    case JV_UNDEFINED:
    case JV_NONE: return false;
    case JV_BOOL: return value.b;
    case JV_INT: return value.i != 0;
    case JV_FLOAT: return value.f != 0;
    case JV_STRING: return value.s->len != 0;
    case JV_DICT: return value.dict->n != 0;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW: return value.list->n != 0;
    default: return true;
    }
}

bool jv_number(struct jv value, double *x)
{
    if (value.kind == JV_FLOAT)
        *x = value.f;
    else if (value.kind == JV_INT)
        *x = (double)value.i;
    else if (value.kind == JV_BOOL)
        *x = value.b;
    else
        return false;
    return true;
}

bool jv_integer(struct jv value, int64_t *i)
{
    if (value.kind != JV_INT && value.kind != JV_BOOL)
        return false;
    *i = value.kind == JV_INT ? value.i : value.b;
    return true;
}

int64_t jv_int_arg(struct jinja_state *j, struct jv value, const char *what)
{
    int64_t i;
    if (!jv_integer(value, &i))
        jinja_fail(j, "%s is of type %s, an integer is expected", what, jv_type(value));
    return i;
}

bool jv_same(struct jinja_state *j, struct jv a, struct jv b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case JV_NONE: return true;
    case JV_BOOL: return a.b == b.b;
    case JV_INT: return a.i == b.i;
    case JV_FLOAT: return memcmp(&a.f, &b.f, sizeof a.f) == 0;
    case JV_STRING: jinja_touch(j, a.s->len / 4); return js_equal(a.s, b.s);
    default: return a.list == b.list;
    }
}

static bool equal_lists(struct jinja_state *j, const struct jv_list *a, const struct jv_list *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jv_equal(j, a->item[i], b->item[i]))
            return false;
    return true;
}

static bool equal_dicts(struct jinja_state *j, const struct jv_dict *a, const struct jv_dict *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct jv *other = jv_dict_get(j, b, a->entry[i].key);
        if (!other || !jv_equal(j, a->entry[i].value, *other))
            return false;
    }
    return true;
}

bool jv_equal(struct jinja_state *j, struct jv a, struct jv b)
{
    double x, y;
    bool equal = false;
    jinja_work(j, 1);
    if (a.kind == JV_INT && b.kind == JV_INT)
        return a.i == b.i;
    if (jv_number(a, &x) && jv_number(b, &y))
        return x == y;
    if (a.kind != b.kind)
        return false;
    jinja_enter(j);
    switch (a.kind) {
    case JV_UNDEFINED:
    case JV_NONE: equal = true; break;
    case JV_STRING:
        jinja_touch(j, a.s->len == b.s->len ? a.s->len / 4 : 0);
        equal = js_equal(a.s, b.s);
        break;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE: equal = a.list == b.list || equal_lists(j, a.list, b.list); break;
    case JV_DICT: equal = a.dict == b.dict || equal_dicts(j, a.dict, b.dict); break;
    default: equal = jv_same(j, a, b); break;
    }
    jinja_leave(j);
    return equal;
}

static int order_lists(struct jinja_state *j, const struct jv_list *a, const struct jv_list *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (!jv_equal(j, a->item[i], b->item[i]))
            return jv_order(j, a->item[i], b->item[i]);
    return (a->n > b->n) - (a->n < b->n);
}

int jv_order(struct jinja_state *j, struct jv a, struct jv b)
{
    double x, y;
    jinja_work(j, 1);
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        jv_fail_undefined(j, a.kind == JV_UNDEFINED ? a : b);
    if (a.kind == JV_INT && b.kind == JV_INT)
        return (a.i > b.i) - (a.i < b.i);
    if (jv_number(a, &x) && jv_number(b, &y))
        return (x > y) - (x < y);
    if (a.kind == JV_STRING && b.kind == JV_STRING) {
        jinja_touch(j, size_min(a.s->len, b.s->len) / 4);
        return js_order(a.s, b.s);
    }
    if (!jv_is_listed(a) || a.kind != b.kind)
        jinja_fail(j, "values of types %s and %s have no order", jv_type(a), jv_type(b));
    jinja_enter(j);
    const int order = order_lists(j, a.list, b.list);
    jinja_leave(j);
    return order;
}

bool jv_contains(struct jinja_state *j, struct jv container, struct jv value)
{
    if (container.kind == JV_STRING) {
        if (value.kind == JV_UNDEFINED)
            jv_fail_undefined(j, value);
        if (value.kind != JV_STRING)
            jinja_fail(j, "a string contains strings, not a value of type %s", jv_type(value));
        return js_find(j, container.s, value.s, 0, container.s->len) != SIZE_MAX;
    }
    if (container.kind == JV_DICT) {
        if (!jv_is_key(value) && value.kind != JV_UNDEFINED)
            jinja_fail(j, "a value of type %s cannot be a key", jv_type(value));
        return jv_dict_get(j, container.dict, value) != NULL;
    }
    const struct jv_list *items = jv_items_of(j, container);
    for (size_t i = 0; i < items->n; i++)
        if (jv_equal(j, items->item[i], value))
            return true;
    return false;
}

static const struct jv_list *characters(struct jinja_state *j, const struct js *s)
{
    const struct jv list = jv_listed(j, JV_LIST, js_count(j, s));
    jinja_work(j, list.list->n);
    for (size_t i = 0, at = 0; at < s->len; i++) {
        uint32_t code;
        const size_t after = at + utf8_decode(s->text + at, &code);
        list.list->item[i] = jv_string(js_part(j, s, at, after));
        at = after;
    }
    return list.list;
}

static const struct jv_list *read_on(struct jinja_state *j, struct jv_list *iterator)
{
    struct jv_list *rest = jinja_alloc(j, 1, sizeof *rest);
    *rest = (struct jv_list){iterator->item + iterator->next, iterator->n - iterator->next, 0};
    iterator->next = iterator->n;
    return rest;
}

const struct jv_list *jv_items_of(struct jinja_state *j, struct jv value)
{
    static const struct jv_list nothing;
    struct jv keys;
    switch (value.kind) {
    case JV_UNDEFINED: return &nothing;
    case JV_STRING: return characters(j, value.s);
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW: jinja_touch(j, 4 * value.list->n); return value.list;
    case JV_ITERATOR:
        jinja_touch(j, 4 * (value.list->n - value.list->next));
        return read_on(j, value.list);
    case JV_DICT:
        keys = jv_listed(j, JV_LIST, value.dict->n);
        for (size_t i = 0; i < value.dict->n; i++)
            keys.list->item[i] = value.dict->entry[i].key;
        return keys.list;
    default: jinja_fail(j, "a value of type %s cannot be iterated over", jv_type(value));
    }
}

bool jv_length(struct jinja_state *j, struct jv value, size_t *length)
{
    switch (value.kind) {
    case JV_UNDEFINED: *length = 0; return true;
    case JV_STRING: *length = js_count(j, value.s); return true;
    case JV_DICT: *length = value.dict->n; return true;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW: *length = value.list->n; return true;
    case JV_LOOP: *length = value.loop->n; return true;
    default: return false;
    }
}

/* Merge sort of [low, high): stable, and bounded by the limit of steps. */
static void merge(struct jinja_state *j, struct jv *pair, struct jv *space, size_t n, bool reverse)
{
    if (n < 2)
        return;
    const size_t half = n / 2;
    merge(j, pair, space, half, reverse);
    merge(j, pair + 2 * half, space, n - half, reverse);
    memcpy(space, pair, 2 * n * sizeof *pair);
    size_t a = 0, b = half;
    for (size_t i = 0; i < n; i++) {
        bool second = a == half;
        if (a < half && b < n) {
            const int order = jv_order(j, space[2 * b], space[2 * a]);
            second = reverse ? order > 0 : order < 0;
        }
        const size_t from = second ? b++ : a++;
        pair[2 * i] = space[2 * from];
        pair[2 * i + 1] = space[2 * from + 1];
    }
}

void jv_sort(struct jinja_state *j, struct jv *value, struct jv *key, size_t n, bool reverse)
{
    struct jv *pair = jinja_alloc(j, n, 2 * sizeof *pair);
    struct jv *space = jinja_alloc(j, n, 2 * sizeof *space);
    for (size_t i = 0; i < n; i++) {
        pair[2 * i] = key ? key[i] : value[i];
        pair[2 * i + 1] = value[i];
    }
    merge(j, pair, space, n, reverse);
    for (size_t i = 0; i < n; i++)
        value[i] = pair[2 * i + 1];
}
