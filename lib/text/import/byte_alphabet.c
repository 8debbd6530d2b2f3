/* Decoding the alphabet of byte-level vocabularies. */
#include "text/import/byte_alphabet.h"

#include "text/utf8.h"

bool byte_alphabet_decode(const char *spelling, size_t len, char *out, size_t *out_len)
{
    *out_len = 0;
    for (size_t at = 0; at < len;) {
        uint32_t letter;
        at += utf8_decode(spelling + at, &letter);
        int byte = byte_alphabet_byte(letter);
        if (byte < 0)
            return false;
        out[(*out_len)++] = (char)byte;
    }
    return true;
}
