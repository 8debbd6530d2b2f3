/* Answers with tool calls, of all formats: what they say, however they are cut into pieces.
 *
 *    test_tools MODELS_DIR CASES.jsonl     (tests/fixtures/make_tools.py) */
#include <string.h>

#include "base/file.h"
#include "tests/unit/check.h"
#include "text/tools/tool_answer.h"

/* What events said: texts joined, complete calls, and whether events came in their order. */
struct said {
    struct buf text[2], arguments; /* by kind of event */
    json_t *calls;
    bool in_call, wrong;
};

static int hear(void *arg, const struct tool_event *e, struct err *err)
{
    struct said *s = arg;
    const bool of_call = e->kind != TOOL_EVENT_TEXT && e->kind != TOOL_EVENT_REASONING;
    const bool begins = e->kind == TOOL_EVENT_CALL;
    s->wrong |= s->in_call != (of_call && !begins) || e->index != json_array_size(s->calls);
    if (!of_call)
        return buf_add(&s->text[e->kind], e->text, e->len, err);
    s->in_call = begins || e->kind == TOOL_EVENT_ARGUMENTS;
    if (e->kind == TOOL_EVENT_ARGUMENTS)
        return buf_add(&s->arguments, e->text, e->len, err);
    if (e->kind == TOOL_EVENT_END && json_push(s->calls,
                                               json_pack("{ss ss ss}", "name", e->name, "id", e->id,
                                                         "arguments", buf_text(&s->arguments)),
                                               err) < 0)
        return -1;
    buf_clear(&s->arguments);
    return 0;
}

static void forget(struct said *s)
{
    buf_release(&s->text[0]);
    buf_release(&s->text[1]);
    buf_release(&s->arguments);
    json_decref(s->calls);
}

struct job {
    struct tool_format format;
    const json_t *tools, *line;
    const char *text, *prompt;
    size_t len;
};

/* Reads the first `len` bytes of the text in pieces: those before `cut` and behind it, or, if `cut` is SIZE_MAX, every byte. */
static struct said listen(const struct job *job, size_t len, size_t cut, bool truncated)
{
    struct said s = {.calls = json_array()};
    struct err err;
    struct tool_parser parser = {
        .format = &job->format, .tools = job->tools, .seed = 1, .event = hear, .arg = &s};
    int rc = tool_parser_begin(&parser, job->prompt, strlen(job->prompt), &err);
    for (size_t at = 0, n; at < len && rc == 0; at += n) {
        char *piece; /* a copy, whose end sanitizers know */
        n = cut == SIZE_MAX ? 1 : at < cut ? cut - at : len - at;
        piece = malloc(n);
        memcpy(piece, job->text + at, n);
        rc = tool_parser_add(&parser, piece, n, &err);
        free(piece);
    }
    s.wrong |= rc < 0 || tool_parser_end(&parser, truncated, &err) < 0 || s.in_call;
    tool_parser_release(&parser);
    return s;
}

static bool same_text(const struct buf *a, const char *b) { return strcmp(buf_text(a), b) == 0; }

static bool same_calls(const json_t *found, const json_t *expected)
{
    bool same = json_array_size(found) == json_array_size(expected);
    for (size_t i = 0; i < json_array_size(found) && same; i++) {
        const json_t *f = json_array_get(found, i), *e = json_array_get(expected, i);
        const json_t *arguments = json_object_get(e, "arguments"), *id = json_object_get(e, "id");
        const char *text = json_string_value(json_object_get(f, "arguments"));
        json_t *parsed = json_loads(text, JSON_ALLOW_NUL, NULL);
        same = json_equal(json_object_get(f, "name"), json_object_get(e, "name")) &&
               (!id || json_equal(id, json_object_get(f, "id"))) &&
               (json_is_string(arguments) ? strcmp(json_string_value(arguments), text) == 0
                                          : json_equal(parsed, arguments));
        json_decref(parsed);
    }
    return same;
}

/* True if a list begins with all elements of another. */
static bool begins_with(const json_t *list, const json_t *first)
{
    bool same = json_array_size(first) <= json_array_size(list);
    for (size_t i = 0; i < json_array_size(first) && same; i++)
        same = json_equal(json_array_get(list, i), json_array_get(first, i));
    return same;
}

static bool same_answer(const struct said *a, const struct said *b)
{
    return same_text(&a->text[0], buf_text(&b->text[0])) &&
           same_text(&a->text[1], buf_text(&b->text[1])) && json_equal(a->calls, b->calls) && !b->wrong;
}

static void run(const struct job *job)
{
    const char *name = job->format.name;
    const bool truncated = json_is_true(json_object_get(job->line, "truncated"));
    const bool ends = !json_is_false(json_object_get(job->line, "ends"));
    struct said whole = listen(job, job->len, 0, truncated);
    if (!check(
            !whole.wrong && same_calls(whole.calls, json_object_get(job->line, "calls")) &&
                same_text(&whole.text[0], json_string_value(json_object_get(job->line, "content"))) &&
                same_text(&whole.text[1], json_string_value(json_object_get(job->line, "reasoning"))),
            "%s: %s", name, job->text)) {
        char *calls = json_dumps(whole.calls, 0);
        printf("# wrong %d content [%s] reasoning [%s] calls %s\n", whole.wrong,
               buf_text(&whole.text[0]), buf_text(&whole.text[1]), calls);
        free(calls);
    }
    for (size_t cut = 0; cut <= job->len; cut++) {
        struct said other = listen(job, job->len, cut ? cut : SIZE_MAX, truncated);
        check(same_answer(&whole, &other), "%s: cut at %zu: %s", name, cut, job->text);
        forget(&other);
        if (!ends)
            continue;
        other = listen(job, cut, 0, true);
        check(!other.wrong && begins_with(whole.calls, other.calls), "%s: ended at %zu: %s", name, cut,
              job->text);
        forget(&other);
    }
    forget(&whole);
}

/* A template with a format's marks has that format, and no other one. */
static void test_marks(const struct tool_format *format, const char *models_dir)
{
    struct buf text = {0};
    struct tool_format found = {0};
    struct err err;
    int rc = 0;
    for (size_t i = 0; i < json_array_size(format->mark) && rc == 0; i++)
        rc = buf_addf(&text, &err, "{{ '%s' }}\n", json_string_value(json_array_get(format->mark, i)));
    if (rc == 0)
        rc = tool_format_find(&found, models_dir, buf_text(&text), text.len, &err);
    check(rc == 1 && strcmp(found.name, format->name) == 0, "%s: %s", format->name,
          rc < 0 ? err.text : buf_text(&text));
    tool_format_release(&found);
    buf_release(&text);
}

/* What is no format is refused, with the line. */
static void test_refused(void)
{
#define LINES "tools x\ncall \"<c>{json}</c>\"\n"
    static const char *const bad[][2] = {
        {"call \"<c>{json}\"", "\"tools\""},
        {"tools x", "\"call\""},
        {LINES "nosuch \"x\"", "line 3: nosuch: unknown keyword"},
        {LINES "call x", "line 3: call: a string"},
        {LINES "call \"\"", "empty"},
        {LINES "call \"<c>{jsn}\"", "\"{jsn}\" is no field"},
        {LINES "call \"<c>{name\"", "a brace is open"},
        {LINES "call \"<c>{arguments}\"", "a name before it"},
        {LINES "call \"<c>{name}\"", "one body"},
        {LINES "call \"{name}{arguments}\"", "without a text before it"},
        {LINES "call \"<c>{json}{json}\"", "only one text may follow"},
        {LINES "call \"<c>{_}{json}\"", "need a text behind them"},
        {LINES "call \"<c>{name}{parameters}\"", "need each other"},
        {LINES "parameter \"<p>{key}</p>{value}</v>\"", "need each other"},
        {LINES "parameter \"{key}</p>{value}</v>\"", "a parameter is"},
        {LINES "reasoning \"<t>{reasoning}\"", "reasoning is"},
        {LINES "skip \"<t>{json}\"", "neither name nor body"},
        {LINES "quote \"a\"\nquote \"b\"", "line 4: quote: one text"},
        {LINES "id_chars 0", "a number up to"},
        {LINES "call \" {json}\"", "begins with white space"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tool_format format;
        struct err err = {.text = ""};
        const bool refused =
            tool_format_parse(&format, bad[i][0], strlen(bad[i][0]), "x.tools", &err) < 0;
        check(refused && strstr(err.text, "x.tools: ") && strstr(err.text, bad[i][1]), "%s: %s",
              bad[i][0], err.text);
        if (!refused)
            tool_format_release(&format);
    }
}

int main(int argc, char **argv)
{
    struct file_map map;
    struct err err;
    if (argc != 3 || file_map(&map, argv[2], &err) < 0)
        return printf("not ok - %s\n", argc != 3 ? "usage" : err.text), 1;
    json_t *tools = NULL, *seen = json_object();
    test_refused();
    const char *at = (const char *)map.data, *end = at + map.size;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        json_t *line = json_loadb(at, (size_t)(newline - at), 0, NULL);
        const json_t *text = json_object_get(line, "text");
        const char *prompt = json_string_value(json_object_get(line, "prompt"));
        struct job job = {.tools = tools,
                          .line = line,
                          .text = json_string_value(text),
                          .len = json_string_length(text),
                          .prompt = prompt ? prompt : ""};
        at = newline + 1;
        if (!tools) {
            tools = json_incref(json_object_get(line, "tools"));
        } else if (check(tool_format_open(&job.format, argv[1],
                                          json_string_value(json_object_get(line, "format")),
                                          &err) == 0,
                         "%s", err.text)) {
            run(&job);
            if (!json_object_get(seen, job.format.name))
                test_marks(&job.format, argv[1]);
            json_object_set_new(seen, job.format.name, json_true());
            tool_format_release(&job.format);
        }
        json_decref(line);
    }
    json_decref(tools);
    json_decref(seen);
    file_unmap(&map);
    return check_result();
}
