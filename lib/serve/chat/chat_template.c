/* Renders conversations with a Jinja template: what the template copes with, messages in its form, and rendering. */
#include "serve/chat/chat_template.h"

#include <ctype.h>

#include "base/text_util.h"
#include "text/utf8.h"

/* ---- probes ---- */

#define ARGUMENT "Zq7arg" /* begins the key and the value: some templates write one of them */
#define OBJECT   "{\"" ARGUMENT "key\": \"" ARGUMENT "value\"}"
#define STRING   "\"{\\\"" ARGUMENT "key\\\": \\\"" ARGUMENT "value\\\"}\""
#define NAME     "Zq7tool"
#define CALLS                                                                                          \
    "\"tool_calls\":[{\"id\":\"Zq7call01\",\"type\":\"function\",\"function\":{\"name\":\"" NAME       \
    "\",\"arguments\":@}}]"
#define MESSAGE(role, content) "{\"role\":\"" role "\",\"content\":" content "}"
#define USER                   MESSAGE("user", "\"Zq7first\"")
#define AGAIN                  MESSAGE("user", "\"Zq7second\"")
#define SYSTEM                 MESSAGE("system", "\"Zq7rules\"")
#define CALLING(content)       "{\"role\":\"assistant\",\"content\":" content "," CALLS "}"
#define RESULT(content)                                                                                \
    "{\"role\":\"tool\",\"tool_call_id\":\"Zq7call01\",\"name\":\"" NAME "\",\"content\":" content "}"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"" NAME "\",\"description\":\"Zq7what\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"Zq7key\":{\"type\":\"string\","
    "\"description\":\"Zq7how\"}},\"required\":[\"Zq7key\"]}}}]";

/* Conversations with a tool call: some templates refuse one, or require tools or a system message. # is the
 * content of the calling message, @ the arguments. */
static const char *const calling[] = {USER "," CALLING("#") "," RESULT("\"Zq7result\""),
                                      USER "," CALLING("#") "," AGAIN,
                                      SYSTEM "," USER "," CALLING("#") "," RESULT("\"Zq7result\"")};

/* Conversations in which # is the content that is null. */
static const char *const with_content[NULL_CONTENTS] = {
    [NULL_OF_ANSWER] = USER "," MESSAGE("assistant", "#") "," AGAIN,
    [NULL_OF_TOOL] = USER "," CALLING("\"\"") "," RESULT("#"),
    [NULL_OF_USER] = MESSAGE("user", "#") "," MESSAGE("assistant", "\"Zq7answer\"") "," AGAIN,
    [NULL_OF_SYSTEM] = MESSAGE("system", "#") "," USER,
};

struct probe {
    const struct jinja_template *template;
    const json_t *trusted;
    struct tm now;
    struct err *err;
    int rc;                   /* -1: out of memory */
    const char *conversation; /* messages, in which # and @ are replaced */
    const char *arguments;
    bool tools;
};

/* Renders a conversation; false: the template refuses it. */
static bool probe_renders(struct probe *p, const char *content, struct marked_text *out)
{
    /* a small conversation: a template that takes longer is as good as one that refuses it */
    const struct jinja_limits limits = {.steps = 200000, .memory = 32 << 20};
    struct buf json = {0};
    struct err refused;
    json_error_t why;
    out->text.len = out->n_content = 0;
    int rc = buf_addf(&json, p->err, "{\"add_generation_prompt\":true,\"documents\":null,\"tools\":%s",
                      p->tools ? tools_json : "null");
    if (rc == 0)
        rc = buf_addf(&json, p->err, ",\"messages\":[");
    for (const char *at = p->conversation; *at && rc == 0; at++) {
        const char *put = *at == '#' ? content : *at == '@' ? p->arguments : NULL;
        rc = buf_add(&json, put ? put : at, put ? strlen(put) : 1, p->err);
    }
    if (rc == 0)
        rc = buf_addf(&json, p->err, "]}");
    json_t *variables = rc == 0 ? json_loadb(buf_text(&json), json.len, 0, &why) : NULL;
    buf_release(&json);
    if (!variables) {
        p->rc = rc < 0 ? -1 : err_no_memory(p->err, "a conversation");
        return false;
    }
    const struct jinja_input input = {.trusted = p->trusted, .content = variables, .now = p->now};
    rc = jinja_render(p->template, &input, &limits, out, &refused);
    if (rc == 0 && buf_reserve(&out->text, 1, p->err) == 0)
        out->text.data[out->text.len] = 0;
    json_decref(variables);
    return rc == 0;
}

static size_t occurrences(const struct marked_text *text, const char *what)
{
    size_t n = 0;
    for (const char *at = buf_text(&text->text); (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* Finds a conversation whose call the template writes, and the forms of arguments that it takes. */
static void find_calls(struct probe *p, struct template_traits *traits, struct marked_text *out)
{
    static const char *const contents[] = {"\"\"", "null"};
    static const struct {
        enum call_arguments form;
        const char *json, *kept, *spoilt; /* texts that tell whether its meaning survives */
    } forms[] = {{ARGUMENTS_STRING, STRING, OBJECT, STRING},
                 {ARGUMENTS_OBJECT, OBJECT, ARGUMENT, "{'" ARGUMENT}};
    const unsigned half = ARRAY_LEN(contents) * ARRAY_LEN(calling);
    unsigned taken = 0;
    for (unsigned i = 0; i < 2 * half && !taken && p->rc == 0; i++) {
        p->tools = i < half;
        p->conversation = calling[i / ARRAY_LEN(contents) % ARRAY_LEN(calling)];
        for (size_t k = 0; k < ARRAY_LEN(forms); k++) {
            p->arguments = forms[k].json;
            if (!probe_renders(p, contents[i % ARRAY_LEN(contents)], out))
                continue;
            traits->drops_calls &= !occurrences(out, ARGUMENT);
            if (occurrences(out, forms[k].kept) && !occurrences(out, forms[k].spoilt))
                taken |= forms[k].form;
        }
    }
    traits->arguments = taken ? taken : ARGUMENTS_ANY;
    if (taken == ARGUMENTS_STRING)
        p->arguments = STRING;
}

/* Whether a content that is null loses nothing that "" keeps, and is not written as a word. */
static bool takes_null(struct probe *p, struct marked_text *null, struct marked_text *empty)
{
    static const char *const kept[] = {ARGUMENT, "Zq7result", "Zq7first", "Zq7second"};
    if (!probe_renders(p, "null", null))
        return false;
    if (!probe_renders(p, "\"\"", empty))
        return true;
    bool takes = occurrences(null, "None") <= occurrences(empty, "None") &&
                 occurrences(null, "null") <= occurrences(empty, "null");
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        takes &= occurrences(null, kept[i]) >= occurrences(empty, kept[i]);
    return takes;
}

/* `trusted`: variables, as of jinja_render(). */
static int template_probe(const struct jinja_template *template, const json_t *trusted,
                          const struct tm *now, struct template_traits *traits, struct err *err)
{
    struct probe p = {.template = template, .trusted = trusted, .now = *now, .err = err};
    AUTO(marked_release) struct marked_text out = {0}, other = {0};
    *traits = (struct template_traits){.drops_calls = !jinja_names(template, "tool_calls")};
    find_calls(&p, traits, &out);
    for (int i = 0; i < NULL_CONTENTS && p.rc == 0; i++) {
        if (with_content[i])
            p.conversation = with_content[i];
        traits->takes_null[i] = takes_null(&p, &out, &other);
    }
    return p.rc;
}

/* ---- messages as a template wants them ---- */

/* What is being rewritten, for errors. */
struct message_rewriting {
    const struct jinja_template *template;
    const struct template_traits *traits;
    size_t message;
    struct err *err;
};

/* A value as JSON text, as templates write it. */
static json_t *text_of(const struct message_rewriting *r, const json_t *value)
{
    static const char writer[] = "{{ value | tojson }}";
    struct jinja_template *template = NULL;
    AUTO(marked_release) struct marked_text text = {0};
    json_t *variables = json_object(), *string = NULL;
    const struct jinja_input input = {.content = variables};
    if (json_put(variables, "value", json_incref((json_t *)(uintptr_t)value), r->err) == 0 &&
        jinja_parse(&template, writer, strlen(writer), "arguments", r->err) == 0 &&
        jinja_render(template, &input, NULL, &text, r->err) == 0 &&
        !(string = json_stringn(buf_text(&text.text), text.text.len)))
        err_no_memory(r->err, "arguments");
    jinja_free(template);
    json_decref(variables);
    return string;
}

/* Arguments, of which none were given if the text is empty; where a template may take strings too, a text
 * that is no object stays one. */
static json_t *object_of(const struct message_rewriting *r, const json_t *string)
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
static json_t *arguments_of(const struct message_rewriting *r, const json_t *arguments)
{
    if (r->traits->arguments != ARGUMENTS_STRING && json_is_string(arguments))
        return object_of(r, arguments);
    if (r->traits->arguments == ARGUMENTS_STRING &&
        (json_is_object(arguments) || json_is_array(arguments)))
        return text_of(r, arguments);
    return json_incref((json_t *)(uintptr_t)arguments);
}

/* A call whose arguments, its own or those of its function, are rewritten; other values as they are. */
static json_t *call_of(const struct message_rewriting *r, const json_t *call)
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

static json_t *calls_of(const struct message_rewriting *r, const json_t *calls)
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
static json_t *null_content(const struct message_rewriting *r, const json_t *message, const char *role)
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
static json_t *member_of(const struct message_rewriting *r, const json_t *message, const char *role,
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

static json_t *message_of(const struct message_rewriting *r, const json_t *message)
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

/* Appends messages[from] and those behind it to `list`:
 * - reasoning has all the names by which templates know it;
 * - arguments of tool calls are an object or its JSON text, whichever the template writes;
 * - a content that is null, or missing from an answer, is none or "", whichever the template copes with;
 * - other members that are null are left out, as by transformers, unless the template asks for none. */
static int template_messages(const struct jinja_template *template,
                             const struct template_traits *traits, const json_t *messages, size_t from,
                             json_t *list, struct err *err)
{
    struct message_rewriting r = {.template = template, .traits = traits, .err = err};
    for (r.message = from; r.message < json_array_size(messages); r.message++) {
        json_t *message = message_of(&r, json_array_get(messages, r.message));
        if (!message || json_push(list, message, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- messages whose content is a list of parts ---- */

/* True if a Jinja template reads the parts of contents itself. */
static bool template_reads_parts(const char *text)
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
    AUTO(buf_release) struct buf text = {0};
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

/* ---- renders conversations with a model's Jinja template ---- */

/* Placeholder for the generated answer; survives every template unchanged. */
#define ANSWER "Zg7answer4Qx"

/* Where a message ends that is to be continued. A template that drops the blank strips messages. */
#define OPEN_END "Zg7end4Qx "

int chat_template_open(struct chat_template *t, const char *text, const char *tools, const char *name,
                       json_t *tokens, struct err *err)
{
    t->reads_parts = template_reads_parts(text);
    t->tokens = tokens;
    int rc =
        tokens ? jinja_parse(&t->plain, text, strlen(text), name, err) : err_no_memory(err, "%s", name);
    if (rc == 0 && tools)
        rc = jinja_parse(&t->with_tools, tools, strlen(tools), name, err);
    if (rc == 0)
        rc = template_probe(t->plain, t->tokens, &t->now, &t->traits[0], err);
    if (rc == 0 && tools)
        rc = template_probe(t->with_tools, t->tokens, &t->now, &t->traits[1], err);
    return rc;
}

void chat_template_close(struct chat_template *t)
{
    jinja_free(t->plain);
    jinja_free(t->with_tools);
    json_decref(t->tokens);
    *t = (struct chat_template){.now = t->now};
}

const struct jinja_template *chat_template_of(const struct chat_template *t,
                                              const struct conversation *c,
                                              const struct template_traits **traits)
{
    const bool tools = c->tools && t->with_tools;
    *traits = &t->traits[tools];
    return tools ? t->with_tools : t->plain;
}

static int add_messages(const struct chat_template *t, const struct conversation *c, size_t from,
                        json_t *list, struct err *err)
{
    const struct template_traits *traits;
    const struct jinja_template *template = chat_template_of(t, c, &traits);
    return template_messages(template, traits, c->messages, from, list, err);
}

static json_t *or_null(const json_t *value)
{
    return value ? json_incref((json_t *)(uintptr_t)value) : json_null();
}

/* Renders with `messages`, whose reference is taken over, in place of the conversation's; all are closed. */
static int render_closed(const struct chat_template *t, const struct conversation *c, json_t *messages,
                         bool answer, struct marked_text *out, struct err *err)
{
    AUTO(json_auto)
    json_t *variables = json_pack("{sosososb}", "messages", messages, "tools", or_null(c->tools),
                                  "documents", or_null(c->documents), "add_generation_prompt", answer);
    json_t *value;
    const char *key;
    int rc = variables ? 0 : err_no_memory(err, "a conversation");
    json_object_foreach((json_t *)(uintptr_t)c->variables, key, value)
    {
        if (rc == 0 && json_object_get(variables, key))
            rc = err_set(err, "\"chat_template_kwargs\" has \"%.60s\", which is set on its own", key);
        if (rc == 0)
            rc = json_put(variables, key, json_incref(value), err);
    }
    const struct jinja_input input = {.trusted = t->tokens, .content = variables, .now = t->now};
    const struct template_traits *unused;
    return rc < 0 ? -1 : jinja_render(chat_template_of(t, c, &unused), &input, NULL, out, err);
}

/* Appends the bytes [start, end) of a rendered text; *nth, at first 0, is a range of content that ends behind the last
 * part. */
static int add_part(const struct marked_text *text, size_t start, size_t end, size_t *nth,
                    struct marked_text *out, struct err *err)
{
    int rc = 0;
    while (*nth < text->n_content && text->content[*nth].end <= start)
        ++*nth;
    for (size_t i = *nth; i < text->n_content && text->content[i].start < end && rc == 0; i++) {
        const size_t from = size_max(text->content[i].start, start),
                     to = size_min(text->content[i].end, end);
        if (to <= start)
            continue;
        rc = marked_add(out, text->text.data + start, from - start, err);
        if (rc == 0)
            rc = marked_add_content(out, text->text.data + from, to - from, err);
        start = to;
    }
    return rc == 0 ? marked_add(out, text->text.data + start, end - start, err) : rc;
}

/* ---- messages that are continued ---- */

/* A text with the mark behind it. */
static json_t *opened(const json_t *text, struct err *err)
{
    AUTO(buf_release) struct buf open = {0};
    json_t *string = NULL;
    if (buf_add(&open, json_string_value(text), json_string_length(text), err) == 0 &&
        buf_add(&open, OPEN_END, strlen(OPEN_END), err) == 0)
        string = json_stringn(open.data, open.len);
    return string;
}

/* Copies a list of parts, with the mark behind the text of one. */
static json_t *opened_parts(json_t *parts, size_t nth, struct err *err)
{
    json_t *list = json_array(), *part = json_object(), *old = json_array_get(parts, nth);
    int rc = json_array_extend(list, parts) < 0 || json_object_update(part, old) < 0
                 ? err_no_memory(err, "a message")
                 : json_put(part, "text", opened(json_object_get(old, "text"), err), err);
    if (rc == 0 && json_array_set(list, nth, part) < 0)
        rc = err_no_memory(err, "a message");
    json_decref(part);
    return json_or_null(list, rc, err);
}

/* Puts the mark behind the text that is continued, a message's content or the last text of its parts. *text
 * borrows it from the conversation. */
static int open_last(const struct conversation *c, json_t *message, const json_t **text,
                     struct err *err)
{
    const json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    json_t *content = json_object_get(last, "content"), *open = NULL;
    *text = content;
    for (size_t i = json_array_size(content); i-- > 0 && !open;) {
        *text = json_object_get(json_array_get(content, i), "text");
        if (json_is_string(*text) && !(open = opened_parts(content, i, err)))
            return -1;
    }
    if (!json_is_string(*text))
        return err_set(
            err, "\"messages\": the content of the last entry is %s: there is no text to continue",
            json_type_name(content));
    return json_put(message, "content", open ? open : opened(content, err), err);
}

/* Whether a rendered text holds the text that is continued, without white space at its ends. */
static bool holds(const struct marked_text *whole, const json_t *content)
{
    const char *text = json_string_value(content);
    size_t start = 0, end = json_string_length(content);
    while (start < end && isspace((unsigned char)text[start]))
        start++;
    while (end > start && isspace((unsigned char)text[end - 1]))
        end--;
    return start == end || memmem(buf_text(&whole->text), whole->text.len, text + start, end - start);
}

/* The end of a text without the white space before `end`. */
static size_t stripped(const char *text, size_t end)
{
    uint32_t code;
    for (size_t before = end; end; end = before) {
        before = utf8_before(text, end);
        utf8_decode(text + before, &code);
        if (!utf8_is_space(code))
            break;
    }
    return end;
}

/* Appends a rendered text up to the last mark, without marks before it. */
static int add_open(const struct marked_text *whole, const json_t *content, struct marked_text *out,
                    struct err *err)
{
    const size_t word = strlen(OPEN_END) - 1, len = whole->text.len;
    const char *text = buf_text(&whole->text), *mark = memmem(text, len, OPEN_END, word);
    size_t start = 0, nth = 0;
    int rc = 0;
    if (!mark || !holds(whole, content))
        return err_set(err,
                       "the chat template changes the last message, so that it cannot be continued");
    while (mark && rc == 0) {
        const size_t at = (size_t)(mark - text), blank = at + word < len && text[at + word] == ' ';
        const size_t next = at + word + blank;
        mark = memmem(text + next, len - next, OPEN_END, word);
        rc = add_part(whole, start, mark || blank ? at : size_max(start, stripped(text, at)), &nth, out,
                      err);
        start = next;
    }
    return rc;
}

/* Renders with `messages`, whose reference is taken over, in place of the conversation's. */
static int render_open(const struct chat_template *t, const struct conversation *c, json_t *messages,
                       bool answer, struct marked_text *out, struct err *err)
{
    AUTO(marked_release) struct marked_text whole = {0};
    if (!c->open_end)
        return render_closed(t, c, messages, answer, out, err);
    const json_t *text;
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    int rc = open_last(c, last, &text, err);
    if (rc == 0)
        rc = render_closed(t, c, json_incref(messages), answer, &whole, err);
    if (rc == 0)
        rc = add_open(&whole, text, out, err);
    json_decref(messages);
    return rc;
}

int chat_template_render(const struct chat_template *t, const struct conversation *c,
                         struct marked_text *out, struct err *err)
{
    json_t *messages = json_array();
    if (!messages || add_messages(t, c, 0, messages, err) < 0) {
        json_decref(messages);
        return messages ? -1 : err_no_memory(err, "messages");
    }
    if (!json_array_size(messages)) {
        json_decref(messages);
        return err_set(err, "the conversation has no messages");
    }
    return render_open(t, c, messages, !c->no_answer, out, err);
}

static bool is_system(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role && strcmp(role, "system") == 0;
}

/* A conversation that begins with messages of others: a question and the answer that stands for one. */
static json_t *begun(const json_t *system, struct err *err)
{
    json_t *list = json_pack("[{ssss}{ssss}]", "role", "user", "content", "Hello", "role", "assistant",
                             "content", ANSWER);
    const bool full = list && system && json_array_insert(list, 0, (json_t *)(uintptr_t)system) < 0;
    return json_or_null(list, full ? err_no_memory(err, "messages") : 0, err);
}

/* Appends what a rendered text has after the answer. */
static int add_after_answer(const struct marked_text *text, struct marked_text *out, struct err *err)
{
    const size_t len = strlen(ANSWER);
    size_t at = SIZE_MAX;
    for (size_t i = 0; i + len <= text->text.len; i++)
        if (memcmp(text->text.data + i, ANSWER, len) == 0)
            at = i + len;
    if (at == SIZE_MAX)
        return err_set(err, "the chat template drops earlier answers, so that a conversation cannot be "
                            "continued");
    return add_part(text, at, text->text.len, &(size_t){0}, out, err);
}

int chat_template_continue(const struct chat_template *t, const struct conversation *c,
                           struct marked_text *out, struct err *err)
{
    const json_t *first = json_array_get(c->messages, 0);
    const bool system = !t->system_anywhere && is_system(first);
    AUTO(marked_release) struct marked_text text = {0};
    json_t *messages = begun(system ? first : NULL, err);
    if (!messages)
        return -1;
    if (add_messages(t, c, system, messages, err) < 0) {
        json_decref(messages);
        return -1;
    }
    return render_open(t, c, messages, !c->no_answer, &text, err) < 0
               ? -1
               : add_after_answer(&text, out, err);
}

int chat_template_end(const struct chat_template *t, struct buf *text, struct err *err)
{
    const struct conversation none = {0};
    AUTO(marked_release) struct marked_text whole = {0}, tail = {0};
    json_t *messages = begun(NULL, err);
    int rc = messages ? render_open(t, &none, messages, false, &whole, err) : -1;
    if (rc == 0)
        rc = add_after_answer(&whole, &tail, err);
    return rc < 0 ? -1 : buf_add(text, buf_text(&tail.text), tail.text.len, err);
}
