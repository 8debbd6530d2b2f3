/* Blocks of the prefix cache on disk (--prefix-cache): the KV entries of KVBLOCK_TOKENS consecutive
 * tokens in all layers and heads, in a file of their own. A block's key is a chain of hashes over all
 * tokens up to its end and over everything that affects the bits of KV entries, so that a block can
 * be used wherever its key matches. The contents are little-endian and documented in bmc-kv(5). */
#ifndef BMC_KVBLOCK_H
#define BMC_KVBLOCK_H

#include "base/err.h"
#include "base/hash.h"
#include "quant/dtype.h"

enum {
    KVBLOCK_TOKENS = 16,
    KVBLOCK_VERSION = 1,
    KVBLOCK_VERSION_SIZES = 2, /* some layers have KV heads of other sizes: a nonzero other_layers */
};

/* The header, 256 bytes. KV entries follow: [layer][K, V][KV head][KVBLOCK_TOKENS][head_dim], without
 * V where v_dim is not 0, encoded as quant/dtype.h describes; then the same of other layers. */
struct kvblock_head {
    char magic[8];
    uint32_t version, tokens;
    struct hash key;
    uint32_t token[KVBLOCK_TOKENS];
    uint64_t dtype, layers, kv_heads, head_dim, v_dim;
    uint64_t bytes;                                        /* of KV entries */
    struct hash hash;                                      /* BLAKE2b-256 of the KV entries */
    uint64_t other_layers, other_kv_heads, other_head_dim; /* 0: there are none */
    uint64_t spare[5];
};

/* Sets the constant members of *head, and `bytes` from the shape. Fails if the size overflows. */
int kvblock_shape(struct kvblock_head *head, enum dtype type, size_t layers, size_t kv_heads,
                  size_t head_dim, size_t v_dim, struct err *err) MUST_USE;

/* Adds layers whose KV heads have other sizes to the shape; `layers` may be 0. */
int kvblock_add_other(struct kvblock_head *head, size_t layers, size_t kv_heads, size_t head_dim,
                      struct err *err) MUST_USE;

/* Bytes of the KV entries of one head of a layer. */
size_t kvblock_head_bytes(const struct kvblock_head *head, size_t layer);

/* The key of the block with these tokens that follows the block with key `parent`; the first block of
 * a sequence follows the key of the settings. */
struct hash kvblock_key(const struct hash *parent, const uint32_t *token);

/* Checks a file's `size` bytes (8-byte aligned) against the header that is expected, whose hash is
 * ignored, and the KV entries against the hash of the file. Untrusted input. */
int kvblock_check(const void *data, size_t size, const struct kvblock_head *expected,
                  struct err *err) MUST_USE;

/* The KV entries of K, or of V if `v`, of a layer of the block in memory, which begins with its head;
 * the same for K and V where only K is stored. */
char *kvblock_rows(const struct kvblock_head *block, size_t layer, bool v);

#endif
