/* What svg.c writes with: XML, and texts of any bytes in it. */
#ifndef BMC_SVG_PEN_H
#define BMC_SVG_PEN_H

#include "base/mem.h"

/* What is written to. Once something failed, nothing more is. */
struct pen {
    struct buf *out;
    struct err *err;
    int rc;
};

void pen_put(struct pen *pen, const char *format, ...) PRINTF_LIKE(2, 3);

/* Mean characters that a text is wide. */
size_t text_columns(const char *text);

/* The text, escaped, or as much of it as there is room for. */
void pen_text(struct pen *pen, const char *text, size_t room);

/* A text at a place; `anchor` is start, middle or end, `more` are attributes. */
void pen_label(struct pen *pen, double x, double y, const char *anchor, const char *more,
               const char *text, size_t room);

#endif
