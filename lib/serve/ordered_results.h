/* Writes result lines in the order of their input lines, or of completion (`unordered`). */
#ifndef BMC_ORDERED_RESULTS_H
#define BMC_ORDERED_RESULTS_H

#include "base/mem.h"

/* Results of a run that wait for earlier ones; {.write = .., .unordered = ..} initialises it. */
struct results {
    int (*write)(const struct buf *line, struct err *err); /* writes a result line, unbuffered */
    bool unordered;
    struct pending_result *pending; /* of announced lines from the first without a result on */
    size_t n, cap;
};

/* Announces that input line `line`, numbered from 0, will get a result, which keeps its place. Lines are announced in
 * their order; not all need be. */
int results_expect(struct results *results, uint64_t line, struct err *err) MUST_USE;

/* Sets the result of input line `line`; takes ownership of `text`. Writes it once the results of
 * all earlier lines have been written, or at once if unordered. */
int results_put(struct results *results, uint64_t line, struct buf *text, struct err *err) MUST_USE;

/* Ends a run: writes the results that still wait, although earlier lines have none. */
int results_end(struct results *results, struct err *err) MUST_USE;
void results_release(struct results *results);

#endif
