/* Borrowed strings. */
#pragma once

#include "base/err.h"
#include "base/mem.h"

/* A borrowed string; {NULL, 0}: none. */
struct slice {
    const char *data;
    size_t size;
};

/* The bytes [start, end) of a text. */
struct span {
    size_t start, end;
};

/* Appends `text` to `out` with every non-empty `from` replaced by `to`. Fails if `out` would exceed
 * `limit` bytes: untrusted tokenizer tables could multiply a text repeatedly. */
int slice_replace(struct slice text, struct slice from, struct slice to, size_t limit, struct buf *out,
                  struct err *err) MUST_USE;

/* A text, and the ascending byte ranges of it that are content of messages, in contrast to text of the
 * chat template. */
struct marked_text {
    struct buf text;
    struct span *content;
    size_t n_content, cap_content;
};

/* Appends text; marked_add_content() records it as a range of content, even if it is empty. */
int marked_add(struct marked_text *marked, const char *text, size_t len, struct err *err) MUST_USE;
int marked_add_content(struct marked_text *marked, const char *text, size_t len,
                       struct err *err) MUST_USE;

void marked_release(struct marked_text *marked);
