/* Contenders that could not be measured. */
#include "prof/failures.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "prof/rows.h"

bool contender_fits(const struct contender *contender, size_t rows, struct err *err)
{
    if (!contender->longest || rows <= contender->longest)
        return true;
    (void)err_set(err, "%zu tokens are beyond the model's context of %zu", rows, contender->longest);
    return false;
}

int failures_note(struct failures *failures, const char *policy, const struct err *why, struct err *err)
{
    if (mem_grow(&failures->list, &failures->cap, failures->n, sizeof *failures->list, err) < 0)
        return -1;
    struct failure *failure = &failures->list[failures->n++];
    *failure = (struct failure){.why = *why};
    snprintf(failure->policy, sizeof failure->policy, "%s", policy);
    return 0;
}

void failures_release(struct failures *failures)
{
    free(failures->list);
    *failures = (struct failures){0};
}
