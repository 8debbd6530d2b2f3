/* Chat formats and message content: the input is split at its first zero byte; a template and
 * content follow. A format that is written reads back and renders the same. */
#include <stdlib.h>
#include <string.h>

#include "text/chat/chat.h"
#include "text/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render(const struct chat *chat, const char *words, size_t len, struct buf *text)
{
    const char *source = chat_template_text(chat);
    struct jinja_template *template;
    struct marked_text out = {0};
    struct err err;
    json_t *trusted = json_object();
    json_t *content = json_pack("{s[{ssso}{ssso}{ssso}]sb}", "messages", "role", "system", "content",
                                json_text(words, len / 2), "role", "assistant", "content",
                                json_text(words + len / 2, len - len / 2), "role", "user", "content",
                                json_text(words, len), "add_generation_prompt", 1);
    const struct jinja_input input = {.trusted = trusted, .content = content};
    if (chat_add_variables(chat, trusted, &err) < 0)
        abort();
    /* a template may be wrong */
    if (jinja_parse(&template, source, strlen(source), "fuzz", &err) == 0) {
        const struct jinja_limits limits = {.steps = 100000, .memory = 16 << 20};
        const int rc = jinja_render(template, &input, &limits, &out, &err);
        if ((rc < 0 && !chat_text(chat, "format") && len < 100) ||
            (rc == 0 && buf_add(text, out.text.data, out.text.len, &err) < 0))
            abort();
        jinja_free(template);
    }
    for (size_t i = 0; i < out.n_content; i++)
        if (out.content[i].end > out.text.len || out.content[i].start > out.content[i].end ||
            (i && out.content[i].start < out.content[i - 1].end))
            abort();
    marked_release(&out);
    json_decref(trusted);
    json_decref(content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chat chat, again;
    struct buf written = {0}, first = {0}, second = {0}, token = {0};
    struct err err;
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    if (!cut || chat_parse(&chat, (const char *)data, (size_t)(cut - data), "fuzz", &err) < 0)
        return 0;
    const char *rest = (const char *)cut + 1;
    const size_t len = size - (size_t)(cut - data) - 1;
    (void)chat_match(&chat, rest, len);
    /* a long text may be refused */
    if (chat.name && buf_addf(&token, &err, "<s>") == 0 &&
        chat_set_tokens(&chat, &token, &token, &err) == 0 && chat_write(&chat, &written, &err) == 0) {
        render(&chat, rest, len, &first);
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
    buf_release(&token);
    buf_release(&second);
    return 0;
}
