/* Measured acceptance by rank, as "key value" lines: what trees of candidates are made for. */
#ifndef BMC_ACCEPTANCE_H
#define BMC_ACCEPTANCE_H

#include "base/hash.h"
#include "decode/tree.h"

struct acceptance {
    char target[2 * HASH_BYTES + 1], draft[2 * HASH_BYTES + 1]; /* who it was recorded with */
    double share[TREE_RANKS]; /* of each rank; they sum to at most 1 */
    size_t ranks;
};

/* Reads a file, or `size` bytes of one called `name`. */
int acceptance_read(struct acceptance *a, const char *path, struct err *err) MUST_USE;
int acceptance_parse(struct acceptance *a, const char *text, size_t size, const char *name,
                     struct err *err) MUST_USE;

#endif
