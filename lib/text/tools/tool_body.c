/* Bodies of calls: JSON, Python's keyword arguments, parameters in tags, code. */
#include "text/tools/tool_body.h"

#include <ctype.h>

#include "text/tools/tool_call.h"
#include "text/tools/tool_match.h"

/* Skips white space. False: nothing is left. */
static bool next_byte(struct tool_parser *p, char *c)
{
    if (p->at < p->in.len)
        p->at += count_space(p->in.data + p->at, p->in.len - p->at);
    *c = p->at < p->in.len ? p->in.data[p->at] : 0;
    return p->at < p->in.len;
}

static void begin_value(struct tool_parser *p, enum value_syntax syntax)
{
    p->value = (struct value_reader){.syntax = syntax, .quote = p->format->quote};
    buf_clear(&p->scratch);
}

/* Reads on in a value. What is appended to the arguments is reported if the call has begun. */
static int read_value(struct tool_parser *p, struct buf *out, struct err *err)
{
    size_t taken;
    const int got =
        value_read(&p->value, buf_text(&p->in) + p->at, p->in.len - p->at, &taken, out, err);
    p->at += taken;
    if (got < 0 || (out == &p->arguments && tool_put_arguments(p, err) < 0))
        return -1;
    return got == VALUE_DONE ? BODY_DONE : got == VALUE_BAD ? BODY_BAD : BODY_MORE;
}

/* Appends the text of a JSON string. BODY_BAD: it is another value, or has a zero character. */
static int add_string(const struct buf *json, struct buf *text, struct err *err)
{
    json_error_t why;
    AUTO(json_auto) json_t *value = json_load(buf_text(json), json->len, JSON_DECODE_ANY, &why);
    if (!value && json_error_code(&why) == json_error_out_of_memory)
        return err_no_memory(err, "a tool call");
    if (!json_is_string(value))
        return BODY_BAD;
    return buf_add(text, json_string_value(value), json_string_length(value), err) < 0 ? -1 : BODY_DONE;
}

/* ---- JSON: an object with name and arguments, or a list ---- */

enum {
    JSON_BEGIN,
    JSON_ELEMENT,
    JSON_FIRST_KEY,
    JSON_KEY,
    JSON_KEY_TEXT,
    JSON_COLON,
    JSON_MEMBER,
    JSON_VALUE,
    JSON_NEXT
};
enum { MEMBER_NAME, MEMBER_ARGUMENTS, MEMBER_ID, MEMBER_STREAMED, MEMBER_OTHER };

/* The member whose key is in the scratch buffer; BODY_BAD if a doubtful call has another. */
static int find_member(struct tool_parser *p, struct err *err)
{
    AUTO(buf_release) struct buf key = {0};
    const int got = add_string(&p->scratch, &key, err);
    if (got != BODY_DONE)
        return got;
    p->member = MEMBER_OTHER;
    for (unsigned kind = 0; kind <= TOOL_KEY_ID; kind++)
        for (size_t i = 0; p->format->key[kind][i]; i++)
            if (strcmp(p->format->key[kind][i], buf_text(&key)) == 0)
                p->member = kind;
    return p->member == MEMBER_OTHER && p->pattern->use == TOOL_CALLS_MAYBE &&
                   strcmp(buf_text(&key), "type") != 0
               ? BODY_BAD
               : BODY_DONE;
}

/* Begins the call if its name is known, and its id, if models write one; `last`: they write none any more. */
static int try_begin(struct tool_parser *p, bool last, struct err *err)
{
    if (p->begun || !p->name.len || (p->format->key[TOOL_KEY_ID][0] && !p->id.len && !last))
        return BODY_DONE;
    const int rc = tool_begin_call(p, err);
    if (rc == TOOL_NO_CALL)
        return BODY_BAD;
    return rc < 0 || tool_put_arguments(p, err) < 0 ? -1 : BODY_DONE;
}

/* Takes arguments that are no object over from the scratch buffer: null, or a string with the object's JSON. */
static int take_arguments(struct tool_parser *p, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    size_t taken;
    if (strcmp(buf_text(&p->scratch), "null") == 0)
        return buf_add(&p->arguments, "{}", 2, err) < 0 ? -1 : BODY_DONE;
    int got = add_string(&p->scratch, &text, err);
    const size_t space = count_space(buf_text(&text), text.len);
    if (got != BODY_DONE || buf_text(&text)[space] != '{')
        return got < 0 ? -1 : BODY_BAD;
    begin_value(p, VALUE_JSON);
    got = value_read(&p->value, text.data, text.len, &taken, &p->arguments, err);
    return got < 0 ? -1
           : got == VALUE_DONE && count_space(text.data + taken, text.len - taken) == text.len - taken
               ? BODY_DONE
               : BODY_BAD;
}

/* Takes over the value of a member. */
static int take_member(struct tool_parser *p, struct err *err)
{
    int got = BODY_DONE;
    if (p->member == MEMBER_NAME)
        got = p->name.len ? BODY_BAD : add_string(&p->scratch, &p->name, err);
    else if (p->member == MEMBER_ID && *buf_text(&p->scratch) != '"')
        got = buf_add(&p->id, buf_text(&p->scratch), p->scratch.len, err) < 0 ? -1 : BODY_DONE;
    else if (p->member == MEMBER_ID)
        got = p->id.len ? BODY_BAD : add_string(&p->scratch, &p->id, err);
    else if (p->member == MEMBER_ARGUMENTS)
        got = take_arguments(p, err);
    return got == BODY_DONE ? try_begin(p, false, err) : got;
}

static int end_object(struct tool_parser *p, struct err *err)
{
    if (!p->name.len || (p->pattern->use == TOOL_CALLS_MAYBE && !p->given_arguments))
        return BODY_BAD;
    if (!p->given_arguments && buf_add(&p->arguments, "{}", 2, err) < 0)
        return -1;
    const int got = try_begin(p, true, err);
    if (got != BODY_DONE)
        return got;
    if (tool_put_arguments(p, err) < 0)
        return -1;
    if (!p->in_list)
        return BODY_DONE;
    p->step = JSON_ELEMENT;
    return tool_end_call(p, err) < 0 ? -1 : BODY_MORE;
}

/* Begins a member's value, whose first byte is `c`. */
static int begin_member(struct tool_parser *p, char c)
{
    if (p->member == MEMBER_ARGUMENTS) {
        if (p->given_arguments)
            return BODY_BAD;
        p->given_arguments = true;
        if (c == '{')
            p->member = MEMBER_STREAMED;
    }
    begin_value(p, VALUE_JSON);
    p->step = JSON_VALUE;
    return BODY_MORE;
}

/* Reads on in a key or a value. */
static int read_json_value(struct tool_parser *p, struct err *err)
{
    const bool is_key = p->step == JSON_KEY_TEXT;
    const bool streams = !is_key && p->member == MEMBER_STREAMED;
    int got = read_value(p, streams ? &p->arguments : &p->scratch, err);
    if (got != BODY_DONE)
        return got;
    got = is_key ? find_member(p, err) : take_member(p, err);
    p->step = is_key ? JSON_COLON : JSON_NEXT;
    return got == BODY_DONE ? BODY_MORE : got;
}

/* Reads the byte `c` between values. */
static int read_json_mark(struct tool_parser *p, char c, struct err *err)
{
    const unsigned step = p->step;
    if (c == '"' && (step == JSON_KEY || step == JSON_FIRST_KEY)) {
        p->step = JSON_KEY_TEXT;
        begin_value(p, VALUE_JSON);
        return BODY_MORE;
    }
    if (step == JSON_MEMBER)
        return begin_member(p, c);
    p->at++;
    if (c == '}' && (step == JSON_FIRST_KEY || step == JSON_NEXT))
        return end_object(p, err);
    if (c == ']' && step == JSON_ELEMENT)
        return BODY_DONE;
    if (c == ',' && step == JSON_ELEMENT)
        return BODY_MORE;
    p->step = c == '[' && step == JSON_BEGIN                             ? JSON_ELEMENT
              : c == '{' && (step == JSON_BEGIN || step == JSON_ELEMENT) ? JSON_FIRST_KEY
              : c == ':' && step == JSON_COLON                           ? JSON_MEMBER
              : c == ',' && step == JSON_NEXT                            ? JSON_KEY
                                                                         : JSON_BEGIN;
    p->in_list |= c == '[';
    p->at -= p->step == JSON_BEGIN;
    return p->step == JSON_BEGIN ? BODY_BAD : BODY_MORE;
}

static int read_json(struct tool_parser *p, bool last, struct err *err)
{
    int got = BODY_MORE;
    char c;
    (void)last;
    while (got == BODY_MORE && p->at < p->in.len) {
        const size_t before = p->at;
        const unsigned step = p->step;
        if (step == JSON_KEY_TEXT || step == JSON_VALUE)
            got = read_json_value(p, err);
        else if (next_byte(p, &c))
            got = read_json_mark(p, c, err);
        if (p->at == before && p->step == step)
            break;
    }
    return got;
}

/* ---- an object of arguments ---- */

static int read_arguments(struct tool_parser *p, bool last, struct err *err)
{
    (void)last;
    if (!p->step)
        begin_value(p, p->format->quote ? VALUE_LOOSE : VALUE_JSON);
    p->step = 1;
    return read_value(p, &p->arguments, err);
}

/* ---- arguments that are not JSON ---- */

/* Appends a text as a JSON string. */
static int add_quoted(struct buf *out, const char *text, size_t len, struct err *err)
{
    return buf_add(out, "\"", 1, err) < 0 || value_add_text(out, text, len, err) < 0
               ? -1
               : buf_add(out, "\"", 1, err);
}

/* Appends a member's name to the arguments. */
static int add_key(struct tool_parser *p, const char *key, size_t len, struct err *err)
{
    const bool first = !p->given_arguments;
    p->given_arguments = true;
    return buf_add(&p->arguments, first ? "{" : ",", 1, err) < 0 ||
                   add_quoted(&p->arguments, key, len, err) < 0
               ? -1
               : buf_add(&p->arguments, ":", 1, err);
}

/* Ends the arguments. */
static int end_members(struct tool_parser *p, struct err *err)
{
    const char *end = p->given_arguments ? "}" : "{}";
    return buf_add(&p->arguments, end, strlen(end), err) < 0 || tool_put_arguments(p, err) < 0
               ? -1
               : BODY_DONE;
}

enum { KEYWORDS_KEY, KEYWORDS_VALUE, KEYWORDS_NEXT };

/* Reads a keyword and the sign behind it. */
static int read_keyword(struct tool_parser *p, struct err *err)
{
    const char *text = p->in.data + p->at;
    const size_t left = size_min(p->in.len - p->at, MATCH_BYTES);
    size_t n = 0;
    while (n < left && (isalnum((unsigned char)text[n]) || text[n] == '_'))
        n++;
    const size_t sign = n + count_space(text + n, left - n);
    if (sign == left)
        return left < MATCH_BYTES ? BODY_MORE : BODY_BAD;
    if (!n || text[sign] != '=')
        return BODY_BAD;
    if (add_key(p, text, n, err) < 0)
        return -1;
    p->at += sign + 1;
    begin_value(p, VALUE_PYTHON);
    p->step = KEYWORDS_VALUE;
    return BODY_MORE;
}

/* Reads keyword arguments up to the parenthesis that closes them. */
static int read_keywords(struct tool_parser *p, bool last, struct err *err)
{
    int got = BODY_MORE;
    char c;
    (void)last;
    while (got == BODY_MORE && p->at < p->in.len) {
        const size_t before = p->at;
        if (p->step == KEYWORDS_VALUE) {
            got = read_value(p, &p->arguments, err);
            if (got != BODY_DONE)
                break;
            p->step = KEYWORDS_NEXT;
            got = BODY_MORE;
        } else if (next_byte(p, &c) && c == ')') {
            return end_members(p, err);
        } else if (c && p->step == KEYWORDS_NEXT) {
            got = c == ',' ? BODY_MORE : BODY_BAD;
            p->step = KEYWORDS_KEY;
            p->at += c == ',';
        } else if (c) {
            got = read_keyword(p, err);
            if (p->step == KEYWORDS_KEY)
                break;
        } else if (p->at == before) {
            break;
        }
    }
    return got;
}

enum { PYTHON_BEGIN = KEYWORDS_NEXT + 1, PYTHON_NAME, PYTHON_NEXT };

/* Reads the name of a call, and the parenthesis behind it. */
static int read_python_name(struct tool_parser *p, struct err *err)
{
    const char *text = p->in.data + p->at;
    const size_t left = size_min(p->in.len - p->at, MATCH_BYTES), n = count_name(text, left);
    if (n == left)
        return left < MATCH_BYTES ? BODY_MORE : BODY_BAD;
    if (!n || text[n] != '(')
        return BODY_BAD;
    if (buf_add(&p->name, text, n, err) < 0)
        return -1;
    p->at += n + 1;
    p->step = KEYWORDS_KEY;
    const int rc = tool_begin_call(p, err);
    return rc == TOOL_NO_CALL ? BODY_BAD : rc < 0 ? -1 : BODY_MORE;
}

/* Reads the byte `c` between calls. */
static int read_python_mark(struct tool_parser *p, char c)
{
    const bool begins = p->step == PYTHON_BEGIN && c == '[';
    if (begins || (c == ',' && p->step == PYTHON_NEXT)) {
        p->in_list |= begins;
        p->at++;
        p->step = PYTHON_NAME;
        return BODY_MORE;
    }
    if (p->in_list && c == ']') {
        p->at++;
        return BODY_DONE;
    }
    if (p->step == PYTHON_NEXT && (p->in_list || !count_name(&c, 1)))
        return p->in_list ? BODY_BAD : BODY_DONE;
    p->step = PYTHON_NAME;
    return BODY_MORE;
}

static int read_python(struct tool_parser *p, bool last, struct err *err)
{
    int got = BODY_MORE;
    char c;
    if (!p->step && !p->begun)
        p->step = PYTHON_BEGIN;
    while (got == BODY_MORE && (p->step <= KEYWORDS_NEXT ? p->at < p->in.len : next_byte(p, &c))) {
        if (p->step <= KEYWORDS_NEXT) {
            got = read_keywords(p, last, err);
            if (got != BODY_DONE)
                break;
            p->at++;
            p->step = PYTHON_NEXT;
            got = tool_end_call(p, err) < 0 ? -1 : BODY_MORE;
        } else if (p->step != PYTHON_NAME || (p->in_list && c == ']')) {
            got = read_python_mark(p, c);
        } else if ((got = read_python_name(p, err)) == BODY_MORE && p->step == PYTHON_NAME) {
            break;
        }
    }
    return got == BODY_MORE && last && p->step == PYTHON_NEXT && !p->in_list ? BODY_DONE : got;
}

/* ---- parameters in tags, code ---- */

/* The type that a tool's schema gives a parameter, or NULL. */
static const char *type_of(const struct tool_parser *p, const char *key)
{
    const json_t *function = tool_function(p->tools, buf_text(&p->name));
    const json_t *schema = json_object_get(function, "parameters");
    const json_t *type =
        json_object_get(json_object_get(json_object_get(schema, "properties"), key), "type");
    return json_string_value(json_is_array(type) ? json_array_get(type, 0) : type);
}

/* Appends a value that is written as text: a string, unless it is JSON and the parameter may be something else. */
static int add_text_value(struct tool_parser *p, const char *text, size_t len, struct err *err)
{
    AUTO(buf_release) struct buf copy = {0}, json = {0};
    struct value_reader reader = {.syntax = VALUE_PYTHON};
    const char *type = type_of(p, buf_text(&p->scratch));
    size_t taken = 0;
    int got = VALUE_BAD;
    if (buf_add(&copy, text, len, err) < 0 || buf_add(&copy, "\n", 1, err) < 0)
        return -1;
    const size_t first = count_space(copy.data, len);
    const bool is_string = first == len || strchr("\"'", text[first]);
    if (!type || strcmp(type, "string") != 0)
        got = value_read(&reader, copy.data, copy.len, &taken, &json, err);
    if (got < 0)
        return -1;
    if (got == VALUE_DONE && !is_string &&
        count_space(copy.data + taken, copy.len - taken) == copy.len - taken)
        return buf_add(&p->arguments, json.data, json.len, err);
    return add_quoted(&p->arguments, text, len, err);
}

/* Reads the value that begins at p->at and the text behind it. */
static int read_parameter_value(struct tool_parser *p, bool last, struct err *err)
{
    const struct tool_pattern *parameter = tool_format_parameter(p->format);
    const char *closing = parameter->item[parameter->n - 1].text, *text = p->in.data;
    int found = MATCH_NONE;
    size_t at, end = 0;
    while (found == MATCH_NONE) {
        found = find_text(closing, text + p->scan, p->in.len - p->scan, last, &at, &end);
        at += p->scan;
        end += p->scan;
        p->scan = at;
        if (found == MATCH_NONE)
            return BODY_MORE;
        if (found == MATCH_FOUND)
            found = match_parameters_end(p->pattern, p->format, text + end, p->in.len - end, last);
        p->scan += found == MATCH_NONE;
    }
    if (found == MATCH_MORE && !last)
        return BODY_MORE;
    size_t from = p->at;
    if (from < at && text[from] == '\n')
        from++;
    if (at > from && text[at - 1] == '\n')
        at--;
    if (add_key(p, buf_text(&p->scratch), p->scratch.len, err) < 0 ||
        add_text_value(p, text + from, at - from, err) < 0 || tool_put_arguments(p, err) < 0)
        return -1;
    p->at = end;
    p->step = 0;
    return BODY_MORE;
}

static int read_parameters(struct tool_parser *p, bool last, struct err *err)
{
    char c;
    for (;;) {
        struct tool_head head;
        if (p->step) {
            const int got = read_parameter_value(p, last, err);
            if (got < 0 || p->step)
                return got;
        }
        if (!next_byte(p, &c))
            return last ? end_members(p, err) : BODY_MORE;
        const int found = match_head(tool_format_parameter(p->format), p->format, p->in.data + p->at,
                                     p->in.len - p->at, last, &head);
        if (found == MATCH_MORE)
            return BODY_MORE;
        if (found == MATCH_NONE)
            return end_members(p, err);
        buf_clear(&p->scratch);
        if (buf_add(&p->scratch, head.key.data, head.key.size, err) < 0)
            return -1;
        p->scan = p->at += head.len;
        p->step = 1;
    }
}

/* Reads code up to the closing text, or the end of an answer that the model ended. */
static int read_code(struct tool_parser *p, bool last, struct err *err)
{
    const char *closing = tool_pattern_closing(p->pattern);
    size_t at = p->in.len, end;
    char c;
    if (!p->step && !next_byte(p, &c))
        return BODY_MORE;
    if (!p->step)
        p->scan = p->at;
    p->step = 1;
    int found = MATCH_NONE;
    if (closing) {
        found = find_text(closing, p->in.data + p->scan, p->in.len - p->scan, last, &at, &end);
        p->scan = at += p->scan;
    }
    if (found != MATCH_FOUND && !(last && !p->truncated))
        return BODY_MORE;
    if (add_key(p, "code", 4, err) < 0 ||
        add_quoted(&p->arguments, p->in.data + p->at, at - p->at, err) < 0)
        return -1;
    p->at = at;
    return end_members(p, err);
}

int tool_read_body(struct tool_parser *p, bool last, struct err *err)
{
    static int (*const read[])(struct tool_parser * p, bool last, struct err *err) = {
        [TOOL_JSON] = read_json,
        [TOOL_LIST] = read_json,
        [TOOL_ARGUMENTS] = read_arguments,
        [TOOL_KEYWORDS] = read_keywords,
        [TOOL_PYTHON] = read_python,
        [TOOL_CODE] = read_code,
        [TOOL_PARAMETERS] = read_parameters,
    };
    return read[p->pattern->item[p->pattern->body].kind](p, last, err);
}
