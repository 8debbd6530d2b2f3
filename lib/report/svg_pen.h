/* Writes XML for svg.c, with untrusted text escaped. */
#ifndef BMC_SVG_PEN_H
#define BMC_SVG_PEN_H

#include "base/mem.h"

/* Output state: functions append to `out` until the first error, which sets rc to -1 and fills
 * err. */
struct pen {
    struct buf *out;
    struct err *err;
    int rc;
};

void pen_put(struct pen *pen, const char *format, ...) PRINTF_LIKE(2, 3);

/* Display width of a text in columns; wide characters count twice. */
size_t text_columns(const char *text);

/* Writes a text, escaped and truncated to `width` columns. */
void pen_text(struct pen *pen, const char *text, size_t width);

/* Writes an SVG text element at (x, y), truncated to `width` columns. `anchor` is start, middle or
 * end; `attributes` are further XML attributes. */
void pen_label(struct pen *pen, double x, double y, const char *anchor, const char *attributes,
               const char *text, size_t width);

#endif
