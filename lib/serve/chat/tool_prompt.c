/* Tools as text. */
#include "serve/chat/tool_prompt.h"

static const char introduction[] =
    "You can call functions. Each line between the tags is the JSON description of one:\n<tools>\n";
static const char rules[] =
    "</tools>\n\nTo call functions, write for each call a JSON object with its name and its arguments, "
    "in tags:\n"
    "<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"PARAMETER\": \"VALUE\"}}\n</tool_call>\n"
    "The results follow as <tool_response>. Without need of a function, answer as usual.";

static int add_description(const json_t *tools, struct buf *text, struct err *err)
{
    size_t i;
    json_t *tool;
    int rc = buf_addf(text, err, "%s", introduction);
    json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
    {
        if (rc == 0)
            rc = json_append(tool, 0, text, err);
        if (rc == 0)
            rc = buf_add(text, "\n", 1, err);
    }
    return rc < 0 ? -1 : buf_addf(text, err, "%s", rules);
}

/* Appends a call as a model would write it; its arguments are an object, or their JSON as a string. */
static int add_call(const json_t *call, struct buf *text, struct err *err)
{
    json_error_t why;
    const json_t *function = json_object_get(call, "function");
    const json_t *given = json_object_get(function, "arguments");
    AUTO(json_auto)
    json_t *parsed = json_is_string(given)
                         ? json_load(json_string_value(given), json_string_length(given), 0, &why)
                         : NULL;
    const json_t *arguments = parsed ? parsed : given;
    const char *json = json_string_value(arguments);
    int rc = buf_addf(text, err, "%s<tool_call>\n{\"name\": ", text->len ? "\n" : "");
    if (rc == 0)
        rc = json_append(json_object_get(function, "name"), JSON_ENCODE_ANY, text, err);
    if (rc == 0)
        rc = buf_addf(text, err, ", \"arguments\": %s", json ? json : arguments ? "" : "{}");
    if (rc == 0 && !json && arguments)
        rc = json_append(arguments, JSON_ENCODE_ANY, text, err);
    return rc < 0 ? -1 : buf_addf(text, err, "}\n</tool_call>");
}

/* A message with another content, without its calls; NULL: out of memory. */
static json_t *with_content(const json_t *message, const char *role, const struct buf *text,
                            struct err *err)
{
    json_t *copy = json_copy((json_t *)(uintptr_t)message);
    int rc = json_put(copy, "role", json_string(role), err);
    if (rc == 0)
        rc = json_put(copy, "content", json_text(buf_text(text), text->len), err);
    if (rc == 0) {
        json_object_del(copy, "tool_calls");
        json_object_del(copy, "tool_call_id");
    }
    return json_or_null(copy, rc, err);
}

/* Appends a message, as text. Results that follow each other are one message by the user. */
static int add_message(json_t *list, const json_t *message, bool *results, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    const char *role = json_string_value(json_object_get(message, "role"));
    const char *content = json_string_value(json_object_get(message, "content"));
    const json_t *calls = json_object_get(message, "tool_calls");
    const bool is_result = role && strcmp(role, "tool") == 0;
    const size_t last = json_array_size(list);
    int rc = 0;
    if (!is_result && !json_array_size(calls)) {
        *results = false;
        return json_push(list, json_incref((json_t *)(uintptr_t)message), err);
    }
    if (is_result && *results)
        rc = buf_addf(&text, err, "%s\n",
                      json_string_value(json_object_get(json_array_get(list, last - 1), "content")));
    if (rc == 0 && content)
        rc = buf_addf(&text, err, is_result ? "<tool_response>\n%s\n</tool_response>" : "%s", content);
    for (size_t i = 0; i < json_array_size(calls) && rc == 0; i++)
        rc = add_call(json_array_get(calls, i), &text, err);
    json_t *said = rc == 0 ? with_content(message, is_result ? "user" : role, &text, err) : NULL;
    if (is_result && *results)
        json_array_remove(list, last - 1);
    *results = is_result;
    return said ? json_push(list, said, err) : -1;
}

json_t *tool_prompt_messages(const json_t *messages, const json_t *tools, struct err *err)
{
    AUTO(buf_release) struct buf system = {0};
    json_t *list = json_array();
    const json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    const char *said = json_string_value(json_object_get(first, "content"));
    const bool has_system =
        said && role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
    bool results = false;
    int rc = has_system ? buf_addf(&system, err, "%s\n\n", said) : 0;
    if (rc == 0)
        rc = add_description(tools, &system, err);
    if (rc == 0) {
        AUTO(json_auto)
        json_t *message = has_system ? json_incref((json_t *)(uintptr_t)first) : json_object();
        rc = json_push(list, with_content(message, has_system ? role : "system", &system, err), err);
    }
    for (size_t i = has_system; i < json_array_size(messages) && rc == 0; i++)
        rc = add_message(list, json_array_get(messages, i), &results, err);
    return json_or_null(list, rc, err);
}
