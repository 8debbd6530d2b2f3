/* Normalizers of characters: each appends to `out` what a text becomes. */
#ifndef BMC_NORM_CHARS_H
#define BMC_NORM_CHARS_H

#include "text/slice.h"
#include "text/tok_tables.h"

/* Unicode's normal forms. */
int norm_unicode(enum tok_form form, struct slice text, struct buf *out, struct err *err) MUST_USE;

/* Without combining marks. */
int norm_strip_accents(struct slice text, struct buf *out, struct err *err) MUST_USE;

int norm_lowercase(struct slice text, struct buf *out, struct err *err) MUST_USE;

/* By the charsmap as the library of tokenizer.json does it: user-perceived characters of less than 6
 * bytes, or their code points, become what their shortest beginning in the map becomes. */
int norm_charsmap(const struct tokenizer *tok, struct slice text, size_t limit, struct buf *out,
                  struct err *err) MUST_USE;

#endif
