/* Templates: parsing and rendering as a whole. */
#include "text/jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja_exec.h"
#include "text/jinja_values/jinja_json.h"
#include "text/jinja/jinja_search.h"
#include "text/jinja/jinja_statements.h"
#include "text/utf8.h"

enum {
    MOST_TEMPLATE = 4 << 20, /* bytes of a template */
    MOST_PARSED = 256 << 20, /* bytes of memory for its syntax tree */
    PARSE_DEPTH = 400,
    RENDER_DEPTH = 1200,
    RENDER_MEMORY = 256 << 20,
    RENDER_STEPS = 20000000,
};

struct jinja_template {
    struct jinja_state state; /* its arena holds the syntax tree */
    struct jn_list body;
    json_t *names; /* jn_names() */
    char *name, *source;
};

/* Copies the source: newlines are \n, and one at the end is dropped. */
static int copy_source(struct jinja_template *t, const char *text, size_t len, const char *name,
                       struct err *err)
{
    const size_t valid = utf8_valid(text, len);
    if (len > MOST_TEMPLATE)
        return err_set(err, "%s: a template of %zu bytes is too long: at most %d", name, len,
                       MOST_TEMPLATE);
    if (valid < len)
        return err_set(err, "%s: the template is not UTF-8 at byte %zu", name, valid);
    if (memchr(text, 0, len))
        return err_set(err, "%s: the template holds a zero character", name);
    t->name = strdup(name);
    t->source = malloc(len + 1);
    if (!t->name || !t->source)
        return err_no_memory(err, "%s: a template", name);
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            continue;
        t->source[n++] = (char)(text[i] == '\r' ? '\n' : text[i]);
    }
    if (n && t->source[n - 1] == '\n')
        n--;
    t->state.source_len = n;
    return 0;
}

/* The only caller of setjmp() for parsing: nothing that it sets is used after an error. */
static int parse(struct jinja_template *t)
{
    if (setjmp(t->state.way_out))
        return -1;
    t->body = jinja_statements(&t->state);
    return 0;
}

int jinja_parse(struct jinja_template **parsed, const char *text, size_t len, const char *name,
                struct err *err)
{
    struct jinja_template *t = calloc(1, sizeof *t);
    *parsed = NULL;
    if (!t)
        return err_no_memory(err, "%s: a template", name);
    t->state = (struct jinja_state){
        .most_memory = MOST_PARSED, .most_work = UINT64_MAX, .most_depth = PARSE_DEPTH, .err = err};
    int rc = copy_source(t, text, len, name, err);
    if (rc == 0) {
        t->state.source = t->source;
        t->state.name = t->name;
        rc = parse(t);
    }
    if (rc == 0 && !(t->names = jn_names(&t->body)))
        rc = err_no_memory(err, "%s: a template", name);
    t->state.err = NULL;
    if (rc < 0)
        jinja_free(t);
    else
        *parsed = t;
    return rc;
}

void jinja_free(struct jinja_template *t)
{
    if (!t)
        return;
    jinja_state_release(&t->state);
    json_decref(t->names);
    free(t->name);
    free(t->source);
    free(t);
}

int jinja_literals(const struct jinja_template *t, struct buf *text, struct err *err)
{
    return buf_add(text, t->source, t->state.source_len, err);
}

bool jinja_names(const struct jinja_template *t, const char *name)
{
    return json_object_get(t->names, name);
}

bool jinja_asks_none(const struct jinja_template *t, const char *name)
{
    return json_is_true(json_object_get(t->names, name));
}

/* ---- rendering ---- */

/* Roles are part of delimiters in many templates: '<|' + role + '|>'. Other names stay content. */
static bool is_usual_role(const json_t *role)
{
    static const char *const usual[] = {
        "system",   "user",          "assistant",   "tool",      "tools",    "developer",
        "function", "model",         "bot",         "ipython",   "human",    "gpt",
        "chatbot",  "environment",   "observation", "context",   "document", "documents",
        "control",  "tool_response", "tool_call",   "tool_calls"};
    const char *name = json_string_value(role);
    for (size_t i = 0; name && i < ARRAY_LEN(usual); i++)
        if (strcasecmp(name, usual[i]) == 0)
            return true;
    return false;
}

/* Marks usual roles as text of the template. */
static void trust_roles(struct jinja_state *j, struct jv messages, const json_t *json)
{
    const struct jv key = jv_string(js_literal(j, "role"));
    for (size_t i = 0; messages.kind == JV_LIST && i < messages.list->n; i++) {
        const json_t *role = json_object_get(json_array_get(json, i), "role");
        if (messages.list->item[i].kind == JV_DICT && is_usual_role(role))
            jv_dict_set(j, messages.list->item[i].dict, key, jv_from_json(j, role, false));
    }
}

static void set_variables(struct jx *x, struct jx_scope *scope, const json_t *variables, bool content)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value)
    {
        const struct jv v = jv_from_json(x->j, value, content);
        if (strcmp(name, "messages") == 0)
            trust_roles(x->j, v, value);
        jx_set(x, scope, js_literal(x->j, name), v);
    }
}

/* The only caller of setjmp() for rendering. */
static int render(struct jinja_state *j, const struct jinja_template *t,
                  const struct jinja_input *input, const struct js **text)
{
    struct jx x = {.j = j};
    if (setjmp(j->way_out))
        return -1;
    struct jx_scope *scope = jx_scope_new(&x, NULL);
    set_variables(&x, scope, input->trusted, false);
    set_variables(&x, scope, input->content, true);
    *text = jinja_run(j, &t->body, scope);
    return 0;
}

/* Appends a text with its marks. */
static int append(const struct js *text, struct marked_text *out, struct err *err)
{
    const size_t len = out->text.len, n_content = out->n_content;
    int rc = 0;
    for (size_t start = 0, end; rc == 0 && start < text->len; start = end) {
        const bool content = js_is_content(text, start);
        end = text->mask ? start + 1 : text->len;
        while (end < text->len && (text->mask[end] != 0) == content)
            end++;
        rc = (content ? marked_add_content : marked_add)(out, text->text + start, end - start, err);
    }
    if (rc < 0) {
        out->text.len = len;
        out->n_content = n_content;
    }
    return rc;
}

int jinja_render(const struct jinja_template *t, const struct jinja_input *input,
                 const struct jinja_limits *limits, struct marked_text *out, struct err *err)
{
    const struct js *text = &js_empty;
    struct jinja_state j = {
        .most_memory = limits && limits->memory ? limits->memory : RENDER_MEMORY,
        .most_work = JINJA_STEP * (limits && limits->steps ? limits->steps : RENDER_STEPS),
        .most_depth = RENDER_DEPTH,
        .name = t->name,
        .source = t->source,
        .source_len = t->state.source_len,
        .now = input->now,
        .err = err,
    };
    int rc = render(&j, t, input, &text);
    if (rc == 0)
        rc = append(text, out, err);
    jinja_state_release(&j);
    return rc;
}
