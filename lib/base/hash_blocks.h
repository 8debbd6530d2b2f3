/* Tree hash of long data, which threads can compute in parallel: the BLAKE2b-256 of up to
 * HASH_BLOCK bytes, or else the BLAKE2b-256 of the hashes of its HASH_BLOCK-byte blocks. */
#ifndef BMC_HASH_BLOCKS_H
#define BMC_HASH_BLOCKS_H

#include "base/hash.h"

enum { HASH_BLOCK = 1 << 16 };

/* Number of blocks; 1 for no bytes. */
size_t hash_blocks(size_t bytes);

/* Combines the hashes of all n blocks into the tree hash. */
struct hash hash_join(const struct hash *block, size_t n);

/* Computes the tree hash of a stream. */
struct long_hasher {
    struct hasher block, whole; /* hash of the current block, and of the preceding block hashes */
    size_t len;                 /* bytes in the current block */
    bool several;               /* the current block is not the first */
};

void long_hasher_init(struct long_hasher *hasher);
void long_hasher_add(struct long_hasher *hasher, const void *bytes, size_t len);
struct hash long_hasher_result(struct long_hasher *hasher);

#endif
