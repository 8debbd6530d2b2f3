/* A growable list of token ids. */
#pragma once

#include "base/err.h"
#include "base/mem.h"

/* A list of token ids; zero-initialised it is empty. */
struct ids {
    uint32_t *id;
    size_t len, cap;
};

int ids_add(struct ids *ids, uint32_t id, struct err *err) MUST_USE;
int ids_append(struct ids *ids, const struct ids *more, struct err *err) MUST_USE;
void ids_release(struct ids *ids);

/* Sets *n to the length of the longest suffix of `last` that is a prefix of `first`; linear time
 * (Knuth, Morris, Pratt). */
int ids_overlap(const struct ids *last, const struct ids *first, size_t *n, struct err *err) MUST_USE;

/* Parses `text` and appends its ids: whole numbers separated by blanks or single commas,
 * with or without brackets. */
int ids_parse(struct ids *ids, const char *text, struct err *err) MUST_USE;
