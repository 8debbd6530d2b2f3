/* UTF-8 validation, iteration, and the character classes that tokenizers need. Functions that
 * take valid text rely on utf8_valid(). */
#pragma once

#include "base/base.h"

enum { UTF8_MAX = 4 };

/* The length of the first character of `len` > 0 bytes; 0 if it is truncated; -1 if invalid.
 * Strict: no overlong forms, no surrogates, nothing above U+10FFFF. */
int utf8_step(const char *text, size_t len);

/* The number of valid leading bytes: `len`, or the offset of the first invalid one. */
size_t utf8_valid(const char *text, size_t len);

/* Decodes the character at valid `text`; returns its length. */
unsigned utf8_decode(const char *text, uint32_t *code);

/* Offset of the character before offset `at` > 0 of valid text. */
size_t utf8_before(const char *text, size_t at);

/* Encodes a valid code point; returns its length. */
unsigned utf8_write(uint32_t code, char out[UTF8_MAX]);

/* The value of a hexadecimal digit, as escapes have them, or -1. */
static inline bool utf8_continues(char c) { return ((unsigned char)c & 0xC0) == 0x80; }

static inline int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool utf8_is_space(uint32_t code);       /* property White_Space */
bool utf8_is_numeric(uint32_t code);     /* categories Nd, Nl, No */
bool utf8_is_word(uint32_t code);        /* Unicode's \w: letters, marks, digits, connectors */
bool utf8_is_mark(uint32_t code);        /* categories Mn, Mc, Me */
bool utf8_is_punctuation(uint32_t code); /* categories P*, and ASCII symbols */
