/* Files of a drafter's measured acceptance rates, one for each pair of models and mode. */
#pragma once

#include "decode/spec/acceptance.h"

/* The pair that a file is for. */
struct acceptance_pair {
    const struct hash *target; /* model_id */
    const struct hash *draft;  /* model_id of the draft model; NULL: a drafter without one, */
    const char *drafter;       /* by its name */
    bool greedy;               /* rates differ between greedy decoding and sampling */
};

/* The mode as file names and files have it: "greedy" or "sampling". */
const char *acceptance_mode(const struct acceptance_pair *pair);

/* The default path, in the folder of the tuned profile. False: no such folder. */
bool acceptance_path(const struct acceptance_pair *pair, char *path, size_t size);

/* Writes the ids or the name of the pair as a file has them. */
void acceptance_ids(const struct acceptance_pair *pair, char target[2 * HASH_BYTES + 1],
                    char draft[2 * HASH_BYTES + 1]);

/* Reads a file, which must be of this pair. */
int acceptance_read_pair(struct acceptance *a, const struct acceptance_pair *pair, const char *path,
                         struct err *err) MUST_USE;
