/* Text of which some parts are content: a rendered conversation. */
#ifndef BMC_MARKED_TEXT_H
#define BMC_MARKED_TEXT_H

#include "text/slice.h"

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

#endif
