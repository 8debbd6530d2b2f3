/* Hashes of long stretches. A stretch of up to HASH_PIECE bytes has its BLAKE2b-256; a longer one has the BLAKE2b-256 of
 * the hashes of its pieces of HASH_PIECE bytes, the last of which may be shorter. So threads can share a stretch. */
#ifndef BMC_HASH_PIECES_H
#define BMC_HASH_PIECES_H

#include "base/hash.h"

enum { HASH_PIECE = 1 << 16 };

/* Pieces of a stretch; one without a byte is a piece, too. */
size_t hash_pieces(size_t bytes);

/* The hash of a stretch of n pieces, by theirs. */
struct hash hash_join(const struct hash *piece, size_t n);

/* The hash of a stretch that comes in parts. */
struct long_hasher {
    struct hasher piece, whole; /* `whole` has the hashes of the pieces before */
    size_t len;                 /* of the piece */
    bool longer;                /* there are pieces before */
};

void long_hasher_init(struct long_hasher *hasher);
void long_hasher_add(struct long_hasher *hasher, const void *bytes, size_t len);
struct hash long_hasher_result(struct long_hasher *hasher);

#endif
