/* Contenders that could not be measured: each costs its own rows and no others. */
#ifndef BMC_FAILURES_H
#define BMC_FAILURES_H

#include "base/err.h"

struct failure {
    char policy[128]; /* as it was spelled */
    struct err why;
    bool told; /* for who tells */
};

struct failures {
    struct failure *list;
    size_t n, cap;
};

/* Another one. */
int failures_note(struct failures *failures, const char *policy, const struct err *why,
                  struct err *err) MUST_USE;
void failures_release(struct failures *failures);

#endif
