/* Replacing substrings. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include "text/slice.h"

#include <string.h>

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
