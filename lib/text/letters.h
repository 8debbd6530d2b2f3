/* The alphabet of byte-level vocabularies: each byte has a printable character. */
#ifndef BMC_LETTERS_H
#define BMC_LETTERS_H

#include "base/base.h"

/* The letter of a byte. */
static inline uint32_t letter_of_byte(unsigned char byte)
{
    if (byte <= 32)
        return 256U + byte;
    if (byte >= 127 && byte <= 160)
        return 289U + (byte - 127U);
    return byte == 173 ? 323 : byte;
}

/* The byte of a letter, or -1. */
static inline int byte_of_letter(uint32_t letter)
{
    if (letter >= 256)
        return letter <= 288   ? (int)letter - 256
               : letter <= 322 ? (int)letter - 162
               : letter == 323 ? 173
                               : -1;
    return letter <= 32 || (letter >= 127 && letter <= 160) || letter == 173 ? -1 : (int)letter;
}

/* Translates a spelling in that alphabet into bytes; false when some letter is outside it. `out` has
 * room for `len` bytes. */
bool letters_to_bytes(const char *spelling, size_t len, char *out, size_t *out_len);

#endif
