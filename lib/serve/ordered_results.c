/* Writes result lines in the order of their input lines. */
#include "serve/ordered_results.h"

#include <stdlib.h>
#include <string.h>

struct pending_result {
    struct buf text;
    uint64_t line;
    bool ready;
};

/* Writes all results up to the first input line without one; with `rest`, also those after it. */
static int put_ready(struct results *results, bool rest, struct err *err)
{
    size_t n = 0;
    int rc = 0;
    while (n < results->n && (results->pending[n].ready || rest) && rc == 0) {
        if (results->pending[n].text.len)
            rc = results->write(&results->pending[n].text, err);
        buf_release(&results->pending[n++].text);
    }
    results->n -= n;
    if (n)
        memmove(results->pending, results->pending + n, results->n * sizeof *results->pending);
    return rc;
}

int results_expect(struct results *results, uint64_t line, struct err *err)
{
    if (results->unordered)
        return 0;
    if (mem_grow(&results->pending, &results->cap, results->n, sizeof *results->pending, err) < 0)
        return -1;
    results->pending[results->n++] = (struct pending_result){.line = line};
    return 0;
}

int results_put(struct results *results, uint64_t line, struct buf *text, struct err *err)
{
    size_t at = 0, end = results->n;
    while (at + 1 < end) {
        const size_t mid = (at + end) / 2;
        if (results->pending[mid].line <= line)
            at = mid;
        else
            end = mid;
    }
    if (!results->unordered) {
        results->pending[at] = (struct pending_result){*text, line, true};
        return put_ready(results, false, err);
    }
    const int rc = results->write(text, err);
    buf_release(text);
    return rc;
}

int results_end(struct results *results, struct err *err) { return put_ready(results, true, err); }

void results_release(struct results *results)
{
    for (size_t i = 0; i < results->n; i++)
        buf_release(&results->pending[i].text);
    free(results->pending);
    *results = (struct results){0};
}
