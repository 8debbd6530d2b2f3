/* Spellings in the alphabet of byte-level vocabularies -> the bytes that they stand for. */
#include "text/letters.h"

#include "text/utf8.h"

bool letters_to_bytes(const char *spelling, size_t len, char *out, size_t *out_len)
{
    *out_len = 0;
    for (size_t at = 0; at < len;) {
        uint32_t letter;
        at += utf8_decode(spelling + at, &letter);
        int byte = byte_of_letter(letter);
        if (byte < 0)
            return false;
        out[(*out_len)++] = (char)byte;
    }
    return true;
}
