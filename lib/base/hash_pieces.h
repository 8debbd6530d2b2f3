/* Hashes of long stretches. A stretch of up to HASH_PIECE bytes has its BLAKE2b-256; a longer one has the BLAKE2b-256 of
 * the hashes of its pieces of HASH_PIECE bytes, the last of which may be shorter. So threads can share a stretch, and
 * a core can hash several pieces at a time: with AVX-512 that is several times what it does with one. */
#ifndef BMC_HASH_PIECES_H
#define BMC_HASH_PIECES_H

#include "base/err.h"
#include "base/hash.h"

enum { HASH_PIECE = 1 << 16, HASH_MOST_LANES = 8 };

/* out[i] is the hash of the HASH_PIECE bytes at piece[i]. Best called with a multiple of HASH_MOST_LANES. */
void hash_pieces(const unsigned char *const *piece, size_t n, struct hash *out);

/* The hash of a stretch of n whole pieces and of a `rest`, which is shorter; NULL: there is none. */
struct hash hash_join(const struct hash *piece, size_t n, const struct hash *rest);

/* The hash of a stretch that comes in parts. */
struct long_hasher {
    unsigned char *group; /* pieces to be hashed together */
    size_t len;
    bool longer; /* more than a group: `whole` has the hashes of pieces already */
    struct hasher whole;
};

int long_hasher_open(struct long_hasher *hasher, struct err *err) MUST_USE;
void long_hasher_close(struct long_hasher *hasher);
void long_hasher_add(struct long_hasher *hasher, const void *bytes, size_t len);

/* The hash of what was added since the last result. */
struct hash long_hasher_result(struct long_hasher *hasher);

/* A way to hash `lanes` stretches of `bytes` bytes, a multiple of 128 that is not 0, at the same time. */
struct hash_set {
    const char *isa;
    bool (*usable)(void);
    size_t lanes;
    void (*hash)(const unsigned char *const *data, size_t bytes, struct hash *out);
};

/* All of them, the best one first; ended by NULL. */
extern const struct hash_set *const hash_sets[];

#endif
