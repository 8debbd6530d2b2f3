/* Tree hash of long data, whose blocks several threads can hash in parallel. Data of up to
 * HASH_BLOCK bytes have their BLAKE2b-256; longer data have the BLAKE2b-256 of the hashes of their
 * HASH_BLOCK-byte blocks. */
#ifndef BMC_HASH_BLOCKS_H
#define BMC_HASH_BLOCKS_H

#include "base/hash.h"

enum { HASH_BLOCK = 1 << 16 };

/* Number of blocks in data of `bytes` bytes; at least 1. */
size_t hash_blocks(size_t bytes);

/* Combines the hashes of all n blocks into the tree hash of the data. */
struct hash hash_join(const struct hash *block, size_t n);

/* Incremental tree hash, for data added in several calls. */
struct long_hasher {
    struct hasher block, whole; /* hash of the current block, and of the preceding block hashes */
    size_t len;                 /* bytes in the current block */
    bool several;               /* the current block is not the first */
};

void long_hasher_init(struct long_hasher *hasher);
void long_hasher_add(struct long_hasher *hasher, const void *bytes, size_t len);
struct hash long_hasher_result(struct long_hasher *hasher);

#endif
