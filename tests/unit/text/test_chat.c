/* Chat formats: detection by template, and rendering as by transformers.
 *
 *    test_chat MODELS_DIR CASES.json
 *
 * A case: template (or null), format, bos, eos, messages and text. */
#include <string.h>

#include "base/json.h"
#include "tests/unit/check.h"
#include "model/chat_registry.h"
#include "text/jinja/jinja.h"

static const char *models_dir;

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* Stored in a model and parsed again. */
static bool store(struct chat *chat, const json_t *of, struct err *err)
{
    struct buf text = {0}, bos = {0}, eos = {0};
    bool ok = buf_addf(&bos, err, "%s", text_of(of, "bos")) == 0 &&
              buf_addf(&eos, err, "%s", text_of(of, "eos")) == 0 &&
              chat_set_tokens(chat, &bos, &eos, err) == 0 && chat_write(chat, &text, err) == 0;
    chat_release(chat);
    ok = ok && chat_parse(chat, buf_text(&text), text.len, "stored", err) == 0;
    buf_release(&text);
    buf_release(&bos);
    buf_release(&eos);
    return ok;
}

/* Messages render to that text, with content where the template inserts it. */
static void test_text(const struct chat *chat, json_t *messages, const char *format, const char *wanted)
{
    const char *text = chat_template_text(chat);
    struct jinja_template *template = NULL;
    struct marked_text out = {0};
    struct err err = {0};
    json_t *trusted = json_object();
    json_t *content = json_pack("{sOsb}", "messages", messages, "add_generation_prompt", 1);
    const struct jinja_input input = {.trusted = trusted, .content = content};
    if (check(chat_add_variables(chat, trusted, &err) == 0 &&
                  jinja_parse(&template, text, strlen(text), format, &err) == 0 &&
                  jinja_render(template, &input, NULL, &out, &err) == 0,
              "%s: %s", format, err.text))
        check(out.text.len == strlen(wanted) && memcmp(buf_text(&out.text), wanted, out.text.len) == 0,
              "%s:\n  wanted %s\n  made   %.*s", format, wanted, (int)out.text.len,
              buf_text(&out.text));
    check(out.n_content >= json_array_size(messages), "%s: %zu ranges of content", format,
          out.n_content);
    for (size_t i = 0; i < out.n_content; i++)
        check(out.content[i].end <= out.text.len &&
                  (i == 0 || out.content[i - 1].end <= out.content[i].start),
              "%s: words %zu", format, i);
    marked_release(&out);
    jinja_free(template);
    json_decref(trusted);
    json_decref(content);
}

/* Files of lines that render as formats of these names do: each way to trim and to place system prompts. */
static const char *const lines[][2] = {
    {"gemma", "begin \"{bos}\"\nsystem_end \"\\n\\n\"\nuser \"<start_of_turn>user\\n\"\n"
              "user_end \"<end_of_turn>\\n\"\nassistant \"<start_of_turn>model\\n\"\n"
              "assistant_end \"<end_of_turn>\\n\"\ntrim all\nsystem_in_user next\n"},
    {"mistral-v3", "begin \"{bos}\"\nsystem_end \"\\n\\n\"\nuser \"[INST] \"\nuser_end \"[/INST]\"\n"
                   "assistant \" \"\nassistant_end \"{eos}\"\nanswer \"\"\ntrim answers\n"
                   "system_in_user last\nend \"{eos}\"\n"},
    {"llama3.1", "begin \"{bos}\"\n"
                 "system \"<|start_header_id|>system<|end_header_id|>\\n\\nCutting Knowledge Date: "
                 "December 2023\\nToday Date: 26 Jul 2024\\n\\n\"\nsystem_end \"<|eot_id|>\"\n"
                 "user \"<|start_header_id|>user<|end_header_id|>\\n\\n\"\nuser_end \"<|eot_id|>\"\n"
                 "assistant \"<|start_header_id|>assistant<|end_header_id|>\\n\\n\"\n"
                 "assistant_end \"<|eot_id|>\"\ntrim all\nsystem_always yes\n"},
    {"qwen2", "system \"<|im_start|>system\\n\"\nsystem_end \"<|im_end|>\\n\"\n"
              "user \"<|im_start|>user\\n\"\nuser_end \"<|im_end|>\\n\"\n"
              "assistant \"<|im_start|>assistant\\n\"\nassistant_end \"<|im_end|>\\n\"\n"
              "default_system \"You are a helpful assistant.\"\n"},
};

static void test_lines(const json_t *of)
{
    const char *format = text_of(of, "format");
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        struct buf text = {0};
        struct chat chat;
        struct err err = {0};
        if (strcmp(lines[i][0], format) != 0)
            continue;
        if (check(buf_addf(&text, &err, "chat %s\n%s", format, lines[i][1]) == 0 &&
                      chat_parse(&chat, text.data, text.len, "lines", &err) == 0,
                  "%s: %s", format, err.text)) {
            if (check(store(&chat, of, &err), "%s: %s", format, err.text))
                test_text(&chat, json_object_get(of, "messages"), format, text_of(of, "text"));
            chat_release(&chat);
        }
        buf_release(&text);
    }
}

static void test_case(const json_t *of)
{
    const char *format = text_of(of, "format"), *template = text_of(of, "template");
    struct chat chat;
    struct err err = {0};
    if (*template) {
        const int found = chat_find(&chat, models_dir, template, strlen(template), &err);
        if (!check(found == CHAT_FOUND, "%s: its template is not known %s", format, err.text))
            return;
        check(strcmp(chat.name, format) == 0, "%s: its template is taken for %s", format, chat.name);
    } else if (!check(chat_open(&chat, models_dir, format, &err) == 0, "%s: %s", format, err.text)) {
        return;
    }
    if (check(store(&chat, of, &err), "%s: %s", format, err.text))
        test_text(&chat, json_object_get(of, "messages"), format, text_of(of, "text"));
    chat_release(&chat);
    test_lines(of);
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
