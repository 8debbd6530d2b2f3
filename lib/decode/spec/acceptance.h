/* Acceptance files: measured acceptance rates by rank, which draft trees are optimised for. */
#ifndef BMC_ACCEPTANCE_H
#define BMC_ACCEPTANCE_H

#include "base/hash.h"
#include "decode/spec/tree.h"

struct acceptance {
    /* model ids, or the drafter's name */
    char target[2 * HASH_BYTES + 1], draft[2 * HASH_BYTES + 1];
    double share[TREE_RANKS]; /* acceptance rate of the draft token of each rank; sum at most 1 */
    size_t ranks;
};

/* Reads a file of "key value" lines, or parses `size` bytes; errors begin with `name`. */
int acceptance_read(struct acceptance *a, const char *path, struct err *err) MUST_USE;
int acceptance_parse(struct acceptance *a, const char *text, size_t size, const char *name,
                     struct err *err) MUST_USE;

#endif
