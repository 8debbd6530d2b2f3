/* Error messages. */
#include "base/err.h"

#include <utf8proc.h>

const struct err err_interrupted = {"interrupted", ERR_INTERRUPTED};

size_t text_control_bytes(const char *at, size_t left, size_t *step)
{
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t n =
        utf8proc_iterate((const utf8proc_uint8_t *)at, (utf8proc_ssize_t)size_min(left, 4), &code);
    *step = n > 0 ? (size_t)n : 1;
    if (n <= 0)
        code = (unsigned char)*at;
    return code < 0x20 || (code >= 0x7f && code < 0xa0) ? *step : 0;
}

/* Replaces control characters by '?': messages quote file names and file contents, which must not
 * control the terminal. */
void text_make_printable(char *text, size_t len, const char *keep)
{
    for (size_t i = 0, step; i < len; i += step) {
        const size_t bytes = text_control_bytes(text + i, len - i, &step);
        if (bytes && !(text[i] && strchr(keep, text[i])))
            memset(text + i, '?', bytes);
    }
}

/* Removes an incomplete UTF-8 character from the end of a message that was truncated to `size`. */
static void drop_cut_character(char *text, size_t size)
{
    size_t len = strlen(text), more = 0;
    if (len + 1 < size)
        return;
    while (more < 3 && more < len && (text[len - 1 - more] & 0xc0) == 0x80)
        more++;
    const unsigned char leader = more < len ? (unsigned char)text[len - 1 - more] : 0;
    const size_t need = leader >= 0xf0 ? 3 : leader >= 0xe0 ? 2 : leader >= 0xc0 ? 1 : 0;
    if (need > more)
        text[len - 1 - more] = 0;
}

static void clean_text(struct err *err)
{
    drop_cut_character(err->text, sizeof err->text);
    text_make_printable(err->text, strlen(err->text), "");
}

int err_vset(struct err *err, enum err_code code, const char *format, va_list args)
{
    err->code = code;
    vsnprintf(err->text, sizeof err->text, format, args);
    clean_text(err);
    return -1;
}

int(err_set)(struct err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err_vset(err, ERR_FAILED, format, args);
    va_end(args);
    return -1;
}

int(err_code)(struct err *err, enum err_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    err_vset(err, code, format, args);
    va_end(args);
    return -1;
}

int(err_no_memory)(struct err *err, const char *format, ...)
{
    static const char before[] = "out of memory for ";
    const size_t used = sizeof before - 1;
    va_list args;
    va_start(args, format);
    err->code = ERR_NO_MEMORY;
    memcpy(err->text, before, used);
    vsnprintf(err->text + used, sizeof err->text - used, format, args);
    va_end(args);
    clean_text(err);
    return -1;
}

int(err_errno)(struct err *err, const char *format, ...)
{
    const int code = errno;
    va_list args;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(code));
    err->code = code == ENOMEM ? ERR_NO_MEMORY : ERR_FAILED;
    clean_text(err);
    return -1;
}

int(err_prefix)(struct err *err, const char *format, ...)
{
    char before[sizeof err->text];
    va_list args;
    va_start(args, format);
    int used = vsnprintf(before, sizeof before, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used + 2 < sizeof before)
        snprintf(before + used, sizeof before - (size_t)used, ": %.*s",
                 (int)(sizeof before - (size_t)used - 3), err->text);
    memcpy(err->text, before, sizeof err->text);
    clean_text(err);
    return -1;
}
