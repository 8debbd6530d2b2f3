/* Token ids: a list that grows. */
#ifndef BMC_IDS_H
#define BMC_IDS_H

#include "base/err.h"
#include "base/mem.h"

/* Zero-initialised is empty. */
struct ids {
    uint32_t *id;
    size_t len;
    size_t cap;
};

int ids_add(struct ids *ids, uint32_t id, struct err *err) MUST_USE;
void ids_release(struct ids *ids);

/* *n: how many of the last ids of one list are the first ones of another, at most. In time of both lengths. */
int ids_overlap(const struct ids *last, const struct ids *first, size_t *n, struct err *err) MUST_USE;

/* Adds the ids of a text: whole numbers separated by blanks, or by one comma each, with or without brackets. */
int ids_parse(struct ids *ids, const char *text, struct err *err) MUST_USE;

#endif
