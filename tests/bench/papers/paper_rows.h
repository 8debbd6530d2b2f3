/* The rows of tests/bench/papers.md, the index of the papers' tables and figures. */
#ifndef BMC_PAPER_ROWS_H
#define BMC_PAPER_ROWS_H

#include "base/mem.h"

enum { PAPER_CELLS = 6 };

/* The cells of a row, allocated: paper, item ("figure 1, table 10"), claim, script, result, verdict. */
struct paper_row {
    char *cell[PAPER_CELLS];
};

struct paper_rows {
    struct paper_row *row;
    size_t n, cap;
};

/* Reads the rows of the file's tables whose first cell is one of the papers' short names. */
int paper_rows_read(struct paper_rows *rows, const char *path, struct err *err) MUST_USE;
void paper_rows_close(struct paper_rows *rows);

/* Copies the next item of a cell "figures 5, 8, table 12" at *at to `text`, with its kind ("figure 8"), and
 * advances *at. `kind` keeps the kind between calls, "" at first. False at the end. */
bool paper_next_item(const char **at, char *kind, size_t kind_size, char *text, size_t size);

/* Writes an HTML id for a text: "BMC figure 10" is "bmc-figure-10". */
void paper_anchor(const char *text, char *anchor, size_t size);

#endif
