/* BLAKE2b through libsodium, and a mixer of 64 bits. */
#pragma once

#include <sodium.h>
#include <sys/stat.h>

#include "base/base.h"

enum { HASH_BYTES = 32 };

struct hash {
    unsigned char byte[HASH_BYTES];
};

/* The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): 64 well-mixed bits of a counter. */
static inline uint64_t hash_mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* BLAKE2b-256 of `len` bytes. */
struct hash hash_of(const void *bytes, size_t len);

/* Hash of a file's head, whose own hash at offset `at` counts as zeros, and of further data ([more_bytes], may be
 * empty). */
struct hash hash_of_head(const void *head, size_t head_bytes, size_t at, const void *more,
                         size_t more_bytes);

bool hash_equal(const struct hash *a, const struct hash *b);

/* Adds a hash to *sum as a number; a sum depends on no order. */
void hash_sum(struct hash *sum, const struct hash *hash);

/* Writes the hash's first `bytes` bytes in lower-case hexadecimal to `text`, which has room for 2 *
 * bytes + 1 characters. */
void hash_hex(const struct hash *hash, size_t bytes, char *text);

/* Incremental BLAKE2b-256, for data added in several calls: bytes, and what tells a file from one that was written or
 * replaced, without reading it (device, inode, size and time of modification). */
struct hasher {
    crypto_generichash_state state;
};

void hasher_init(struct hasher *hasher);
void hasher_add(struct hasher *hasher, const void *bytes, size_t len);
void hasher_add_attributes(struct hasher *hasher, const struct stat *file);
struct hash hasher_result(struct hasher *hasher);

/* Tree hash of long data, whose blocks several threads can hash in parallel. Data of up to
 * HASH_BLOCK bytes have their BLAKE2b-256; longer data have the BLAKE2b-256 of the hashes of their
 * HASH_BLOCK-byte blocks. */

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
