/* Blocks of the prefix cache on disk (--prefix-cache): the KV entries of KVBLOCK_TOKENS consecutive
 * tokens in all layers and heads, in a file of their own. A block's key is a chain of hashes over all
 * tokens up to its end and over everything that affects the bits of KV entries, so that a block can
 * be used wherever its key matches. Another file of the same key may have the recurrent state of all layers after
 * these tokens (kv/state/state.h). The contents are little-endian and documented in bmc-kv(5). */
#pragma once

#include "format/kvfile/kvfile.h"

enum {
    KVBLOCK_TOKENS = 16,
    KVBLOCK_EMPTY = 16, /* of blocks without KV entries, every so many have a file */
    KVBLOCK_VERSION = 1,
    /* K and V, or layers, differ in their types or in the sizes of KV heads; older programs wrote 2 and 3 */
    KVBLOCK_VERSION_SIZES = 4,
    KVBLOCK_VERSION_STATE = 5, /* a recurrent state, instead of KV entries */
};

/* The header, 256 bytes, of both. KV entries follow: [layer][K, V][KV head][KVBLOCK_TOKENS][head_dim], without
 * V where v_dim is not 0, encoded as quant/dtype.h describes. */
struct kvblock_head {
    char magic[8];
    uint32_t version, tokens;
    struct hash key;
    uint32_t token[KVBLOCK_TOKENS];
    /* type and sizes of all layers, or of K in the first */
    uint64_t dtype, layers, kv_heads, head_dim, v_dim;
    uint64_t bytes;    /* of KV entries, or of the state */
    struct hash hash;  /* BLAKE2b-256 of these */
    struct hash sizes; /* of struct kvfile_sizes of each layer if they differ; else zero */
    uint64_t spare[4];
};

/* Bytes from a block in memory with this head to the next one. */
static inline size_t kvblock_stride(const struct kvblock_head *head)
{
    return round_up(sizeof *head + (size_t)head->bytes, 64);
}

/* Sets the constant members of *head, and `bytes`, from the sizes of the layers. Fails if the size overflows. */
int kvblock_shape(struct kvblock_head *head, const struct kvfile_sizes *sizes, size_t layers,
                  struct err *err) MUST_USE;

/* Bytes of K, or of V if `v`, of one head of a layer of these sizes. */
size_t kvblock_head_bytes(const struct kvfile_sizes *sizes, bool v);

/* The key of the block with these tokens that follows the block with key `parent`; the first block of
 * a sequence follows the key of the settings. */
struct hash kvblock_key(const struct hash *parent, const uint32_t *token);

/* Checks a file's `size` bytes (8-byte aligned) against the header that is expected, whose hash is
 * ignored, and the KV entries or the state against the hash of the file. Untrusted input. */
int kvblock_check(const void *data, size_t size, const struct kvblock_head *expected,
                  struct err *err) MUST_USE;

/* Bytes from the beginning of a block to the KV entries of K, or of V if `v`, of a layer;
 * the same for K and V where only K is stored. */
size_t kvblock_rows_at(const struct kvfile_sizes *sizes, size_t layer, bool v);
