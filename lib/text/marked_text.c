/* Text of which some parts are content. */
#include "text/marked_text.h"

#include <stdlib.h>

int marked_add(struct marked_text *marked, const char *text, size_t len, struct err *err)
{
    return buf_add(&marked->text, text, len, err);
}

int marked_add_content(struct marked_text *marked, const char *text, size_t len, struct err *err)
{
    const size_t start = marked->text.len;
    if (mem_grow(&marked->content, &marked->cap_content, marked->n_content, sizeof *marked->content,
                 err) < 0 ||
        buf_add(&marked->text, text, len, err) < 0)
        return -1;
    marked->content[marked->n_content++] = (struct span){start, start + len};
    return 0;
}

void marked_release(struct marked_text *marked)
{
    buf_release(&marked->text);
    free(marked->content);
    *marked = (struct marked_text){0};
}
