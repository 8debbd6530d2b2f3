/* Character normalizers: Unicode normal forms, accents, case, charsmaps. */
#include "text/tokenizer/norm_chars.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/tok_steps.h"
#include "text/utf8.h"

static int add_code(struct buf *out, uint32_t code, struct err *err)
{
    char bytes[UTF8_MAX];
    return buf_add(out, bytes, utf8_write(code, bytes), err);
}

/* --- normal forms --- */

struct mark {
    utf8proc_int32_t code;
    utf8proc_propval_t class;
};

/* Sorts combining marks by combining class: counting sort, stable and linear. */
static void sort_marks(utf8proc_int32_t *code, size_t count, struct mark *scratch)
{
    size_t at[257] = {0};
    for (size_t i = 0; i < count; i++) {
        scratch[i].code = code[i];
        scratch[i].class = utf8proc_get_property(code[i])->combining_class;
        at[(scratch[i].class & 255) + 1]++;
    }
    for (size_t i = 1; i < ARRAY_LEN(at); i++)
        at[i] += at[i - 1];
    for (size_t i = 0; i < count; i++)
        code[at[scratch[i].class & 255]++] = scratch[i].code;
}

static int order_marks(utf8proc_int32_t *code, size_t count, struct err *err)
{
    struct mark *scratch = NULL;
    for (size_t at = 0; at < count;) {
        size_t end = at;
        while (end < count && utf8proc_get_property(code[end])->combining_class)
            end++;
        if (end - at > 1) {
            if (!scratch && !(scratch = mem_alloc(count, sizeof scratch[0])))
                return err_no_memory(err, "a text of %zu characters", count);
            sort_marks(code + at, end - at, scratch);
        }
        at = size_max(end, at + 1);
    }
    free(scratch);
    return 0;
}

/* True if the form leaves the text as it is (fast path): NFC changes nothing below U+0300, the
 * other forms nothing below U+00A0. */
static bool is_plain(enum tok_form form, struct slice text)
{
    unsigned char least = form == FORM_NFC ? 0xcc : 0xc2;
    for (size_t i = 0; i < text.size; i++)
        if ((unsigned char)text.data[i] >= least)
            return false;
    return true;
}

/* Decomposes `text` to *count code points in canonical order. `code` must have room for the longest
 * possible decomposition; `longest` is the maximum for one character. */
static int decompose(struct slice text, utf8proc_option_t options, utf8proc_int32_t *code,
                     utf8proc_ssize_t longest, size_t *count, struct err *err)
{
    *count = 0;
    for (size_t at = 0; at < text.size;) {
        uint32_t whole;
        at += utf8_decode(text.data + at, &whole);
        utf8proc_ssize_t got =
            utf8proc_decompose_char((utf8proc_int32_t)whole, code + *count, longest, options, NULL);
        if (got < 0 || got > longest)
            return err_set(err, "U+%04X cannot be normalized", whole);
        *count += (size_t)got;
    }
    return order_marks(code, *count, err);
}

int normalize_unicode(const struct norm_work *work, struct slice text, struct buf *out, struct err *err)
{
    const enum tok_form form = (enum tok_form)work->step->option;
    /* Maximum code points of a decomposition, per character and per byte of UTF-8. */
    static const struct {
        bool composed;
        utf8proc_option_t options;
        size_t longest, per_byte;
    } forms[FORM_COUNT] = {
        [FORM_NFC] = {true, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, 4, 2},
        [FORM_NFD] = {false, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, 4, 2},
        [FORM_NFKC] = {true, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | UTF8PROC_COMPAT, 18, 6},
        [FORM_NFKD] = {false, UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | UTF8PROC_COMPAT, 18, 6},
    };
    size_t longest = forms[form].longest, count;
    utf8proc_int32_t *code = NULL;
    int rc = -1;
    if (is_plain(form, text))
        return buf_add(out, text.data, text.size, err);
    if (!(code = mem_alloc(text.size + longest, forms[form].per_byte * sizeof code[0]))) {
        err_no_memory(err, "a text of %zu bytes", text.size);
        goto out;
    }
    if (decompose(text, forms[form].options, code, (utf8proc_ssize_t)longest, &count, err) < 0)
        goto out;
    if (forms[form].composed)
        count = (size_t)utf8proc_normalize_utf32(code, (utf8proc_ssize_t)count,
                                                 UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (size_t i = 0; i < count; i++)
        if (add_code(out, (uint32_t)code[i], err) < 0)
            goto out;
    rc = 0;
out:
    free(code);
    return rc;
}

int normalize_strip_accents(const struct norm_work *work, struct slice text, struct buf *out,
                            struct err *err)
{
    (void)work;
    for (size_t at = 0, step; at < text.size; at += step) {
        uint32_t code;
        step = utf8_decode(text.data + at, &code);
        if (!utf8_is_mark(code) && buf_add(out, text.data + at, step, err) < 0)
            return -1;
    }
    return 0;
}

int normalize_lowercase(const struct norm_work *work, struct slice text, struct buf *out,
                        struct err *err)
{
    (void)work;
    for (size_t at = 0; at < text.size;) {
        uint32_t code;
        at += utf8_decode(text.data + at, &code);
        if (add_code(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code), err) < 0)
            return -1;
        /* The only letter whose lower case has two code points. */
        if (code == 0x130 && add_code(out, 0x307, err) < 0)
            return -1;
    }
    return 0;
}

/* Offset of the end of the grapheme cluster that starts at `at`. */
static size_t grapheme_end(struct slice text, size_t at)
{
    uint32_t code, next;
    utf8proc_int32_t state = 0;
    at += utf8_decode(text.data + at, &code);
    for (; at < text.size; code = next) {
        unsigned step = utf8_decode(text.data + at, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)code, (utf8proc_int32_t)next, &state))
            break;
        at += step;
    }
    return at;
}

/* Appends the charsmap's replacement of `part`, if a rule matches; *mapped: one did. */
static int add_mapped(const struct tokenizer *tok, struct slice part, bool *mapped, struct buf *out,
                      struct err *err)
{
    struct slice becomes;
    size_t used;
    int found = charsmap_find(tok, part, false, &becomes, &used, err);
    *mapped = found > 0;
    return found > 0 ? buf_add(out, becomes.data, becomes.size, err) : found;
}

static int add_grapheme(const struct tokenizer *tok, struct slice grapheme, struct buf *out,
                        struct err *err)
{
    bool mapped = false;
    if (grapheme.size < 6 && add_mapped(tok, grapheme, &mapped, out, err) < 0)
        return -1;
    if (mapped)
        return 0;
    for (size_t at = 0, step; at < grapheme.size; at += step) {
        uint32_t code;
        step = utf8_decode(grapheme.data + at, &code);
        if (add_mapped(tok, (struct slice){grapheme.data + at, step}, &mapped, out, err) < 0 ||
            (!mapped && buf_add(out, grapheme.data + at, step, err) < 0))
            return -1;
    }
    return 0;
}

int normalize_charsmap(const struct norm_work *work, struct slice text, struct buf *out,
                       struct err *err)
{
    for (size_t at = 0, end; at < text.size; at = end) {
        end = grapheme_end(text, at);
        if (add_grapheme(work->tok, (struct slice){text.data + at, end - at}, out, err) < 0 ||
            step_check_growth(work->limit, out->len, err) < 0)
            return -1;
    }
    return 0;
}
