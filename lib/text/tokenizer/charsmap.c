/* Matching charsmap rules in the double-array trie. All offsets are checked here, since nothing
 * validated them before. */
#include "text/tokenizer/charsmap.h"

#include "text/utf8.h"

/* A u32 unit of the double array. Bits 0-7: label, 8: has a leaf, 9: offset counts units of 256,
 * 10-30: offset. If bit 31 is set, the rest is the value of a leaf, an offset into the strings. */
enum { UNIT_ENDS = 1 << 8, UNIT_FAR = 1 << 9 };
#define UNIT_VALUE 0x80000000U

static uint32_t read_unit(const char *at)
{
    uint32_t unit;
    memcpy(&unit, at, sizeof unit);
    return unit;
}

static uint32_t distance(uint32_t unit) { return (unit >> 10) << (unit & UNIT_FAR ? 8 : 0); }

bool charsmap_valid(const char *bytes, size_t size)
{
    if (size < 8)
        return false;
    uint32_t trie_bytes = read_unit(bytes);
    return trie_bytes >= 4 && trie_bytes % 4 == 0 && trie_bytes < size - 4 && !bytes[size - 1] &&
           utf8_valid(bytes + 4 + trie_bytes, size - 4 - trie_bytes) == size - 4 - trie_bytes;
}

/* Gets the replacement string at offset `place`: 1, or -1 if it is damaged. */
static int read_string(const char *strings, size_t size, uint32_t place, struct slice *string,
                       struct err *err)
{
    const char *end = place < size ? memchr(strings + place, 0, size - place) : NULL;
    if (!end)
        return err_set(err, "the tokenizer's charsmap is damaged: string offset %u of %zu", place,
                       size);
    *string = (struct slice){strings + place, (size_t)(end - strings) - place};
    if (utf8_valid(string->data, string->size) != string->size)
        return err_set(err, "the tokenizer's charsmap is damaged: the string at %u is not UTF-8",
                       place);
    return 1;
}

int charsmap_find(const struct tokenizer *tok, struct slice text, bool longest, struct slice *becomes,
                  size_t *used, struct err *err)
{
    uint32_t trie_bytes = tok->charsmap_bytes > 8 ? read_unit(tok->charsmap) : 0;
    if (trie_bytes < 4 || trie_bytes > tok->charsmap_bytes - 4)
        return 0;
    const char *trie = tok->charsmap + 4, *strings = trie + trie_bytes;
    uint32_t units = trie_bytes / 4, at = distance(read_unit(trie)), found = UNIT_VALUE;
    for (size_t i = 0; i < size_min(text.size, TOK_MAX_PIECE); i++) {
        unsigned char byte = (unsigned char)text.data[i];
        at ^= byte;
        if (at >= units)
            break;
        uint32_t unit = read_unit(trie + 4 * (size_t)at);
        if ((unit & (UNIT_VALUE | 0xff)) != byte || !byte)
            break;
        at ^= distance(unit);
        if (!(unit & UNIT_ENDS) || at >= units)
            continue;
        found = read_unit(trie + 4 * (size_t)at) & ~UNIT_VALUE;
        *used = i + 1;
        if (!longest)
            break;
    }
    if (found == UNIT_VALUE)
        return 0;
    return read_string(strings, tok->charsmap_bytes - 4 - trie_bytes, found, becomes, err);
}
