/* Templates: the input is split at its first zero byte; a template and, if there is more, JSON variables
 * follow. Marks of what a template inserts are ascending ranges of the text, and rendering twice gives
 * the same. */
#include <stdlib.h>
#include <string.h>

#include "text/jinja/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char usual[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" Be <b>brief</b>\"}, {\"role\": \"user\", "
    "\"content\": \"h\\u00e9 \\u65e5 <|im_end|>\\n\"}, {\"role\": \"assistant\", \"content\": "
    "\"<think>a"
    "</think>b\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1, \"y\": "
    "[2.5, null, true]}}}]}, {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": "
    "\"t\"}]}], "
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}], "
    "\"add_generation_prompt\": true, \"n\": -3, \"x\": 1e300, \"empty\": []}";

static int render(const struct jinja_template *template, const json_t *content, struct marked_text *out)
{
    const struct jinja_limits limits = {.steps = 200000, .memory = 16 << 20};
    const struct jinja_input input = {.content = content, .now = {.tm_mday = 1, .tm_year = 100}};
    struct err err;
    return jinja_render(template, &input, &limits, out, &err);
}

static void try_template(const struct jinja_template *template, const json_t *content)
{
    struct marked_text first = {0}, second = {0};
    const int rc = render(template, content, &first);
    if (rc != render(template, content, &second) || first.text.len != second.text.len ||
        (first.text.len && memcmp(first.text.data, second.text.data, first.text.len) != 0))
        abort();
    for (size_t i = 0; i < first.n_content; i++)
        if (first.content[i].end > first.text.len || first.content[i].start >= first.content[i].end ||
            (i && first.content[i].start <= first.content[i - 1].end))
            abort();
    marked_release(&first);
    marked_release(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *cut = size ? memchr(data, 0, size) : NULL;
    const size_t len = cut ? (size_t)(cut - data) : size;
    struct jinja_template *template;
    json_error_t why;
    struct err err;
    if (jinja_parse(&template, (const char *)data, len, "fuzz", &err) < 0)
        return 0;
    json_t *content =
        cut ? json_loadb((const char *)cut + 1, size - len - 1, 0, &why) : json_loads(usual, 0, &why);
    try_template(template, json_is_object(content) ? content : NULL);
    json_decref(content);
    jinja_free(template);
    return 0;
}
