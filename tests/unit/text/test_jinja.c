/* Templates: what of their text is content, and limits; renders for comparisons.
 *
 *    test_jinja
 *    test_jinja --print <CASES     lines {"template", "content", "trusted"} -> {"text"} or {"error"}
 *    test_jinja --time <CASES      a line of content, then templates, strings -> {"seconds"}, also {"error"} */
#include <string.h>
#include <time.h>

#include "tests/unit/check.h"
#include "text/jinja/jinja.h"

static int render(const char *text, size_t len, const json_t *content, const json_t *trusted,
                  const struct jinja_limits *limits, struct marked_text *out, struct err *err)
{
    struct jinja_template *template;
    const time_t now = 1700000000;
    struct jinja_input input = {.content = content, .trusted = trusted};
    gmtime_r(&now, &input.now);
    if (jinja_parse(&template, text, len, "template", err) < 0)
        return -1;
    const int rc = jinja_render(template, &input, limits, out, err);
    jinja_free(template);
    return rc;
}

/* Prints a result, and releases it. */
static void put_line(json_t *result)
{
    char *text = json_dumps(result, 0);
    puts(text ? text : "{}");
    fflush(stdout);
    free(text);
    json_decref(result);
}

static void print_line(const json_t *line)
{
    const json_t *template = json_object_get(line, "template");
    struct marked_text out = {0};
    struct err err;
    const int rc =
        render(json_string_value(template), json_string_length(template),
               json_object_get(line, "content"), json_object_get(line, "trusted"), NULL, &out, &err);
    json_t *result = rc < 0 ? json_pack("{ss}", "error", err.text)
                            : json_pack("{ss%}", "text", buf_text(&out.text), out.text.len);
    put_line(result);
    marked_release(&out);
}

static void print_time(const json_t *template, const json_t *content)
{
    struct marked_text out = {0};
    struct err err;
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    const int rc = render(json_string_value(template), json_string_length(template), content, NULL,
                          NULL, &out, &err);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    json_t *result =
        json_pack("{sf}", "seconds",
                  (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
    if (rc < 0)
        json_object_set_new(result, "error", json_string(err.text));
    put_line(result);
    marked_release(&out);
}

/* Reads lines of JSON; with `timed`, the first one is the content of all. */
static int print(bool timed)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    json_t *content = NULL;
    while ((len = getline(&line, &cap, stdin)) > 0) {
        json_t *root = json_loadb(line, (size_t)len, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
        if (!timed)
            print_line(root);
        else if (content)
            print_time(root, content);
        else
            content = json_incref(root);
        json_decref(root);
    }
    json_decref(content);
    free(line);
    return 0;
}

/* The text with content in brackets: what came from `content`, byte by byte. */
static void test_marks(void)
{
    static const char *const cases[][2] = {
        {"a{{ c }}b", "a[x<|e|>y]b"},
        {"{{ t }}{{ c[1:] ~ '-' ~ c[0] }}", "T[<|e|>y]-[x]"},
        {"{{ ('<' ~ c ~ '>').upper() }}", "<[X<|E|>Y]>"},
        {"{{ c.replace('<|', '(') }}", "[x]("
                                       "[e|>y]"},
        {"{{ c.split('|')[1] }}{{ '|'.join(c.split('|')) }}", "[ex<]|[e]|[>y]"},
        {"{{ {'k': c} | tojson }}", "{\"k\": \"[x<|e|>y]\"}"},
        {"{{ [c, 't'] }}", "['[x<|e|>y]', 't']"},
        {"{% set s %}<{{ c }}>{% endset %}{{ s | trim }}", "<[x<|e|>y]>"},
        {"{% macro m(a) %}({{ a }}){% endmacro %}{{ m(c) }}", "([x<|e|>y])"},
        {"{{ '%s:%s' % (c, t) }}", "[x<|e|>y]:T"},
        {"{{ c | indent(1, true) }}{{ c | length }}", " [x<|e|>y]7"},
        {"{% for m in messages %}<|{{ m.role }}|>{% endfor %}", "<|user|><|[e]|>"},
        {"{% for k in d %}{{ k }}{% endfor %}", "[k]"},
        {"{{ c | reverse }}{{ c * 2 }}", "[y>|e|<xx<|e|>yx<|e|>y]"},
        {"{{ c | string | first ~ t }}{{ c if c in [c] else t }}", "[x]T[x<|e|>y]"},
    };
    json_t *content = json_pack("{ss, s[{ss}, {ss}], s{si}}", "c", "x<|e|>y", "messages", "role",
                                "user", "role", "e", "d", "k", 1);
    json_t *trusted = json_pack("{ss, ss}", "t", "T", "c", "not seen");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct marked_text out = {0};
        struct err err;
        char text[200] = "";
        if (!check(render(cases[i][0], strlen(cases[i][0]), content, trusted, NULL, &out, &err) == 0,
                   "%s: %s", cases[i][0], err.text))
            continue;
        for (size_t at = 0, span = 0, n = 0; at <= out.text.len && n + 4 < sizeof text; at++) {
            if (span < out.n_content && at == out.content[span].end) {
                text[n++] = ']';
                span++;
            }
            if (span < out.n_content && at == out.content[span].start)
                text[n++] = '[';
            if (at < out.text.len)
                text[n++] = out.text.data[at];
            text[n] = 0;
        }
        check(strcmp(text, cases[i][1]) == 0, "%s: wanted %s, got %s", cases[i][0], cases[i][1], text);
        marked_release(&out);
    }
    json_decref(content);
    json_decref(trusted);
}

static void test_limits(void)
{
    static const char *const bad[][2] = {
        {"{% for i in range(1000) %}{% for k in range(1000) %}{% endfor %}{% endfor %}", "steps"},
        {"{{ '0123456789abcdef' * 90000 }}", "2 MB of memory"},
        {"a\n\n é{{ nosuch.x }}", "line 3, column 12: \"nosuch\" is undefined"},
        {"{{ '\xff' }}", "not UTF-8 at byte 4"},
    };
    const struct jinja_limits limits = {.steps = 100000, .memory = 2 << 20};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct marked_text out = {0};
        struct err err = {0};
        check(render(bad[i][0], strlen(bad[i][0]), NULL, NULL, &limits, &out, &err) < 0 &&
                  strstr(err.text, bad[i][1]) && !out.text.len,
              "%s: %s", bad[i][0], err.text);
        marked_release(&out);
    }
    struct err err;
    struct marked_text out = {0};
    check(render("{{ 1 }}\0", 8, NULL, NULL, NULL, &out, &err) < 0 &&
              strstr(err.text, "zero character"),
          "a zero character: %s", err.text);
    marked_release(&out);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return print(strcmp(argv[1], "--time") == 0);
    test_marks();
    test_limits();
    return check_result();
}
