/* Blocks of the prefix cache on disk: keys, sizes and checks. */
#include "format/kvblock/kvblock.h"

#include <string.h>

static const char magic[8] = "BMCKVBLK";

_Static_assert(sizeof(struct kvblock_head) == 256, "the header is part of a file format");

static size_t matrices(const struct kvblock_head *head) { return head->v_dim ? 1 : 2; }

static size_t matrix_bytes(const struct kvblock_head *head)
{
    return (size_t)head->bytes / (matrices(head) * (size_t)head->layers);
}

int kvblock_shape(struct kvblock_head *head, enum dtype type, size_t layers, size_t kv_heads,
                  size_t head_dim, size_t v_dim, struct err *err)
{
    size_t bytes;
    *head = (struct kvblock_head){.version = KVBLOCK_VERSION,
                                  .tokens = KVBLOCK_TOKENS,
                                  .dtype = type,
                                  .layers = layers,
                                  .kv_heads = kv_heads,
                                  .head_dim = head_dim,
                                  .v_dim = v_dim};
    memcpy(head->magic, magic, sizeof magic);
    if (!size_mul(layers * matrices(head), kv_heads, &bytes) ||
        !size_mul(bytes, dtype_row_bytes(type, head_dim), &bytes) ||
        !size_mul(bytes, KVBLOCK_TOKENS, &bytes) || !bytes || bytes > SIZE_MAX / 2)
        return err_set(err, "blocks of %zu layers of %zu heads of %zu are impossible", layers, kv_heads,
                       head_dim);
    head->bytes = bytes;
    return 0;
}

struct hash kvblock_key(const struct hash *parent, const uint32_t *token)
{
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, parent, sizeof *parent);
    hasher_add(&hasher, token, KVBLOCK_TOKENS * sizeof *token);
    return hasher_result(&hasher);
}

int kvblock_check(const void *data, size_t size, const struct kvblock_head *expected, struct err *err)
{
    struct kvblock_head head;
    if (size != sizeof head + expected->bytes)
        return err_set(err, "has %zu bytes, a block has %zu", size,
                       sizeof head + (size_t)expected->bytes);
    memcpy(&head, data, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) != 0)
        return err_set(err, "is no block of KV entries");
    if (head.version != KVBLOCK_VERSION)
        return err_set(err, "has version %u, expected %d", head.version, KVBLOCK_VERSION);
    const struct hash want = head.hash;
    head.hash = expected->hash;
    if (memcmp(&head, expected, sizeof head) != 0)
        return err_set(err, "its header is that of another block");
    const struct hash found = hash_of((const char *)data + sizeof head, size - sizeof head);
    return hash_equal(&found, &want) ? 0 : err_set(err, "its KV entries do not match their hash");
}

char *kvblock_rows(const struct kvblock_head *block, size_t layer, bool v)
{
    const size_t matrix = v ? (layer + 1) * matrices(block) - 1 : layer * matrices(block);
    return (char *)(uintptr_t)(block + 1) + matrix * matrix_bytes(block);
}
