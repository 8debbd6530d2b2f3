/* Opens a chat template or format, and renders conversations with it. */
#include "serve/chat/chat_prompts.h"

#include <ctype.h>

#include "base/file.h"
#include "model/chat_registry.h"
#include "serve/chat/chat_template.h"
#include "serve/chat/tool_prompt.h"
#include "text/utf8.h"

/* Adds the model's own tokens to `variables`, else its BOS and EOS. */
static int add_own_tokens(const struct chat *chat, const struct buf *bos, const struct buf *eos,
                          json_t *variables, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < chat->n_tokens && rc == 0; i++)
        rc = json_put(variables, chat->token[i].name,
                      json_text(chat->token[i].text, strlen(chat->token[i].text)), err);
    if (rc == 0 && !chat_token(chat, "bos_token") && bos->len)
        rc = json_put(variables, "bos_token", json_text(bos->data, bos->len), err);
    if (rc == 0 && !chat_token(chat, "eos_token") && eos->len)
        rc = json_put(variables, "eos_token", json_text(eos->data, eos->len), err);
    return rc;
}

/* True if a template describes tools, or its format reads the calls that a system prompt asks for otherwise. */
static bool reads_calls(const struct chat_prompts *p)
{
    const struct chat_template *t = &p->jinja;
    bool reads = jinja_names(t->with_tools ? t->with_tools : t->plain, "tools");
    for (size_t i = 0; i < p->tools.n_patterns && !reads; i++) {
        const struct tool_pattern *pattern = &p->tools.pattern[i];
        reads = pattern->body < pattern->n && pattern->item[pattern->body].kind == TOOL_JSON &&
                strncmp(tool_pattern_opening(pattern), "<tool_call>", 11) == 0;
    }
    return reads;
}

/* Opens the format of tool calls of a template, or the one that prompts ask for if it has none; NULL: of a chat format. */
static int open_tools(struct chat_prompts *p, const char *text, struct err *err)
{
    char folder[4096];
    const char *models = p->options.models_dir;
    if (!models || snprintf(folder, sizeof folder, "%s/tools", models) >= (int)sizeof folder ||
        !file_is_folder(folder))
        return 0;
    const int found = text ? tool_format_find(&p->tools, models, text, strlen(text), err) : 0;
    if (found < 0 || (found && reads_calls(p)))
        return found < 0 ? -1 : 0;
    tool_format_release(&p->tools);
    return tool_format_open(&p->tools, models, "hermes", err);
}

/* Opens a Jinja template: its text, that for conversations with tools or NULL, and its name; NULL: that of
 * the format. */
static int open_jinja(struct chat_prompts *p, const char *text, const char *tools, const char *name,
                      struct err *err)
{
    AUTO(buf_release) struct buf bos = {0}, eos = {0};
    AUTO(json_auto) json_t *variables = json_object();
    p->jinja.now = p->options.now;
    p->by_format = p->jinja.system_anywhere = !text;
    int rc = variables ? chat_default_tokens(p->model->tok, &p->model->config, &bos, &eos, err)
                       : err_no_memory(err, "a chat template");
    if (rc == 0)
        rc = text ? add_own_tokens(&p->format, &bos, &eos, variables, err)
                  : chat_set_tokens(&p->format, &bos, &eos, err);
    if (rc == 0 && !text)
        rc = chat_add_variables(&p->format, variables, err);
    if (rc == 0)
        rc = chat_template_open(&p->jinja, text ? text : chat_template_text(&p->format), tools, name,
                                json_incref(variables), err);
    return rc < 0 ? -1 : open_tools(p, tools ? tools : text, err);
}

static int open_jinja_file(struct chat_prompts *p, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    struct file_map map;
    if (file_map(&map, p->options.format, err) < 0)
        return -1;
    int rc = buf_add(&text, map.data ? (const char *)map.data : "", map.size, err);
    if (rc == 0 && text.len && memchr(text.data, 0, text.len))
        rc = err_set(err, "%s: the template holds a zero character", p->options.format);
    if (rc == 0)
        rc = open_jinja(p, buf_text(&text), NULL, p->options.format, err);
    file_unmap(&map);
    return rc;
}

/* Opens the model's own template or format, or the one that was chosen. */
static int open_format(struct chat_prompts *p, struct err *err)
{
    const char *chosen = p->options.format;
    if (model_chat(p->model, &p->format, err) < 0)
        return -1;
    if (chosen && chat_is_jinja_path(chosen))
        return open_jinja_file(p, err);
    const char *text = chat_jinja(&p->format, chosen ? chosen : "default");
    if (text)
        return open_jinja(p, text, chosen ? NULL : chat_jinja(&p->format, "tool_use"), p->model->name,
                          err);
    if (chosen) {
        chat_release(&p->format);
        if (chat_open(&p->format, p->options.models_dir, chosen, err) < 0)
            return -1;
    }
    if (p->format.name)
        return open_jinja(p, NULL, NULL, p->format.name, err);
    return err_set(
        err,
        "%s: has no chat format: the model that it was converted from has no chat template, "
        "or one that is not understood; choose one, as --chat-template chatml or FILE.jinja; "
        "a base model has none: without --chat it continues the text of -p",
        p->model->name);
}

/* Divides the template's end-of-turn strings: single tokens act as EOS, others as stop strings. */
static void find_ends(struct chat_prompts *p)
{
    const json_t *list = json_object_get(p->format.lines, "end"), *end;
    size_t i;
    json_array_foreach(list, i, end)
    {
        const char *text = json_string_value(end);
        const int64_t id = tokenizer_find(p->model->tok, text, strlen(text));
        if (id >= 0)
            p->end[p->n_ends++] = (uint32_t)id;
        else if (*text)
            p->stop[p->n_stops++] = (char *)(uintptr_t)text;
    }
}

static bool has_letter(const char *text)
{
    while (*text && !isalpha((unsigned char)*text))
        text++;
    return *text != 0;
}

/* Appends the ids of tokens that a text names. */
static int find_in(const struct chat_prompts *p, const char *text, struct ids *found, struct err *err)
{
    return text ? tokenizer_find_added(p->model->tok, text, strlen(text), found, err) : 0;
}

static int find_in_template(const struct chat_prompts *p, const struct jinja_template *template,
                            struct ids *found, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    int rc = template ? jinja_literals(template, &text, err) : 0;
    return rc < 0 ? -1 : find_in(p, buf_text(&text), found, err);
}

/* Whether a line of a format has text of the conversation's template. */
static bool is_written(const char *key, const struct jinja_template *template)
{
    if (strcmp(key, "bos") == 0)
        return template && jinja_names(template, "bos_token");
    if (strcmp(key, "eos") == 0)
        return template && jinja_names(template, "eos_token");
    return strcmp(key, "default_system") != 0 && strcmp(key, "format") != 0;
}

/* Appends the ids of tokens that a format names, in its lines and its template, also if the model's own
 * template is used. */
static int find_in_format(const struct chat_prompts *p, struct ids *found, struct err *err)
{
    struct jinja_template *template = NULL;
    const char *text = chat_text(&p->format, "format"), *key;
    json_t *value;
    int rc = text ? jinja_parse(&template, text, strlen(text), p->format.name, err) : 0;
    json_object_foreach(p->format.lines, key, value)
    {
        if (rc == 0 && is_written(key, template))
            rc = find_in(p, json_string_value(value), found, err);
    }
    const json_t *ends = json_object_get(p->format.lines, "end");
    for (size_t i = 0; i < json_array_size(ends) && rc == 0; i++)
        rc = find_in(p, json_string_value(json_array_get(ends, i)), found, err);
    if (rc == 0)
        rc = find_in_template(p, template, found, err);
    jinja_free(template);
    return rc;
}

static int is_delimiter(const struct chat_prompts *p, uint32_t id, bool *is, struct err *err)
{
    AUTO(buf_release) struct buf piece = {0};
    const int rc = tokenizer_piece(p->model->tok, id, &piece, err);
    *is = rc == 0 && piece.len && has_letter(piece.data);
    return rc;
}

/* Collects the template's tokens as delimiters, which are not matched inside messages, even if the
 * vocabulary does not mark them as special. Excludes white space and punctuation. */
static int find_delimiters(struct chat_prompts *p, struct err *err)
{
    AUTO(ids_release) struct ids found = {0};
    bool is = false, known;
    int rc = find_in_format(p, &found, err);
    if (rc == 0)
        rc = find_in_template(p, p->by_format ? NULL : p->jinja.plain, &found, err);
    if (rc == 0)
        rc = find_in_template(p, p->jinja.with_tools, &found, err);
    for (size_t i = 0; i < found.len && rc == 0; i++) {
        rc = is_delimiter(p, found.id[i], &is, err);
        known = false;
        for (size_t k = 0; k < p->delimiters.len; k++)
            known |= p->delimiters.id[k] == found.id[i];
        if (rc == 0 && is && !known)
            rc = ids_add(&p->delimiters, found.id[i], err);
    }
    return rc;
}

/* The token with which a model's template goes on after an answer ends one, too. Templates that refuse to
 * render an answer at the end say nothing about it. */
static int find_jinja_end(struct chat_prompts *p, struct err *err)
{
    struct buf text = {0};
    struct ids all = {0}, added = {0};
    struct err ignored;
    bool is = false;
    int rc = 0;
    if (p->by_format || chat_template_end(&p->jinja, &text, &ignored) < 0)
        goto out;
    rc = tokenizer_encode(p->model->tok, buf_text(&text), text.len, false, &all, err);
    if (rc == 0)
        rc = find_in(p, buf_text(&text), &added, err);
    if (rc < 0 || !all.len || !added.len || all.id[0] != added.id[0])
        goto out;
    rc = is_delimiter(p, all.id[0], &is, err);
    for (size_t i = 0; i < p->n_ends; i++)
        is &= p->end[i] != all.id[0];
    if (rc == 0 && is)
        p->end[p->n_ends++] = all.id[0];
out:
    buf_release(&text);
    ids_release(&all);
    ids_release(&added);
    return rc;
}

int chat_prompts_open(struct chat_prompts *p, struct err *err)
{
    if (p->is_open)
        return 0;
    int rc = open_format(p, err);
    if (rc == 0)
        rc = find_delimiters(p, err);
    if (rc == 0) {
        find_ends(p);
        rc = find_jinja_end(p, err);
    }
    if (rc < 0)
        chat_prompts_close(p);
    else
        p->is_open = true;
    return rc;
}

void chat_prompts_close(struct chat_prompts *p)
{
    chat_template_close(&p->jinja);
    chat_release(&p->format);
    ids_release(&p->delimiters);
    tool_format_release(&p->tools);
    *p = (struct chat_prompts){.model = p->model, .options = p->options};
}

const struct tool_format *chat_prompts_tools(const struct chat_prompts *p)
{
    return p->tools.name ? &p->tools : NULL;
}

struct turn_end chat_prompts_turn_end(const struct chat_prompts *p)
{
    return (struct turn_end){p->end, p->n_ends, {p->stop, p->n_stops}};
}

/* ---- rendering ---- */

json_t *chat_message(const char *role, const char *text, size_t len, struct err *err)
{
    const size_t valid = utf8_valid(text, len);
    if (valid < len) {
        err_set(err, "the message is not valid UTF-8 at byte %zu", valid);
        return NULL;
    }
    json_t *message = json_object();
    int rc = json_put(message, "role", json_string(role), err);
    if (rc == 0)
        rc = json_put(message, "content", json_stringn(len ? text : "", len), err);
    return json_or_null(message, rc, err);
}

/* A conversation of one user message; the caller releases it. NULL: not valid UTF-8, or out of memory. */
static json_t *user_message(const char *text, size_t len, struct err *err)
{
    json_t *message = chat_message("user", text, len, err);
    json_t *list = message ? json_array() : NULL;
    return message ? json_or_null(list, json_push(list, message, err), err) : NULL;
}

static const char *role_of(const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    return role ? role : "";
}

static bool says_nothing(const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && !json_array_size(value));
}

/* Checks that a chat format can render a message. Members that are null or empty lists say nothing. */
static int check_message(const json_t *message, size_t i, struct err *err)
{
    const json_t *content = json_object_get(message, "content");
    const char *key, *role = role_of(message);
    const bool answer = strcmp(role, "assistant") == 0;
    json_t *value;
    if (json_array_size(json_object_get(message, "tool_calls")))
        return err_set(
            err,
            "\"messages\": entry %zu has tool_calls, which need a Jinja template: chat formats "
            "render text only",
            i);
    if (!answer && strcmp(role, "system") != 0 && strcmp(role, "user") != 0)
        return err_set(err, "\"messages\": the role of entry %zu is not system, user or assistant", i);
    if (!json_is_string(content) && !json_is_null(content) && (content || !answer))
        return err_set(err, "\"messages\": the content of entry %zu is %s, a string is expected", i,
                       json_type_name(content));
    json_object_foreach((json_t *)(uintptr_t)message, key, value)
    {
        if (strcmp(key, "role") != 0 && strcmp(key, "content") != 0 && !says_nothing(value))
            return err_set(err, "\"messages\": entry %zu has \"%.60s\" besides role and content", i,
                           key);
    }
    return 0;
}

/* Checks that a chat format can render a conversation. */
static int check_format(const struct chat_prompts *p, const struct conversation *c, struct err *err)
{
    const size_t n = json_array_size(c->messages);
    bool asks = false;
    if (json_array_size(c->tools) || c->documents || c->variables || (c->no_answer && !c->open_end))
        return err_set(err,
                       "tools, documents, add_generation_prompt and chat_template_kwargs need a Jinja "
                       "template; \"%s\" is a chat format",
                       p->format.name);
    for (size_t i = 0; i < n; i++) {
        const json_t *message = json_array_get(c->messages, i);
        if (check_message(message, i, err) < 0)
            return -1;
        asks |= strcmp(role_of(message), "user") == 0;
    }
    const char *last = n ? role_of(json_array_get(c->messages, n - 1)) : "";
    if (!asks || strcmp(last, "system") == 0)
        return err_set(err, "the last turn of a conversation must be the user's, or an answer to it");
    if (c->open_end && strcmp(last, "assistant") != 0)
        return err_set(err, "the last turn of a conversation is no answer that could be continued");
    return 0;
}

/* True if a conversation has tools of which the template says nothing, and which can be described instead. */
static bool describes_tools(const struct chat_prompts *p, const struct conversation *c)
{
    const struct template_traits *traits;
    return json_array_size(c->tools) && chat_prompts_tools(p) &&
           (p->by_format || !jinja_names(chat_template_of(&p->jinja, c, &traits), "tools"));
}

/* The messages behind the run's system prompt. The caller releases them. */
static json_t *with_system(const char *text, const json_t *messages, struct err *err)
{
    json_t *system = json_pack("{ssss}", "role", "system", "content", text), *list = json_array();
    int rc =
        system ? json_push(list, system, err) : err_set(err, "--system: the text is not valid UTF-8");
    if (rc == 0 && json_array_extend(list, (json_t *)(uintptr_t)messages) < 0)
        rc = err_no_memory(err, "messages");
    return json_or_null(list, rc, err);
}

/* Renders by the template: the run's system prompt begins a conversation that has none. One that continues
 * under a format has had it. */
static int render_jinja(const struct chat_prompts *p, const struct conversation *c, bool continues,
                        struct marked_text *out, struct err *err)
{
    const char *role = role_of(json_array_get(c->messages, 0));
    const bool has_system = strcmp(role, "system") == 0 || strcmp(role, "developer") == 0;
    struct conversation whole = *c;
    AUTO(json_auto) json_t *messages = NULL, *described = NULL;
    if (!whole.variables && !p->by_format)
        whole.variables = p->options.variables;
    if (p->options.system && !has_system && json_array_size(c->messages) &&
        !(p->by_format && continues)) {
        whole.messages = messages = with_system(p->options.system, c->messages, err);
        if (!messages)
            return -1;
    }
    if (describes_tools(p, c)) {
        whole.messages = described = tool_prompt_messages(whole.messages, c->tools, err);
        whole.tools = NULL;
        if (!described)
            return -1;
    }
    if (p->by_format && check_format(p, &whole, err) < 0)
        return -1;
    return (continues ? chat_template_continue : chat_template_render)(&p->jinja, &whole, out, err);
}

/* The names of variables that the template does not read, as a list for messages. */
static int add_unread(const struct jinja_template *template, const json_t *variables, struct buf *names,
                      struct err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value)
    {
        if (!jinja_names(template, name) &&
            buf_addf(names, err, "%s\"%.60s\"", names->len ? ", " : "", name) < 0)
            return -1;
    }
    return 0;
}

static bool has_calls(const json_t *messages)
{
    bool has = false;
    for (size_t i = 0; i < json_array_size(messages); i++)
        has |= json_array_size(json_object_get(json_array_get(messages, i), "tool_calls")) > 0;
    return has;
}

/* Says what the template ignores of a conversation. */
static int note_ignored(const struct chat_prompts *p, const struct conversation *c, struct err *err)
{
    struct chat_notes *notes = p->options.notes;
    const char *format = p->options.format;
    const struct template_traits *traits;
    const struct jinja_template *template = chat_template_of(&p->jinja, c, &traits);
    AUTO(buf_release) struct buf unread = {0}, sentence = {0};
    if (!notes)
        return 0;
    int rc = add_unread(template, c->variables ? c->variables : p->options.variables, &unread, err);
    if (rc == 0 && unread.len)
        rc = buf_addf(&unread, err, " of \"chat_template_kwargs\"");
    const struct {
        bool ignored;
        const char *what;
    } kinds[] = {
        {describes_tools(p, c), "\"tools\": a system prompt describes them, and asks for calls as "
                                "JSON in <tool_call> tags"},
        {json_array_size(c->tools) && !describes_tools(p, c) && !jinja_names(template, "tools"),
         "\"tools\": the model does not see them"},
        {has_calls(c->messages) && traits->drops_calls && !describes_tools(p, c),
         "\"tool_calls\" of messages: the model does not see them"},
        {json_array_size(c->documents) && !jinja_names(template, "documents"),
         "\"documents\": the model does not see them"},
        {unread.len > 0, buf_text(&unread)},
    };
    for (unsigned i = 0; i < ARRAY_LEN(kinds) && rc == 0; i++) {
        if (!kinds[i].ignored || notes->said >> i & 1)
            continue;
        buf_clear(&sentence);
        rc = buf_addf(&sentence, err, "%s: the chat template does not use %s",
                      format && chat_is_jinja_path(format) ? format : p->model->name, kinds[i].what);
        if (rc == 0)
            notes->say(notes->arg, buf_text(&sentence));
        notes->said |= 1U << i;
    }
    return rc;
}

static int render_messages(const struct chat_prompts *p, const struct conversation *c, unsigned flags,
                           struct marked_text *out, struct err *err)
{
    const bool continues = flags & CHAT_CONTINUES;
    const bool keeps = flags & CHAT_KEEPS_PARTS && messages_have_other_parts(c->messages);
    struct conversation joined = *c;
    json_t *messages = NULL;
    if (p->by_format || !(p->jinja.reads_parts || keeps)) {
        joined.messages = messages = messages_join_parts(c->messages, err);
        if (!messages)
            return -1;
    }
    int rc = render_jinja(p, &joined, continues, out, err);
    json_decref(messages);
    return rc == 0 && (!p->by_format || describes_tools(p, c)) ? note_ignored(p, c, err) : rc;
}

int chat_prompts_render(const struct chat_prompts *p, const struct conversation *c, unsigned flags,
                        struct marked_text *out, struct err *err)
{
    if (c->messages || !c->user)
        return render_messages(p, c, flags, out, err);
    struct conversation said = *c;
    AUTO(json_auto) json_t *messages = user_message(c->user, c->user_len, err);
    said.messages = messages;
    return messages ? render_messages(p, &said, flags, out, err) : -1;
}

int chat_prompts_encode(const struct chat_prompts *p, const char *text, size_t len,
                        const struct span *content, size_t n_content, unsigned flags, struct ids *ids,
                        struct err *err)
{
    return tokenizer_encode_chat(p->model->tok, text, len, content,
                                 flags & CHAT_PARSES_SPECIAL ? 0 : n_content, &p->delimiters, ids, err);
}

int chat_prompts_add(const struct chat_prompts *p, const struct conversation *c, unsigned flags,
                     struct ids *ids, struct buf *text, struct err *err)
{
    const bool continues = flags & CHAT_CONTINUES;
    struct marked_text out = {0};
    struct ids more = {0};
    size_t present = 0; /* number of leading tokens of `more` that `ids` already ends with */
    int rc = -1;
    if (chat_prompts_render(p, c, flags, &out, err) < 0)
        goto out;
    /* When continuing, appends the rest of the delimiter that ends the previous answer: the model
     * may have generated a part of it. */
    if (chat_prompts_encode(p, buf_text(&out.text), out.text.len, out.content, out.n_content, flags,
                            &more, err) < 0 ||
        (text && buf_add(text, out.text.data, out.text.len, err) < 0) ||
        (continues && ids_overlap(ids, &more, &present, err) < 0))
        goto out;
    rc = 0;
    for (size_t i = present; i < more.len && rc == 0; i++)
        rc = ids_add(ids, more.id[i], err);
out:
    marked_release(&out);
    ids_release(&more);
    return rc;
}
