/* Messages whose content is a list of parts. */
#include "serve/chat/message_parts.h"

#include <string.h>

#include "base/text_util.h"

bool template_reads_parts(const char *text)
{
    static const char *const ways[] = {"'text'", "\"text\"", ".text"};
    bool reads = false;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        reads |= strstr(text, ways[i]) != NULL;
    return reads;
}

/* Joins the texts of a content's parts; `index`: of its message, for errors. */
static int join(const json_t *parts, size_t index, struct buf *text, struct err *err)
{
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *one = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_object(part))
            return err_set(err, "\"messages\": part %zu of entry %zu is %s, an object is expected", i,
                           index, json_type_name(part));
        if (!type)
            return err_set(err, "\"messages\": part %zu of entry %zu has no type", i, index);
        if (strcmp(type, "text") != 0)
            return err_set(err,
                           "\"messages\": part %zu of entry %zu is of type \"%s\", only text is read",
                           i, index, excerpt_of(type, strlen(type)).text);
        if (!json_is_string(one))
            return err_set(err,
                           "\"messages\": the text of part %zu of entry %zu is %s, a string is "
                           "expected",
                           i, index, json_type_name(one));
        if ((i && buf_add(text, "\n", 1, err) < 0) ||
            buf_add(text, json_string_value(one), json_string_length(one), err) < 0)
            return -1;
    }
    return 0;
}

static json_t *joined(const json_t *message, size_t index, struct err *err)
{
    struct buf text = {0};
    json_t *copy = json_object(), *value;
    const char *key;
    int rc = copy ? 0 : err_no_memory(err, "a message");
    json_object_foreach((json_t *)(uintptr_t)message, key, value)
    {
        if (rc == 0)
            rc = json_put(copy, key, json_incref(value), err);
    }
    if (rc == 0)
        rc = join(json_object_get(message, "content"), index, &text, err);
    if (rc == 0)
        rc = json_put(copy, "content", json_stringn(buf_text(&text), text.len), err);
    buf_release(&text);
    return json_or_null(copy, rc, err);
}

bool messages_have_other_parts(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *parts = json_object_get(json_array_get(messages, i), "content");
        for (size_t k = 0; k < json_array_size(parts); k++) {
            const char *type = json_string_value(json_object_get(json_array_get(parts, k), "type"));
            if (type && strcmp(type, "text") != 0)
                return true;
        }
    }
    return false;
}

json_t *messages_join_parts(const json_t *messages, struct err *err)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "messages");
    for (size_t i = 0; i < json_array_size(messages) && rc == 0; i++) {
        json_t *message = json_array_get(messages, i);
        const bool parts = json_is_array(json_object_get(message, "content"));
        json_t *one = parts ? joined(message, i, err) : json_incref(message);
        rc = one ? json_push(list, one, err) : -1;
    }
    return json_or_null(list, rc, err);
}
