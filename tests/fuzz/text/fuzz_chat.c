/* Chat formats and message content: the input is split at its first zero byte; a template and
 * content follow. A format that is written reads back and renders the same. */
#include <stdlib.h>
#include <string.h>

#include "text/chat/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(const struct chat *chat, const char *words, size_t len, struct buf *text)
{
    const struct chat_turn turn[] = {{CHAT_ROLE_SYSTEM, words, len / 2},
                                     {CHAT_ROLE_ASSISTANT, words + len / 2, len - len / 2},
                                     {CHAT_ROLE_USER, words, len}};
    struct marked_text out = {0};
    struct err err;
    if (chat_render(chat, NULL, turn, 3, CHAT_BEGINS, &out, &err) < 0 ||
        chat_render_end(chat, &out, &err) < 0 ||
        buf_add(text, buf_text(&out.text), out.text.len, &err) < 0)
        abort();
    for (size_t i = 0; i < out.n_content; i++)
        if (out.content[i].end > out.text.len || out.content[i].start > out.content[i].end ||
            (i && out.content[i].start < out.content[i - 1].end))
            abort();
    marked_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat chat, again;
    struct buf written = {0}, first = {0}, second = {0};
    struct err err;
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    if (!cut || chat_parse(&chat, (const char *)data, (size_t)(cut - data), "fuzz", &err) < 0)
        return 0;
    const char *rest = (const char *)cut + 1;
    const size_t len = size - (size_t)(cut - data) - 1;
    (void)chat_match(&chat, rest, len);
    render(&chat, rest, len, &first);
    /* These token names change nothing; a long text may be refused. */
    if (chat_write(&chat, "{bos}", "{eos}", &written, &err) == 0) {
        if (chat_parse(&again, written.data, written.len, "fuzz", &err) < 0)
            abort();
        render(&again, rest, len, &second);
        if (first.len != second.len || memcmp(first.data, second.data, first.len) != 0)
            abort();
        chat_release(&again);
    }
    chat_release(&chat);
    buf_release(&written);
    buf_release(&first);
    buf_release(&second);
    return 0;
}
