/* Conversations as clients send them: a template, a zero byte, and a JSON object with messages, tools and the
 * like. A template that renders a conversation renders it again in the same way; what is content are ascending
 * ranges of the text, also where the last message is continued. */
#include <stdlib.h>
#include <string.h>

#include "serve/chat/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef int renderer(const struct chat_template *t, const struct conversation *c,
                     struct marked_text *out, struct err *err);

static void try_conversation(const struct chat_template *t, const struct conversation *c,
                             renderer *render)
{
    struct marked_text first = {0}, second = {0};
    struct err err;
    const int rc = render(t, c, &first, &err);
    if (rc != render(t, c, &second, &err) ||
        (rc == 0 && (first.text.len != second.text.len ||
                     memcmp(buf_text(&first.text), buf_text(&second.text), first.text.len) != 0)))
        abort();
    for (size_t i = 0; i < first.n_content; i++)
        if (first.content[i].end > first.text.len || first.content[i].start > first.content[i].end ||
            (i && first.content[i].start < first.content[i - 1].end))
            abort();
    marked_release(&first);
    marked_release(&second);
}

static bool are_messages(const json_t *list)
{
    bool are = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        are &= json_is_object(json_array_get(list, i));
    return are;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *cut = size ? memchr(data, 0, size) : NULL;
    struct chat_template t = {.now = {.tm_mday = 1, .tm_year = 100}};
    json_error_t why;
    struct err err;
    if (!cut)
        return 0;
    json_t *root =
        json_loadb(cut + 1, size - (size_t)(cut + 1 - (const char *)data), JSON_ALLOW_NUL, &why);
    struct conversation c = {.messages = json_object_get(root, "messages"),
                             .tools = json_object_get(root, "tools"),
                             .variables = json_object_get(root, "variables")};
    if (are_messages(c.messages) &&
        chat_template_open(&t, (const char *)data, NULL, "fuzz",
                           json_pack("{ssss}", "bos_token", "<s>", "eos_token", "</s>"), &err) == 0) {
        try_conversation(&t, &c, chat_template_render);
        try_conversation(&t, &c, chat_template_continue);
        c.no_answer = c.open_end = true;
        try_conversation(&t, &c, chat_template_render);
    }
    chat_template_close(&t);
    json_decref(root);
    return 0;
}
