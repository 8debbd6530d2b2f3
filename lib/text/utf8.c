/* UTF-8 validation, iteration and character classes. */
#include "text/utf8.h"

#include <utf8proc.h>

int utf8_step(const char *text, size_t len)
{
    const unsigned char *byte = (const unsigned char *)text;
    /* The range of the second byte depends on the first, which excludes overlong forms,
     * surrogates and code points that are too large. */
    unsigned low = 0x80, high = 0xbf;
    int need;
    if (byte[0] < 0x80)
        return 1;
    if (byte[0] < 0xc2 || byte[0] > 0xf4)
        return -1;
    if (byte[0] < 0xe0) {
        need = 2;
    } else if (byte[0] < 0xf0) {
        need = 3;
        low = byte[0] == 0xe0 ? 0xa0 : low;
        high = byte[0] == 0xed ? 0x9f : high;
    } else {
        need = 4;
        low = byte[0] == 0xf0 ? 0x90 : low;
        high = byte[0] == 0xf4 ? 0x8f : high;
    }
    for (int i = 1; i < need; i++) {
        if ((size_t)i >= len)
            return 0;
        if (byte[i] < low || byte[i] > high)
            return -1;
        low = 0x80;
        high = 0xbf;
    }
    return need;
}

size_t utf8_valid(const char *text, size_t len)
{
    size_t at = 0;
    while (at < len) {
        int step = utf8_step(text + at, len - at);
        if (step <= 0)
            return at;
        at += (size_t)step;
    }
    return len;
}

unsigned utf8_decode(const char *text, uint32_t *code)
{
    const unsigned char *byte = (const unsigned char *)text;
    if (byte[0] < 0x80) {
        *code = byte[0];
        return 1;
    }
    if (byte[0] < 0xe0) {
        *code = (byte[0] & 0x1fU) << 6 | (byte[1] & 0x3fU);
        return 2;
    }
    if (byte[0] < 0xf0) {
        *code = (byte[0] & 0x0fU) << 12 | (byte[1] & 0x3fU) << 6 | (byte[2] & 0x3fU);
        return 3;
    }
    *code =
        (byte[0] & 0x07U) << 18 | (byte[1] & 0x3fU) << 12 | (byte[2] & 0x3fU) << 6 | (byte[3] & 0x3fU);
    return 4;
}

size_t utf8_before(const char *text, size_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80);
    return at;
}

unsigned utf8_write(uint32_t code, char out[UTF8_MAX])
{
    return (unsigned)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

bool utf8_is_space(uint32_t code)
{
    return (code >= 0x09 && code <= 0x0d) || code == 0x20 || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
           code == 0x202f || code == 0x205f || code == 0x3000;
}

/* True if the general category is between `first` and `last`: utf8proc numbers categories in the
 * order of the Unicode Standard. */
static bool category_in(uint32_t code, utf8proc_category_t first, utf8proc_category_t last)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category >= first && category <= last;
}

bool utf8_is_numeric(uint32_t code)
{
    if (code < 0x80)
        return code >= '0' && code <= '9';
    return category_in(code, UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool utf8_is_word(uint32_t code)
{
    /* Letters, marks, decimal and letter numbers; connectors; joiners, and the alphabetic symbols
     * (circled and squared letters). */
    return category_in(code, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
           category_in(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PC) || code == 0x200c ||
           code == 0x200d || (code >= 0x24b6 && code <= 0x24e9) ||
           (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
           (code >= 0x1f170 && code <= 0x1f189);
}

bool utf8_is_mark(uint32_t code)
{
    return category_in(code, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool utf8_is_punctuation(uint32_t code)
{
    if (code < 0x80)
        return code > ' ' && code < 0x7f && !(code >= '0' && code <= '9') &&
               !((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
    return category_in(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}
