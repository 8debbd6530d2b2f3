/* Messages as a template wants them. */
#include "serve/chat/template_messages.h"

#include <string.h>

#include "base/text_util.h"

/* What is being rewritten, for errors. */
struct rewriting {
    const struct jinja_template *template;
    const struct template_traits *traits;
    size_t message;
    struct err *err;
};

/* A value as JSON text, as templates write it. */
static json_t *text_of(const struct rewriting *r, const json_t *value)
{
    static const char writer[] = "{{ value | tojson }}";
    struct jinja_template *template = NULL;
    struct marked_text text = {0};
    json_t *variables = json_object(), *string = NULL;
    const struct jinja_input input = {.content = variables};
    if (json_put(variables, "value", json_incref((json_t *)(uintptr_t)value), r->err) == 0 &&
        jinja_parse(&template, writer, strlen(writer), "arguments", r->err) == 0 &&
        jinja_render(template, &input, NULL, &text, r->err) == 0 &&
        !(string = json_stringn(buf_text(&text.text), text.text.len)))
        err_no_memory(r->err, "arguments");
    jinja_free(template);
    marked_release(&text);
    json_decref(variables);
    return string;
}

/* Arguments, of which none were given if the text is empty; where a template may take strings too, a text
 * that is no object stays one. */
static json_t *object_of(const struct rewriting *r, const json_t *string)
{
    const char *text = json_string_value(string);
    json_error_t why;
    if (!text[strspn(text, " \t\r\n")] && strlen(text) == json_string_length(string))
        return json_object();
    json_t *value = json_load(text, json_string_length(string),
                              JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_FEW_VALUES, &why);
    if (!value && json_error_code(&why) == json_error_out_of_memory) {
        err_no_memory(r->err, "arguments");
    } else if (r->traits->arguments == ARGUMENTS_ANY && !json_is_object(value)) {
        json_decref(value);
        value = json_incref((json_t *)(uintptr_t)string);
    } else if (!value) {
        err_set(
            r->err,
            "\"messages\": entry %zu: the chat template writes the arguments of a tool call as JSON, "
            "which \"%s\" is not: %s",
            r->message, excerpt_of(text, strlen(text)).text, why.text);
    }
    return value;
}

/* The arguments in the form that the template writes. */
static json_t *arguments_of(const struct rewriting *r, const json_t *arguments)
{
    if (r->traits->arguments != ARGUMENTS_STRING && json_is_string(arguments))
        return object_of(r, arguments);
    if (r->traits->arguments == ARGUMENTS_STRING &&
        (json_is_object(arguments) || json_is_array(arguments)))
        return text_of(r, arguments);
    return json_incref((json_t *)(uintptr_t)arguments);
}

/* A call whose arguments, its own or those of its function, are rewritten; other values as they are. */
static json_t *call_of(const struct rewriting *r, const json_t *call)
{
    static const char *const keys[] = {"arguments", "function"};
    json_t *copy = json_is_object(call) ? json_object() : json_incref((json_t *)(uintptr_t)call);
    int rc = 0;
    if (json_is_object(call) && json_object_update(copy, (json_t *)(uintptr_t)call) < 0)
        rc = err_no_memory(r->err, "a tool call");
    for (size_t i = 0; i < ARRAY_LEN(keys) && rc == 0; i++) {
        const json_t *value = json_object_get(call, keys[i]);
        json_t *made = !value ? NULL : i == 0 ? arguments_of(r, value) : call_of(r, value);
        if (value)
            rc = made ? json_put(copy, keys[i], made, r->err) : -1;
    }
    return json_or_null(copy, rc, r->err);
}

static json_t *calls_of(const struct rewriting *r, const json_t *calls)
{
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(r->err, "tool calls");
    for (size_t i = 0; i < json_array_size(calls) && rc == 0; i++) {
        json_t *call = call_of(r, json_array_get(calls, i));
        rc = call ? json_push(list, call, r->err) : -1;
    }
    return json_or_null(list, rc, r->err);
}

/* What a content that is null becomes. */
static json_t *null_content(const struct rewriting *r, const json_t *message, const char *role)
{
    static const char *const roles[NULL_CONTENTS] = {[NULL_OF_ANSWER] = "assistant",
                                                     [NULL_OF_TOOL] = "tool",
                                                     [NULL_OF_USER] = "user",
                                                     [NULL_OF_SYSTEM] = "system"};
    size_t of =
        json_array_size(json_object_get(message, "tool_calls")) ? NULL_OF_CALLS : NULL_OF_ANSWER;
    while (of && of < NULL_CONTENTS && strcmp(roles[of], role) != 0)
        of++;
    return of < NULL_CONTENTS && r->traits->takes_null[of] ? json_null() : json_string("");
}

/* A member as the template wants it; *left_out: not at all. */
static json_t *member_of(const struct rewriting *r, const json_t *message, const char *role,
                         const char *key, json_t *value, bool *left_out)
{
    *left_out = false;
    if (strcmp(key, "tool_calls") == 0 && json_is_array(value))
        return calls_of(r, value);
    if (strcmp(key, "function_call") == 0)
        return call_of(r, value);
    if (!json_is_null(value))
        return json_incref(value);
    if (strcmp(key, "content") == 0)
        return null_content(r, message, role);
    *left_out = !jinja_asks_none(r->template, key);
    return json_null();
}

static json_t *message_of(const struct rewriting *r, const json_t *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const char *key, *role = json_string_value(json_object_get(message, "role"));
    json_t *copy = json_object(), *value, *reasoning = NULL;
    bool left_out;
    int rc = copy ? 0 : err_no_memory(r->err, "a message");
    role = role ? role : "";
    for (size_t i = 0; i < ARRAY_LEN(names) && !reasoning; i++) {
        value = json_object_get(message, names[i]);
        reasoning = value && !json_is_null(value) ? value : NULL;
    }
    if (rc == 0 && reasoning)
        rc = json_put(copy, "thinking", json_incref(reasoning), r->err);
    json_object_foreach((json_t *)(uintptr_t)message, key, value)
    {
        json_t *member = rc == 0 ? member_of(r, message, role, key, value, &left_out) : NULL;
        if (rc == 0)
            rc = !member ? -1 : left_out ? 0 : json_put(copy, key, member, r->err);
    }
    if (rc == 0 && reasoning)
        rc = json_put(copy, "reasoning_content", json_incref(reasoning), r->err);
    if (rc == 0 && strcmp(role, "assistant") == 0 && !json_object_get(message, "content"))
        rc = json_put(copy, "content", null_content(r, message, role), r->err);
    return json_or_null(copy, rc, r->err);
}

int template_messages(const struct jinja_template *template, const struct template_traits *traits,
                      const json_t *messages, size_t from, json_t *list, struct err *err)
{
    struct rewriting r = {.template = template, .traits = traits, .err = err};
    for (r.message = from; r.message < json_array_size(messages); r.message++) {
        json_t *message = message_of(&r, json_array_get(messages, r.message));
        if (!message || json_push(list, message, err) < 0)
            return -1;
    }
    return 0;
}
