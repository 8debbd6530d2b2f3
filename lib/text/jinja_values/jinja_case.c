/* Upper and lower case, classes of characters. */
#include "text/jinja_values/jinja_case.h"

#include <string.h>

#include <utf8proc.h>

#include "text/utf8.h"

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
        if (to == JS_UPPER || (to == JS_SWAP && lower(code) != code) ||
            (to > JS_UPPER && to < JS_SWAP && begins)) {
            if (to == JS_SWAP)
                js_add_char(&b, lower(code), content);
            else
                add_upper(&b, code, content, to != JS_UPPER);
        } else if (to == JS_SWAP) {
            add_upper(&b, code, content, false);
        } else {
            js_add_char(&b, lower(code), content);
        }
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
