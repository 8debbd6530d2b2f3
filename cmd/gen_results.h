/* Results of --jsonl on their way to standard output: in the order of their lines, or as they come. */
#ifndef BMC_GEN_RESULTS_H
#define BMC_GEN_RESULTS_H

#include "base/mem.h"

struct results {
    bool unordered;
    struct waiting *waiting; /* of lines first .. */
    size_t n, cap;
    uint64_t first;
};

/* The next line has been read: it takes part in the order. */
int results_expect(struct results *results, struct err *err) MUST_USE;

/* The one result of a line that was expected; `text` is taken over. Written and flushed, once all earlier ones are there. */
int results_put(struct results *results, uint64_t line, struct buf *text, struct err *err) MUST_USE;

/* What still waits for others is written without them: the run ends. */
int results_end(struct results *results, struct err *err) MUST_USE;
void results_release(struct results *results);

#endif
