/* The alphabet of byte-level BPE vocabularies (GPT-2's bytes_to_unicode): a printable character
 * for each byte. */
#ifndef BMC_BYTE_ALPHABET_H
#define BMC_BYTE_ALPHABET_H

#include "base/base.h"

/* The character (code point) that stands for a byte. */
static inline uint32_t byte_alphabet_letter(unsigned char byte)
{
    if (byte <= 32)
        return 256U + byte;
    if (byte >= 127 && byte <= 160)
        return 289U + (byte - 127U);
    return byte == 173 ? 323 : byte;
}

/* The byte for which a character stands, or -1. */
static inline int byte_alphabet_byte(uint32_t letter)
{
    if (letter >= 256)
        return letter <= 288   ? (int)letter - 256
               : letter <= 322 ? (int)letter - 162
               : letter == 323 ? 173
                               : -1;
    return letter <= 32 || (letter >= 127 && letter <= 160) || letter == 173 ? -1 : (int)letter;
}

/* Decodes a spelling in the byte alphabet to bytes; false if a character is outside it. `out`
 * needs `len` bytes. */
bool byte_alphabet_decode(const char *spelling, size_t len, char *out, size_t *out_len);

#endif
