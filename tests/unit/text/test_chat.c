/* Chat formats: detection by template, and rendering as by transformers.
 *
 *    test_chat MODELS_DIR CASES.json
 *
 * A case: template (or null), format, bos, eos, messages and text. */
#include <string.h>

#include "base/json.h"
#include "tests/unit/check.h"
#include "model/chat_registry.h"

static const char *models_dir;

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static enum chat_role role_of(const char *name)
{
    int role = 0;
    while (chat_roles[role] && strcmp(chat_roles[role], name) != 0)
        role++;
    return (enum chat_role)role;
}

/* Stored in a model and parsed again. */
static bool store(struct chat *chat, const json_t *of, struct err *err)
{
    struct buf text = {0};
    bool ok = chat_write(chat, text_of(of, "bos"), text_of(of, "eos"), &text, err) == 0;
    chat_release(chat);
    ok = ok && chat_parse(chat, text.data, text.len, "stored", err) == 0;
    buf_release(&text);
    return ok;
}

/* Turns render to that text; a leading system turn can also be passed as system prompt. */
static void test_text(const struct chat *chat, const char *system, const struct chat_turn *turns,
                      size_t n, const char *format, const char *wanted)
{
    struct marked_text out = {0};
    struct err err = {0};
    if (check(chat_render(chat, system, turns, n, CHAT_BEGINS, &out, &err) == 0, "%s: %s", format,
              err.text))
        check(strcmp(buf_text(&out.text), wanted) == 0, "%s:\n  wanted %s\n  made   %s", format, wanted,
              buf_text(&out.text));
    for (size_t i = 0; i < out.n_content; i++)
        check(out.content[i].end <= out.text.len &&
                  (i == 0 || out.content[i - 1].end <= out.content[i].start),
              "%s: words %zu", format, i);
    marked_release(&out);
}

static void test_case(const json_t *of)
{
    const char *format = text_of(of, "format"), *template = text_of(of, "template");
    struct chat chat;
    struct chat_turn turns[16];
    struct err err = {0};
    size_t n = 0, i;
    const json_t *message;
    if (*template) {
        const int found = chat_find(&chat, models_dir, template, strlen(template), &err);
        if (!check(found == CHAT_FOUND, "%s: its template is not known %s", format, err.text))
            return;
        check(strcmp(chat.name, format) == 0, "%s: its template is taken for %s", format, chat.name);
    } else if (!check(chat_open(&chat, models_dir, format, &err) == 0, "%s: %s", format, err.text)) {
        return;
    }
    json_array_foreach(json_object_get(of, "messages"), i, message)
    {
        const char *content = text_of(message, "content");
        turns[n++] = (struct chat_turn){role_of(text_of(message, "role")), content, strlen(content)};
    }
    if (check(store(&chat, of, &err), "%s: %s", format, err.text))
        test_text(&chat, NULL, turns, n, format, text_of(of, "text"));
    if (n > 1 && turns[0].role == CHAT_ROLE_SYSTEM) {
        test_text(&chat, "another", turns, n, format, text_of(of, "text"));
        if (turns[1].role != CHAT_ROLE_SYSTEM)
            test_text(&chat, turns[0].text, turns + 1, n - 1, format, text_of(of, "text"));
    }
    chat_release(&chat);
}

/* Invalid formats and their errors. */
static void test_refusals(void)
{
    static const char *const bad[][2] = {
        {"user \"x\"", "\"chat\""},
        {"chat x", "\"user\""},
        {"chat x\nuser y", "double quotes"},
        {"chat x\nuser 7", "double quotes"},
        {"chat x/y\nuser \"y\"", "a name of letters"},
        {"chat\nuser \"y\"", "a name"},
        {"chat x\nuser \"y\"\ntrim maybe", "no, all or answers"},
        {"chat x\nuser \"y\"\nusers \"y\"", "unknown keyword \"users\""},
        {"chat x\nuser \"\\ud800\"", "double quotes"},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct chat chat;
        struct err err;
        const int rc = chat_parse(&chat, bad[i][0], strlen(bad[i][0]), "bad", &err);
        if (check(rc < 0, "\"%s\" is read", bad[i][0]))
            check(strstr(err.text, bad[i][1]) != NULL, "\"%s\": %s", bad[i][0], err.text);
        else
            chat_release(&chat);
    }
}

int main(int argc, char **argv)
{
    json_error_t why;
    if (argc != 3)
        return 2;
    models_dir = argv[1];
    json_t *cases = json_load_file(argv[2], 0, &why);
    size_t i;
    const json_t *of;
    check(json_array_size(cases) > 0, "%s: %s", argv[2], why.text);
    json_array_foreach(cases, i, of) test_case(of);
    json_decref(cases);
    test_refusals();
    return check_result();
}
