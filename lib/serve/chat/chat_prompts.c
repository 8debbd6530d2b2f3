/* Opens a chat template or format, and renders conversations with it. */
#include "serve/chat/chat_prompts.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "model/chat_registry.h"
#include "serve/chat/message_parts.h"
#include "text/utf8.h"

/* Replaces the placeholders {bos} and {eos} in the template by the model's BOS and EOS tokens. */
static int set_tokens(struct chat_prompts *p, struct err *err)
{
    struct buf bos = {0}, eos = {0};
    int rc = chat_default_tokens(p->model->tok, &p->model->config, &bos, &eos, err);
    if (rc == 0)
        rc = chat_set_tokens(&p->format, buf_text(&bos), buf_text(&eos), err);
    buf_release(&bos);
    buf_release(&eos);
    return rc;
}

/* Opens a Jinja template: its text, that for conversations with tools or NULL, and its name. */
static int open_jinja(struct chat_prompts *p, const char *text, const char *tools, const char *name,
                      struct err *err)
{
    struct buf bos = {0}, eos = {0};
    p->jinja.now = p->options.now;
    int rc = chat_default_tokens(p->model->tok, &p->model->config, &bos, &eos, err);
    if (rc == 0)
        rc = chat_template_open(&p->jinja, text, tools, name, &p->format, buf_text(&bos),
                                buf_text(&eos), err);
    buf_release(&bos);
    buf_release(&eos);
    return rc;
}

static int open_jinja_file(struct chat_prompts *p, struct err *err)
{
    struct buf text = {0};
    struct file_map map;
    if (file_map(&map, p->options.format, err) < 0)
        return -1;
    int rc = buf_add(&text, map.data ? (const char *)map.data : "", map.size, err);
    if (rc == 0 && text.len && memchr(text.data, 0, text.len))
        rc = err_set(err, "%s: the template holds a zero character", p->options.format);
    if (rc == 0)
        rc = open_jinja(p, buf_text(&text), NULL, p->options.format, err);
    file_unmap(&map);
    buf_release(&text);
    return rc;
}

/* Replaces what the model has by a format that was chosen. */
static int open_chosen(struct chat_prompts *p, struct err *err)
{
    chat_release(&p->format);
    return chat_open(&p->format, p->options.models_dir, p->options.format, err) < 0
               ? -1
               : set_tokens(p, err);
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
        return open_jinja(p, text, chosen ? NULL : chat_jinja(&p->format, "tool_use"), p->model->path,
                          err);
    if (chosen)
        return open_chosen(p, err);
    if (p->format.name)
        return 0;
    return err_set(
        err,
        "%s: has no chat format: the model that it was converted from has no chat template, "
        "or one that is not understood; choose one, as --chat-template chatml or FILE.jinja; "
        "a base model has none: without --chat it continues the text of -p",
        p->model->path);
}

/* Divides the template's end-of-turn strings: single tokens act as EOS, others as stop strings. */
static void find_ends(struct chat_prompts *p)
{
    for (size_t i = 0; i < p->format.n_ends; i++) {
        char *end = p->format.end[i];
        const int64_t id = tokenizer_find(p->model->tok, end, strlen(end));
        if (id >= 0)
            p->end[p->n_ends++] = (uint32_t)id;
        else if (*end)
            p->stop[p->n_stops++] = end;
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

/* Appends the ids of tokens that the template or the format names. */
static int find_tokens(const struct chat_prompts *p, struct ids *found, struct err *err)
{
    struct buf text = {0};
    int rc = 0;
    for (size_t i = 0; i < CHAT_PARTS && rc == 0; i++)
        if (i != CHAT_DEFAULT_SYSTEM)
            rc = find_in(p, p->format.part[i], found, err);
    for (size_t i = 0; i < p->format.n_ends && rc == 0; i++)
        rc = find_in(p, p->format.end[i], found, err);
    const struct jinja_template *const templates[] = {p->jinja.plain, p->jinja.with_tools};
    for (size_t i = 0; i < ARRAY_LEN(templates) && rc == 0; i++) {
        buf_clear(&text);
        if (templates[i] && (rc = jinja_literals(templates[i], &text, err)) == 0)
            rc = find_in(p, buf_text(&text), found, err);
    }
    buf_release(&text);
    return rc;
}

static int is_delimiter(const struct chat_prompts *p, uint32_t id, bool *is, struct err *err)
{
    struct buf piece = {0};
    const int rc = tokenizer_piece(p->model->tok, id, &piece, err);
    *is = rc == 0 && piece.len && has_letter(piece.data);
    buf_release(&piece);
    return rc;
}

/* Collects the template's tokens as delimiters, which are not matched inside messages, even if the
 * vocabulary does not mark them as special. Excludes white space and punctuation. */
static int find_delimiters(struct chat_prompts *p, struct err *err)
{
    struct ids found = {0};
    bool is = false, known;
    int rc = find_tokens(p, &found, err);
    for (size_t i = 0; i < found.len && rc == 0; i++) {
        rc = is_delimiter(p, found.id[i], &is, err);
        known = false;
        for (size_t k = 0; k < p->delimiters.len; k++)
            known |= p->delimiters.id[k] == found.id[i];
        if (rc == 0 && is && !known)
            rc = ids_add(&p->delimiters, found.id[i], err);
    }
    ids_release(&found);
    return rc;
}

/* The token with which a template goes on after an answer ends one, too. Templates that refuse to
 * render an answer at the end say nothing about it. */
static int find_jinja_end(struct chat_prompts *p, struct err *err)
{
    struct buf text = {0};
    struct ids all = {0}, added = {0};
    struct err ignored;
    bool is = false;
    int rc = 0;
    if (!p->jinja.plain || chat_template_end(&p->jinja, &text, &ignored) < 0)
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
    *p = (struct chat_prompts){.model = p->model, .options = p->options};
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

json_t *chat_user_message(const char *text, size_t len, struct err *err)
{
    json_t *message = chat_message("user", text, len, err);
    json_t *list = message ? json_array() : NULL;
    return message ? json_or_null(list, json_push(list, message, err), err) : NULL;
}

static enum chat_role role_of(const json_t *message)
{
    const char *name = json_string_value(json_object_get(message, "role"));
    int role = 0;
    while (chat_roles[role] && !(name && strcmp(chat_roles[role], name) == 0))
        role++;
    return (enum chat_role)role;
}

static bool says_nothing(const json_t *value)
{
    return json_is_null(value) || (json_is_array(value) && !json_array_size(value));
}

/* Checks that a chat format can render a message, and sets *turn, which borrows its text. Members that are
 * null or empty lists say nothing. */
static int turn_of(const json_t *message, size_t i, struct chat_turn *turn, struct err *err)
{
    const json_t *content = json_object_get(message, "content");
    const char *key;
    json_t *value;
    if (json_array_size(json_object_get(message, "tool_calls")))
        return err_set(
            err,
            "\"messages\": entry %zu has tool_calls, which need a Jinja template: chat formats "
            "render text only",
            i);
    *turn = (struct chat_turn){role_of(message), "", json_string_length(content)};
    if (json_is_string(content))
        turn->text = json_string_value(content);
    if (turn->role == CHAT_ROLES)
        return err_set(err, "\"messages\": the role of entry %zu is not system, user or assistant", i);
    if (!json_is_string(content) && !json_is_null(content) &&
        (content || turn->role != CHAT_ROLE_ASSISTANT))
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

/* Renders by a chat format. */
static int render_format(const struct chat_prompts *p, const struct conversation *c, bool continues,
                         struct marked_text *out, struct err *err)
{
    const size_t n = json_array_size(c->messages);
    const bool given =
        json_array_size(c->tools) || c->documents || c->variables || (c->no_answer && !c->open_end);
    const unsigned how = (continues ? 0 : CHAT_BEGINS) | (c->open_end ? CHAT_OPEN_END : 0);
    struct chat_turn *turn = mem_alloc(n + 1, sizeof *turn);
    int rc = turn ? 0 : err_no_memory(err, "%zu messages", n);
    if (rc == 0 && given)
        rc = err_set(err,
                     "tools, documents, add_generation_prompt and chat_template_kwargs need a Jinja "
                     "template; \"%s\" is a chat format",
                     p->format.name);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = turn_of(json_array_get(c->messages, i), i, &turn[i], err);
    if (rc == 0 && continues)
        rc = chat_render_end(&p->format, out, err);
    if (rc == 0)
        rc = chat_render(&p->format, continues ? NULL : p->options.system, turn, n, how, out, err);
    free(turn);
    return rc;
}

/* Renders by the template: the run's system prompt begins a conversation that has none. */
static int render_jinja(const struct chat_prompts *p, const struct conversation *c, bool continues,
                        struct marked_text *out, struct err *err)
{
    const char *role = json_string_value(json_object_get(json_array_get(c->messages, 0), "role"));
    const bool has_system = role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
    struct conversation whole = *c;
    json_t *messages = NULL;
    int rc = 0;
    if (!whole.variables)
        whole.variables = p->options.variables;
    if (p->options.system && !has_system && json_array_size(c->messages)) {
        json_t *system = json_pack("{ssss}", "role", "system", "content", p->options.system);
        messages = json_array();
        rc = system ? json_push(messages, system, err)
                    : err_set(err, "--system: the text is not valid UTF-8");
        if (rc == 0 && json_array_extend(messages, (json_t *)(uintptr_t)c->messages) < 0)
            rc = err_no_memory(err, "messages");
        whole.messages = messages;
    }
    if (rc == 0)
        rc = (continues ? chat_template_continue : chat_template_render)(&p->jinja, &whole, out, err);
    json_decref(messages);
    return rc;
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
    struct buf unread = {0}, sentence = {0};
    if (!notes)
        return 0;
    int rc = add_unread(template, c->variables ? c->variables : p->options.variables, &unread, err);
    if (rc == 0 && unread.len)
        rc = buf_addf(&unread, err, " of \"chat_template_kwargs\"");
    const struct {
        bool ignored;
        const char *what;
    } kinds[] = {
        {json_array_size(c->tools) && !jinja_names(template, "tools"),
         "\"tools\": the model does not see them"},
        {has_calls(c->messages) && traits->drops_calls,
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
                      format && chat_is_jinja_path(format) ? format : p->model->path, kinds[i].what);
        if (rc == 0)
            notes->say(notes->arg, buf_text(&sentence));
        notes->said |= 1U << i;
    }
    buf_release(&unread);
    buf_release(&sentence);
    return rc;
}

static int render_any(const struct chat_prompts *p, const struct conversation *c, unsigned flags,
                      struct marked_text *out, struct err *err)
{
    const bool continues = flags & CHAT_CONTINUES;
    const bool keeps = flags & CHAT_KEEPS_PARTS && messages_have_other_parts(c->messages);
    if (p->jinja.plain && (p->jinja.reads_parts || keeps))
        return render_jinja(p, c, continues, out, err);
    struct conversation joined = *c;
    json_t *messages = messages_join_parts(c->messages, err);
    joined.messages = messages;
    const int rc = !messages        ? -1
                   : p->jinja.plain ? render_jinja(p, &joined, continues, out, err)
                                    : render_format(p, &joined, continues, out, err);
    json_decref(messages);
    return rc;
}

int chat_prompts_render(const struct chat_prompts *p, const struct conversation *c, unsigned flags,
                        struct marked_text *out, struct err *err)
{
    const int rc = render_any(p, c, flags, out, err);
    return rc == 0 && p->jinja.plain ? note_ignored(p, c, err) : rc;
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
