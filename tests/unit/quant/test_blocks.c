/* Dequantisation of every GGUF block type, bit for bit against gguf's Python functions
 * (make_gguf.py), except that any NaN matches any NaN: test_blocks FILE. */
#include <string.h>

#include "base/file.h"
#include "tests/unit/check.h"
#include "format/gguf/block_types.h"

struct head {
    char name[8];
    uint32_t blocks, bytes, elements;
};

static bool same(const unsigned char *want, float got)
{
    float expected;
    memcpy(&expected, want, sizeof expected);
    return isnan(expected) ? isnan(got) : memcmp(&expected, &got, sizeof got) == 0;
}

static const struct block_type *find(const char name[8])
{
    for (int i = 0; i < SOURCE_OTHER; i++)
        if (block_types[i].name && strncmp(block_types[i].name, name, 8) == 0)
            return &block_types[i];
    return NULL;
}

static void compare(const struct block_type *type, const struct head *head, const unsigned char *data)
{
    float got[BLOCK_MAX_ELEMENTS];
    const unsigned char *want = data + (size_t)head->blocks * head->bytes;
    size_t wrong = 0, finite = 0;
    for (size_t b = 0; b < head->blocks; b++) {
        type->dequantize(got, data + b * head->bytes, 1);
        for (size_t i = 0; i < head->elements; i++) {
            wrong += !same(want + 4 * (b * head->elements + i), got[i]);
            finite += isfinite(got[i]) != 0;
        }
    }
    check(wrong == 0, "%s: %zu elements differ", type->name, wrong);
    check(finite > head->blocks / 2, "%s: only %zu elements are finite", type->name, finite);
}

/* Dequantising several blocks at once gives the same as one at a time. */
static void compare_many(const struct block_type *type, const struct head *head,
                         const unsigned char *data)
{
    float one[3 * BLOCK_MAX_ELEMENTS], all[3 * BLOCK_MAX_ELEMENTS];
    for (size_t b = 0; b < 3; b++)
        type->dequantize(one + b * head->elements, data + b * head->bytes, 1);
    type->dequantize(all, data, 3);
    size_t wrong = 0;
    for (size_t i = 0; i < 3 * (size_t)head->elements; i++)
        wrong += !same((const unsigned char *)&one[i], all[i]);
    check(wrong == 0, "%s: three blocks are not three times one", type->name);
}

int main(int argc, char **argv)
{
    struct file_map map;
    struct err err;
    bool seen[SOURCE_OTHER] = {false};
    if (argc != 2 || file_map(&map, argv[1], &err) < 0)
        return 1;
    for (const unsigned char *at = map.data; at < map.data + map.size;) {
        struct head head;
        memcpy(&head, at, sizeof head);
        const struct block_type *type = find(head.name);
        if (!check(type && type->bytes == head.bytes && type->elements == head.elements,
                   "%.8s: %u bytes for %u elements", head.name, head.bytes, head.elements))
            break;
        seen[type - block_types] = true;
        compare(type, &head, at + sizeof head);
        compare_many(type, &head, at + sizeof head);
        at += sizeof head + (size_t)head.blocks * (head.bytes + 4 * (size_t)head.elements);
    }
    for (int i = 0; i < SOURCE_OTHER; i++)
        check(seen[i] || !block_types[i].name, "%s: no blocks of it", block_types[i].name);
    file_unmap(&map);
    return check_result();
}
