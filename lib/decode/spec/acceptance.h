/* Acceptance files: measured acceptance rates of the drafter's first, second, .. choice, from which
 * optimal draft trees are computed. */
#pragma once

#include "base/hash.h"
#include "decode/spec/tree.h"

struct acceptance {
    /* ids of the target and draft model; for drafters without a model, their name */
    char target[2 * HASH_BYTES + 1], draft[2 * HASH_BYTES + 1];
    double share[TREE_RANKS]; /* acceptance rate of the draft token by rank; sum at most 1 */
    size_t ranks;
};

/* Read an acceptance file of "key value" lines, or parse its text, called `name` in errors. */
int acceptance_read(struct acceptance *a, const char *path, struct err *err) MUST_USE;
int acceptance_parse(struct acceptance *a, const char *text, size_t size, const char *name,
                     struct err *err) MUST_USE;

/* Typical acceptance rates of a draft model's first, second, .. choice, for want of a file. */
size_t acceptance_typical(double accept[TREE_RANKS]);
