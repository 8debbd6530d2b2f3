/* Strings of templates. */
#include "text/jinja_values/jinja_string.h"

#include <string.h>

#include "text/utf8.h"

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

int js_order(const struct js *a, const struct js *b)
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
