/* XML output of svg.c, with untrusted text escaped. */
#ifndef BMC_SVG_PEN_H
#define BMC_SVG_PEN_H

#include "base/mem.h"

/* Writes to `out` until the first error, which rc and err keep. */
struct pen {
    struct buf *out;
    struct err *err;
    int rc;
};

void pen_put(struct pen *pen, const char *format, ...) PRINTF_LIKE(2, 3);

/* Display width of a text, in characters. */
size_t text_columns(const char *text);

/* Writes a text, escaped, truncated to `width` characters. */
void pen_text(struct pen *pen, const char *text, size_t width);

/* Writes a text element; `anchor` is start, middle or end, `attributes` are added to it. */
void pen_label(struct pen *pen, double x, double y, const char *anchor, const char *attributes,
               const char *text, size_t width);

#endif
