/* Reads and finds formats of tool calls. */
#include "text/tools/tool_format.h"

#include <ctype.h>
#include <dirent.h>

#include "base/conf.h"
#include "base/number.h"
#include "base/text_util.h"

enum { PATH_SIZE = 4096 + 300, ID_CHARS = 64 };

/* The fields of patterns; {name=f} is a name, too. */
static const struct {
    const char *name;
    enum tool_item_kind kind;
} fields[] = {
    {"name", TOOL_NAME},
    {"id", TOOL_ID},
    {"functions.name:index", TOOL_NAME_IN_ID},
    {"_", TOOL_ANYTHING},
    {"key", TOOL_KEY},
    {"value", TOOL_VALUE},
    {"json", TOOL_JSON},
    {"list", TOOL_LIST},
    {"arguments", TOOL_ARGUMENTS},
    {"keywords", TOOL_KEYWORDS},
    {"python", TOOL_PYTHON},
    {"[python]", TOOL_PYTHON},
    {"parameters", TOOL_PARAMETERS},
    {"code", TOOL_CODE},
    {"reasoning", TOOL_REASONING},
};

static bool is_body(enum tool_item_kind kind) { return kind >= TOOL_JSON; }

/* True if the call's name is a part of the body. */
static bool names_itself(enum tool_item_kind body)
{
    return body == TOOL_JSON || body == TOOL_LIST || body == TOOL_PYTHON;
}

static char *copy_text(const char *text, size_t len, struct err *err)
{
    char *copy = strndup(text, len);
    if (!copy)
        (void)err_no_memory(err, "a format of tool calls");
    return copy;
}

/* Appends an item: a text, or a field of that name, which is text[len]. */
static int add_item(struct tool_pattern *pattern, bool is_field, const char *text, size_t len,
                    struct err *err)
{
    static const char constant[] = "name=";
    struct tool_item *item = &pattern->item[pattern->n];
    const size_t prefix = sizeof constant - 1;
    size_t i = 0;
    if (pattern->n == TOOL_ITEMS)
        return err_set(err, "a pattern has more than %d texts and fields", TOOL_ITEMS);
    *item = (struct tool_item){TOOL_TEXT, NULL};
    pattern->n++;
    if (!is_field)
        return (item->text = copy_text(text, len, err)) ? 0 : -1;
    if (len > prefix && memcmp(text, constant, prefix) == 0) {
        item->kind = TOOL_NAME;
        return (item->text = copy_text(text + prefix, len - prefix, err)) ? 0 : -1;
    }
    while (i < ARRAY_LEN(fields) &&
           (strlen(fields[i].name) != len || memcmp(fields[i].name, text, len) != 0))
        i++;
    if (i == ARRAY_LEN(fields))
        return err_set(err, "\"{%s}\" is no field", excerpt_of(text, len).text);
    item->kind = fields[i].kind;
    return *text != '[' || (item->text = copy_text(text, 1, err)) ? 0 : -1;
}

static size_t count_items(const struct tool_pattern *pattern, enum tool_item_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < pattern->n; i++)
        n += pattern->item[i].kind == kind;
    return n;
}

static bool is_blank(const char *text) { return !text[strspn(text, " \t\r\n")]; }

/* Fails unless the parser can find every field's end. */
static int check_order(const struct tool_pattern *pattern, struct err *err)
{
    for (size_t i = 0; i < pattern->n; i++) {
        const struct tool_item *item = &pattern->item[i], *next = item + 1;
        const bool last = i + 1 == pattern->n;
        if (item->kind == TOOL_TEXT && i == 0 && is_blank(item->text))
            return err_set(err, "the pattern begins with white space");
        if (is_body(item->kind) && (i + 2 < pattern->n || (!last && next->kind != TOOL_TEXT)))
            return err_set(err, "behind the body only one text may follow");
        if ((item->kind == TOOL_ANYTHING || item->kind == TOOL_KEY || item->kind == TOOL_VALUE) &&
            (last || next->kind != TOOL_TEXT || is_blank(next->text)))
            return err_set(err, "{_}, {key} and {value} need a text behind them");
    }
    return 0;
}

/* Fails unless a pattern has the fields that its use needs. */
static int check_pattern(struct tool_pattern *pattern, struct err *err)
{
    const size_t names = count_items(pattern, TOOL_NAME) + count_items(pattern, TOOL_NAME_IN_ID);
    const bool is_parameter = pattern->use == TOOL_IS_PARAMETER;
    const size_t keys = count_items(pattern, TOOL_KEY), values = count_items(pattern, TOOL_VALUE);
    size_t bodies = 0;
    for (pattern->body = 0; pattern->body < pattern->n && !is_body(pattern->item[pattern->body].kind);)
        pattern->body++;
    for (size_t i = 0; i < pattern->n; i++)
        bodies += is_body(pattern->item[i].kind);
    const enum tool_item_kind body = bodies ? pattern->item[pattern->body].kind : TOOL_TEXT;
    const bool starts = pattern->n && pattern->item[0].kind == TOOL_TEXT;
    const char *closing = tool_pattern_closing(pattern);
    if (check_order(pattern, err) < 0)
        return -1;
    if (is_parameter ? !starts || keys != 1 || values != 1 || names || bodies ||
                           pattern->item[pattern->n - 2].kind != TOOL_VALUE
                     : keys || values)
        return err_set(err,
                       "a parameter is a text, {key}, a text, {value} and a text; only it has those");
    if (pattern->use == TOOL_SKIPS && (bodies || names || !starts))
        return err_set(err, "what is skipped begins with a text and has neither name nor body");
    if (pattern->use == TOOL_THINKS &&
        (body != TOOL_REASONING || bodies != 1 || !starts || names || !closing || is_blank(closing)))
        return err_set(err, "reasoning is a text, {reasoning} and a text");
    if (pattern->use > TOOL_CALLS_MAYBE)
        return 0;
    if (bodies != 1 || body == TOOL_REASONING || names != (size_t)!names_itself(body))
        return err_set(err, "a call has one body, and a name before it unless it is {json}, {list} or "
                            "{python}");
    if (!starts && (!names_itself(body) || pattern->body))
        return err_set(err, "a call without a text before it begins with {json}, {list} or {python}");
    return 0;
}

static int read_pattern(struct tool_pattern *pattern, const char *text, struct err *err)
{
    while (*text) {
        const char *open = strchr(text, '{'), *close = open ? strchr(open, '}') : NULL;
        if (open && !close)
            return err_set(err, "a brace is open");
        const size_t len = open ? (size_t)(open - text) : strlen(text);
        if (len && add_item(pattern, false, text, len, err) < 0)
            return -1;
        if (open && add_item(pattern, true, open + 1, (size_t)(close - open) - 1, err) < 0)
            return -1;
        text = open ? close + 1 : text + len;
    }
    return check_pattern(pattern, err);
}

static int add_pattern(struct tool_format *format, enum tool_use use, const char *text, struct err *err)
{
    if (format->n_patterns == TOOL_PATTERNS)
        return err_set(err, "there are more than %d patterns", TOOL_PATTERNS);
    if (use == TOOL_IS_PARAMETER && tool_format_parameter(format))
        return err_set(err, "there is a parameter already");
    struct tool_pattern *pattern = &format->pattern[format->n_patterns++];
    *pattern = (struct tool_pattern){.use = use};
    return read_pattern(pattern, text, err);
}

static int add_key(struct tool_format *format, size_t kind, const char *text, struct err *err)
{
    size_t n = 0;
    while (n < TOOL_KEYS && format->key[kind][n])
        n++;
    if (n == TOOL_KEYS)
        return err_set(err, "there are more than %d of them", TOOL_KEYS);
    return (format->key[kind][n] = copy_text(text, strlen(text), err)) ? 0 : -1;
}

static int set_text(char **to, const char *text, struct err *err)
{
    if (*to || is_blank(text))
        return err_set(err, "one text is expected");
    return (*to = copy_text(text, strlen(text), err)) ? 0 : -1;
}

/* The keywords of lines whose value is a string. */
static const char keywords[] =
    "call|maybe|reasoning|skip|parameter|mark|without|name|arguments|id|quote|separator|before|after";

static int add_string(struct tool_format *format, size_t keyword, const char *text, struct err *err)
{
    if (!*text)
        return err_set(err, "the text is empty");
    if (keyword < 5)
        return add_pattern(format,
                           (enum tool_use[]){TOOL_CALLS, TOOL_CALLS_MAYBE, TOOL_THINKS, TOOL_SKIPS,
                                             TOOL_IS_PARAMETER}[keyword],
                           text, err);
    if (keyword < 7)
        return json_push(keyword == 5 ? format->mark : format->without, json_string(text), err);
    if (keyword < 10)
        return add_key(format, keyword - 7, text, err);
    char **const texts[] = {&format->quote, &format->separator, &format->before, &format->after};
    if (set_text(texts[keyword - 10], text, err) < 0)
        return -1;
    return keyword < 12 ? 0 : add_pattern(format, TOOL_SKIPS, text, err);
}

static int read_line(struct tool_format *format, const struct conf_entry *entry, struct err *err)
{
    json_error_t why;
    const size_t keyword = text_choice(keywords, entry->key);
    if (strcmp(entry->key, "tools") == 0)
        return set_text(&format->name, entry->value, err);
    if (strcmp(entry->key, "id_chars") == 0)
        return parse_size(entry->value, &format->id_chars) && format->id_chars &&
                       format->id_chars <= ID_CHARS
                   ? 0
                   : err_set(err, "a number up to %d is expected", ID_CHARS);
    if (keyword == SIZE_MAX)
        return err_set(err, "unknown keyword");
    AUTO(json_auto)
    json_t *value = json_load(entry->value, strlen(entry->value), JSON_DECODE_ANY, &why);
    if (!value && json_error_code(&why) == json_error_out_of_memory)
        return err_no_memory(err, "a format of tool calls");
    return json_is_string(value) ? add_string(format, keyword, json_string_value(value), err)
                                 : err_set(err, "a string in double quotes is expected");
}

/* Sets what the file leaves out, and fails if something is missing. */
static int complete(struct tool_format *format, const char *source, struct err *err)
{
    static const char *const usual[] = {"name", "arguments"};
    bool calls = false, has_parameters = false;
    for (size_t i = 0; i < format->n_patterns; i++) {
        const struct tool_pattern *pattern = &format->pattern[i];
        calls |= pattern->use <= TOOL_CALLS_MAYBE;
        has_parameters |= count_items(pattern, TOOL_PARAMETERS) > 0;
    }
    if (!format->name || !calls)
        return err_set(err, "%s: a line \"tools\" and a line \"call\" are expected; see bmc-tools(5)",
                       source);
    if (has_parameters != (tool_format_parameter(format) != NULL))
        return err_set(
            err, "%s: {parameters} and a line \"parameter\" need each other; see bmc-tools(5)", source);
    for (size_t i = 0; i < ARRAY_LEN(usual); i++)
        if (!format->key[i][0] && add_key(format, i, usual[i], err) < 0)
            return -1;
    return 0;
}

/* Reads the lines of a file, which are released. */
static int read_lines(struct tool_format *format, struct conf *conf, struct err *err)
{
    format->mark = json_array();
    format->without = json_array();
    int rc = format->mark && format->without ? 0 : err_no_memory(err, "%s", conf->name);
    for (size_t i = 0; i < conf->n_entries && rc == 0; i++)
        if ((rc = read_line(format, &conf->entry[i], err)) < 0)
            rc =
                err_prefix(err, "%s: line %d: %s", conf->name, conf->entry[i].line, conf->entry[i].key);
    if (rc == 0)
        rc = complete(format, conf->name, err);
    if (rc < 0)
        tool_format_release(format);
    conf_release(conf);
    return rc;
}

int tool_format_parse(struct tool_format *format, const char *text, size_t size, const char *source,
                      struct err *err)
{
    struct conf conf;
    *format = (struct tool_format){0};
    return conf_parse(&conf, text, size, source, err) < 0 ? -1 : read_lines(format, &conf, err);
}

void tool_format_release(struct tool_format *format)
{
    for (size_t i = 0; i < format->n_patterns; i++)
        for (size_t k = 0; k < format->pattern[i].n; k++)
            free(format->pattern[i].item[k].text);
    for (size_t i = 0; i < ARRAY_LEN(format->key); i++)
        for (size_t k = 0; k < TOOL_KEYS; k++)
            free(format->key[i][k]);
    json_decref(format->mark);
    json_decref(format->without);
    free(format->name);
    free(format->quote);
    free(format->separator);
    free(format->before);
    free(format->after);
    *format = (struct tool_format){0};
}

const struct tool_pattern *tool_format_parameter(const struct tool_format *format)
{
    for (size_t i = 0; i < format->n_patterns; i++)
        if (format->pattern[i].use == TOOL_IS_PARAMETER)
            return &format->pattern[i];
    return NULL;
}

const struct tool_pattern *tool_format_calls(const struct tool_format *format)
{
    const struct tool_pattern *pattern = format->pattern;
    while (pattern < format->pattern + format->n_patterns && pattern->use > TOOL_CALLS_MAYBE)
        pattern++;
    return pattern;
}

const char *tool_pattern_opening(const struct tool_pattern *pattern)
{
    return pattern->item[0].kind == TOOL_TEXT ? pattern->item[0].text : "";
}

const char *tool_pattern_closing(const struct tool_pattern *pattern)
{
    return pattern->body + 1 < pattern->n ? pattern->item[pattern->body + 1].text : NULL;
}

/* ---- the folder ---- */

static int open_file(struct tool_format *format, const char *path, struct err *err)
{
    struct conf conf;
    *format = (struct tool_format){0};
    return conf_open(&conf, path, err) < 0 ? -1 : read_lines(format, &conf, err);
}

int tool_format_open(struct tool_format *format, const char *models_dir, const char *name,
                     struct err *err)
{
    char path[PATH_SIZE];
    if (snprintf(path, sizeof path, "%s/tools/%s.tools", models_dir, name) >= PATH_SIZE)
        return err_set(err, "%s: the path of the folder is too long", models_dir);
    return open_file(format, path, err);
}

/* The total length of the marks, if a chat template has all of them and nothing that excludes it; else 0. */
static size_t match_template(const struct tool_format *format, const char *text, size_t len)
{
    size_t bytes = 0, i;
    json_t *mark;
    json_array_foreach(format->mark, i, mark)
    {
        if (!memmem(text, len, json_string_value(mark), json_string_length(mark)))
            return 0;
        bytes += json_string_length(mark);
    }
    json_array_foreach(format->without, i, mark)
    {
        if (memmem(text, len, json_string_value(mark), json_string_length(mark)))
            return 0;
    }
    return bytes;
}

static int is_tools_file(const struct dirent *entry) { return text_ends(entry->d_name, ".tools"); }

int tool_format_find(struct tool_format *format, const char *models_dir, const char *chat_template,
                     size_t len, struct err *err)
{
    char path[PATH_SIZE];
    struct dirent **files = NULL;
    size_t best = 0;
    int rc = 0;
    *format = (struct tool_format){0};
    snprintf(path, sizeof path, "%s/tools", models_dir);
    const int n = scandir(path, &files, is_tools_file, alphasort);
    if (n < 0)
        return err_errno(err, "%s: cannot list the formats of tool calls", path);
    for (int i = 0; i < n; i++) {
        struct tool_format other = {0};
        snprintf(path, sizeof path, "%s/tools/%s", models_dir, files[i]->d_name);
        if (rc == 0 && (rc = open_file(&other, path, err)) == 0) {
            const size_t bytes = match_template(&other, chat_template, len);
            if (bytes > best) {
                const struct tool_format before = *format;
                *format = other;
                other = before;
                best = bytes;
            }
        }
        tool_format_release(&other);
        free(files[i]);
    }
    free(files);
    if (rc < 0)
        tool_format_release(format);
    return rc < 0 ? -1 : best > 0;
}
