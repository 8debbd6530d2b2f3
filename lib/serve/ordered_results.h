/* Writes results in the order of their lines, or in order of completion (`unordered`). */
#ifndef BMC_ORDERED_RESULTS_H
#define BMC_ORDERED_RESULTS_H

#include "base/mem.h"

/* {.write = .., .unordered = ..} is an empty one. */
struct results {
    int (*write)(const struct buf *line, struct err *err); /* writes a line at once, unbuffered */
    bool unordered;
    struct pending_result *pending; /* results of lines first .. first + n - 1 */
    size_t n, cap;
    uint64_t first;
};

/* Adds the next line to the output order; lines are numbered from 0. */
int results_expect(struct results *results, struct err *err) MUST_USE;

/* Sets the result of an expected line; takes ownership of `text`. Writes it once the results of all
 * earlier lines have been written. */
int results_put(struct results *results, uint64_t line, struct buf *text, struct err *err) MUST_USE;

/* Ends a run: writes remaining results, although earlier lines have none. */
int results_end(struct results *results, struct err *err) MUST_USE;
void results_release(struct results *results);

#endif
