/* Writes XML. */
#include "report/svg_pen.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

void pen_put(struct pen *pen, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    const int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (pen->rc == 0)
        pen->rc = buf_add(pen->out, text, size_min((size_t)len, sizeof text - 1), pen->err);
}

/* Decodes the next character; U+FFFD for invalid bytes and characters that XML forbids. */
static utf8proc_int32_t next_char(const char **at)
{
    enum { REPLACEMENT = 0xfffd };
    utf8proc_int32_t code;
    const utf8proc_ssize_t len =
        utf8proc_iterate((const utf8proc_uint8_t *)*at, (utf8proc_ssize_t)strnlen(*at, 4), &code);
    *at += len > 0 ? len : 1;
    const bool bad =
        len <= 0 || utf8proc_category(code) == UTF8PROC_CATEGORY_CC || (code & 0xfffe) == 0xfffe;
    return bad ? REPLACEMENT : code;
}

size_t text_columns(const char *text)
{
    size_t columns = 0;
    while (*text)
        columns += (size_t)utf8proc_charwidth(next_char(&text));
    return columns;
}

static void pen_char(struct pen *pen, utf8proc_int32_t code)
{
    static const char special[] = "&<>\"'";
    static const char *const escape[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
    const char *found = code < 128 ? strchr(special, code) : NULL;
    utf8proc_uint8_t bytes[4];
    if (found)
        pen_put(pen, "%s", escape[found - special]);
    else
        pen_put(pen, "%.*s", (int)utf8proc_encode_char(code, bytes), (const char *)bytes);
}

void pen_text(struct pen *pen, const char *text, size_t width)
{
    const bool whole = text_columns(text) <= width;
    for (size_t used = 0; *text;) {
        const utf8proc_int32_t code = next_char(&text);
        used += (size_t)utf8proc_charwidth(code);
        if (!whole && used + 1 > width) {
            pen_put(pen, "\xe2\x80\xa6");
            return;
        }
        pen_char(pen, code);
    }
}

void pen_label(struct pen *pen, double x, double y, const char *anchor, const char *attributes,
               const char *text, size_t width)
{
    pen_put(pen, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>", x, y, anchor, attributes);
    pen_text(pen, text, width);
    pen_put(pen, "</text>\n");
}
