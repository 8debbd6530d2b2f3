/* Blocks of the prefix cache on disk: keys, sizes and checks. */
#include "format/kvblock/kvblock.h"

static const char magic[8] = "BMCKVBLK";

_Static_assert(sizeof(struct kvblock_head) == 256, "the header is part of a file format");

size_t kvblock_head_bytes(const struct kvfile_sizes *sizes, bool v)
{
    return KVBLOCK_TOKENS * kvfile_row_bytes(sizes, v);
}

/* Adds the bytes of a layer's KV entries; false: too many. */
static bool add_layer(const struct kvfile_sizes *sizes, size_t *bytes)
{
    bool fits = true;
    for (size_t v = 0; v < kvfile_matrices(sizes) && fits; v++) {
        size_t own;
        fits = size_mul((size_t)sizes->kv_heads, kvfile_row_bytes(sizes, v), &own) &&
               size_mul(own, KVBLOCK_TOKENS, &own) && own && size_add(*bytes, own, bytes) &&
               *bytes <= SIZE_MAX / 4;
    }
    return fits;
}

int kvblock_shape(struct kvblock_head *head, const struct kvfile_sizes *sizes, size_t layers,
                  struct err *err)
{
    size_t bytes = 0;
    bool same = sizes->type[0] == sizes->type[1], fits = true;
    *head = (struct kvblock_head){.version = KVBLOCK_VERSION,
                                  .tokens = KVBLOCK_TOKENS,
                                  .dtype = sizes->type[0],
                                  .layers = layers,
                                  .kv_heads = sizes->kv_heads,
                                  .head_dim = sizes->head_dim,
                                  .v_dim = sizes->v_dim};
    memcpy(head->magic, magic, sizeof magic);
    for (size_t l = 0; l < layers && fits; l++) {
        fits = add_layer(&sizes[l], &bytes);
        same = same && memcmp(&sizes[l], sizes, sizeof *sizes) == 0;
    }
    if (!fits)
        return err_set(err, "blocks of %zu layers of %llu heads of %llu are impossible", layers,
                       (unsigned long long)sizes->kv_heads, (unsigned long long)sizes->head_dim);
    head->bytes = bytes;
    if (!same) {
        head->version = KVBLOCK_VERSION_SIZES;
        head->sizes = hash_of(sizes, layers * sizeof *sizes);
    }
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
    return hash_equal(&found, &want) ? 0 : err_set(err, "its contents do not match their hash");
}

size_t kvblock_rows_at(const struct kvfile_sizes *sizes, size_t layer, bool v)
{
    size_t at = sizeof(struct kvblock_head);
    for (size_t l = 0; l <= layer; l++)
        for (size_t m = 0; m < (l < layer ? kvfile_matrices(&sizes[l]) : v && !sizes[l].v_dim); m++)
            at += (size_t)sizes[l].kv_heads * kvblock_head_bytes(&sizes[l], m);
    return at;
}
