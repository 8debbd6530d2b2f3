/* UTF-8: validation, stepping over characters, and the few character classes that tokenizers ask for.
 *
 * Functions that take "valid" text rely on utf8_valid() having accepted it. */
#ifndef BMC_UTF8_H
#define BMC_UTF8_H

#include "base/base.h"

enum { UTF8_MAX = 4 };

/* Looks at the first character of `len` > 0 bytes: its length when it is whole; 0 when the bytes are
 * the beginning of a character and end too early; -1 when no character begins like this. Strict: no
 * overlong forms, no surrogates, nothing above U+10FFFF. */
int utf8_step(const char *text, size_t len);

/* Number of leading bytes that are valid: `len` when all are, else the offset of the first bad one. */
size_t utf8_valid(const char *text, size_t len);

/* Length and code point of the character at `text`, which is valid. */
unsigned utf8_decode(const char *text, uint32_t *code);

/* Offset of the character before offset `at` > 0 of valid text. */
size_t utf8_before(const char *text, size_t at);

/* Writes a code point, which must be valid; returns its length. */
unsigned utf8_encode(uint32_t code, char out[UTF8_MAX]);

bool utf8_is_space(uint32_t code);       /* property White_Space */
bool utf8_is_numeric(uint32_t code);     /* categories Nd, Nl, No */
bool utf8_is_word(uint32_t code);        /* \w of Unicode: letters, marks, digits, connectors */
bool utf8_is_mark(uint32_t code);        /* categories Mn, Mc, Me */
bool utf8_is_punctuation(uint32_t code); /* categories P*, and the symbols of ASCII */

#endif
