/* Probes of templates. */
#include "serve/chat/template_probe.h"

#include <string.h>

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
static bool render(struct probe *p, const char *content, struct marked_text *out)
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

static size_t count(const struct marked_text *text, const char *what)
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
            if (!render(p, contents[i % ARRAY_LEN(contents)], out))
                continue;
            traits->drops_calls &= !count(out, ARGUMENT);
            if (count(out, forms[k].kept) && !count(out, forms[k].spoilt))
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
    if (!render(p, "null", null))
        return false;
    if (!render(p, "\"\"", empty))
        return true;
    bool takes =
        count(null, "None") <= count(empty, "None") && count(null, "null") <= count(empty, "null");
    for (size_t i = 0; i < ARRAY_LEN(kept); i++)
        takes &= count(null, kept[i]) >= count(empty, kept[i]);
    return takes;
}

int template_probe(const struct jinja_template *template, const json_t *trusted, const struct tm *now,
                   struct template_traits *traits, struct err *err)
{
    struct probe p = {.template = template, .trusted = trusted, .now = *now, .err = err};
    struct marked_text out = {0}, other = {0};
    *traits = (struct template_traits){.drops_calls = !jinja_names(template, "tool_calls")};
    find_calls(&p, traits, &out);
    for (int i = 0; i < NULL_CONTENTS && p.rc == 0; i++) {
        if (with_content[i])
            p.conversation = with_content[i];
        traits->takes_null[i] = takes_null(&p, &out, &other);
    }
    marked_release(&out);
    marked_release(&other);
    return p.rc;
}
