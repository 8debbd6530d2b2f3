/* Results that wait for their turn. */
#include "gen_results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen.h"

struct waiting {
    struct buf text;
    bool ready;
};

/* A failed write of much text leaves nothing for fflush() to fail with. */
static int put(const struct buf *text, struct err *err)
{
    if (gen_put(text, err) < 0)
        return -1;
    return fflush(stdout) == 0 ? 0 : err_errno(err, "cannot write to standard output");
}

/* Writes all results whose turn it is; with `rest`, also those that wait for others. */
static int put_ready(struct results *results, bool rest, struct err *err)
{
    size_t n = 0;
    int rc = 0;
    while (n < results->n && (results->waiting[n].ready || rest) && rc == 0) {
        if (results->waiting[n].ready)
            rc = put(&results->waiting[n].text, err);
        buf_release(&results->waiting[n++].text);
    }
    results->n -= n;
    results->first += n;
    if (n)
        memmove(results->waiting, results->waiting + n, results->n * sizeof *results->waiting);
    return rc;
}

int results_expect(struct results *results, struct err *err)
{
    if (results->unordered)
        return 0;
    if (mem_grow(&results->waiting, &results->cap, results->n, sizeof *results->waiting, err) < 0)
        return -1;
    results->waiting[results->n++] = (struct waiting){0};
    return 0;
}

int results_put(struct results *results, uint64_t line, struct buf *text, struct err *err)
{
    if (!results->unordered) {
        results->waiting[line - results->first] = (struct waiting){*text, true};
        return put_ready(results, false, err);
    }
    const int rc = put(text, err);
    buf_release(text);
    return rc;
}

int results_end(struct results *results, struct err *err) { return put_ready(results, true, err); }

void results_release(struct results *results)
{
    for (size_t i = 0; i < results->n; i++)
        buf_release(&results->waiting[i].text);
    free(results->waiting);
    *results = (struct results){0};
}
