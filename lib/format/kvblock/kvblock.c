/* Blocks of the prefix cache on disk: keys, sizes and checks. */
#include "format/kvblock/kvblock.h"

#include <string.h>

static const char magic[8] = "BMCKVBLK";

_Static_assert(sizeof(struct kvblock_head) == 256, "the header is part of a file format");

static size_t matrices(const struct kvblock_head *head) { return head->v_dim ? 1 : 2; }

size_t kvblock_head_bytes(const struct kvblock_head *head, size_t layer)
{
    const uint64_t head_dim = layer < head->layers ? head->head_dim : head->other_head_dim;
    return KVBLOCK_TOKENS * dtype_row_bytes((enum dtype)head->dtype, (size_t)head_dim);
}

/* Bytes of the KV entries of `layers` layers; false: too many. */
static bool layers_bytes(const struct kvblock_head *head, size_t layers, size_t kv_heads,
                         size_t head_dim, size_t *bytes)
{
    return size_mul(layers * matrices(head), kv_heads, bytes) &&
           size_mul(*bytes, dtype_row_bytes((enum dtype)head->dtype, head_dim), bytes) &&
           size_mul(*bytes, KVBLOCK_TOKENS, bytes) && *bytes && *bytes <= SIZE_MAX / 4;
}

static int refuse_shape(size_t layers, size_t kv_heads, size_t head_dim, struct err *err)
{
    return err_set(err, "blocks of %zu layers of %zu heads of %zu are impossible", layers, kv_heads,
                   head_dim);
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
    if (!layers_bytes(head, layers, kv_heads, head_dim, &bytes))
        return refuse_shape(layers, kv_heads, head_dim, err);
    head->bytes = bytes;
    return 0;
}

int kvblock_add_other(struct kvblock_head *head, size_t layers, size_t kv_heads, size_t head_dim,
                      struct err *err)
{
    size_t bytes;
    if (!layers)
        return 0;
    if (!layers_bytes(head, layers, kv_heads, head_dim, &bytes))
        return refuse_shape(layers, kv_heads, head_dim, err);
    head->version = KVBLOCK_VERSION_SIZES;
    head->other_layers = layers;
    head->other_kv_heads = kv_heads;
    head->other_head_dim = head_dim;
    head->bytes += bytes;
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
    if (head.version != expected->version)
        return err_set(err, "has version %u, expected %u", head.version, expected->version);
    const struct hash want = head.hash;
    head.hash = expected->hash;
    if (memcmp(&head, expected, sizeof head) != 0)
        return err_set(err, "its header is that of another block");
    const struct hash found = hash_of((const char *)data + sizeof head, size - sizeof head);
    return hash_equal(&found, &want) ? 0 : err_set(err, "its KV entries do not match their hash");
}

char *kvblock_rows(const struct kvblock_head *block, size_t layer, bool v)
{
    const size_t own = size_min(layer, (size_t)block->layers), n = matrices(block);
    const size_t main_bytes = (size_t)block->kv_heads * kvblock_head_bytes(block, 0),
                 other_bytes =
                     (size_t)block->other_kv_heads * kvblock_head_bytes(block, (size_t)block->layers);
    char *rows = (char *)(uintptr_t)(block + 1) + n * (own * main_bytes + (layer - own) * other_bytes);
    return v ? rows + (n - 1) * (layer < block->layers ? main_bytes : other_bytes) : rows;
}
