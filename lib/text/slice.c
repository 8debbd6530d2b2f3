/* Replacing substrings; text with ranges of content. */
#include "text/slice.h"

int slice_replace(struct slice text, struct slice from, struct slice to, size_t limit, struct buf *out,
                  struct err *err)
{
    size_t done = 0;
    while (done < text.size) {
        const char *found = memmem(text.data + done, text.size - done, from.data, from.size);
        if (!found)
            break;
        size_t at = (size_t)(found - text.data);
        if (buf_add(out, text.data + done, at - done, err) < 0 ||
            buf_add(out, to.data, to.size, err) < 0)
            return -1;
        done = at + from.size;
        if (out->len > limit)
            break;
    }
    if (out->len > limit || text.size - done > limit - out->len)
        return err_set(err, "the tokenizer turns %zu bytes of text into more than %zu", text.size,
                       limit);
    return buf_add(out, text.data + done, text.size - done, err);
}

/* ---- text of which some parts are content ---- */

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
