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

static int note(struct failures *failures, const char *policy, const struct err *why, struct err *err)
{
    if (mem_grow(&failures->list, &failures->cap, failures->n, sizeof *failures->list, err) < 0)
        return -1;
    struct failure *failure = &failures->list[failures->n++];
    *failure = (struct failure){.why = *why};
    snprintf(failure->policy, sizeof failure->policy, "%s", policy);
    return 0;
}

int rows_add_failure(const struct report *report, const char *policy, const struct kv_spec *spec,
                     size_t N, json_t *what, const struct err *why, json_t *rows, struct err *err)
{
    json_t *row = json_pack("{s:s}", "policy", policy);
    int rc = rows_merge(row, what, err);
    if (rc == 0)
        rc = rows_add_setup(report, spec, row, err);
    if (rc == 0)
        rc = json_put(row, "N", json_integer((json_int_t)N), err);
    if (rc == 0)
        rc = json_put(row, "error", json_text(why->text, strlen(why->text)), err);
    if (rc == 0)
        rc = json_push(rows, json_incref(row), err);
    json_decref(row);
    return rc < 0 ? -1 : note(report->failures, policy, why, err);
}

void failures_release(struct failures *failures)
{
    free(failures->list);
    *failures = (struct failures){0};
}
