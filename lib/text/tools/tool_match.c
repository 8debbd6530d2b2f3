/* Matching of patterns. */
#include "text/tools/tool_match.h"

#include <ctype.h>

/* Longest text of a field before a body. */
enum { FIELD_BYTES = 256 };

int match_text(const char *literal, const char *text, size_t len, bool last, size_t *end)
{
    size_t i = 0;
    for (; *literal; literal++) {
        if (is_space(*literal)) {
            const size_t run = strspn(literal, " \t\r\n");
            if (!literal[run])
                break;
            const size_t space = count_space(text + i, len - i);
            if (space > MATCH_BYTES)
                return MATCH_NONE;
            i += space;
            literal += run;
        }
        if (i == len)
            return last ? MATCH_NONE : MATCH_MORE;
        if (text[i++] != *literal)
            return MATCH_NONE;
    }
    *end = i;
    if (!i || !isalnum((unsigned char)text[i - 1]))
        return MATCH_FOUND;
    if (i == len)
        return last ? MATCH_FOUND : MATCH_MORE;
    return isalnum((unsigned char)text[i]) || text[i] == '_' ? MATCH_NONE : MATCH_FOUND;
}

/* The first byte of a literal text that is not white space. */
static char first_of(const char *literal) { return literal[strspn(literal, " \t\r\n")]; }

int find_text(const char *literal, const char *text, size_t len, bool last, size_t *at, size_t *end)
{
    const char first = first_of(literal), *from = text;
    while ((from = memchr(from, first, len - (size_t)(from - text)))) {
        const size_t before = (size_t)(from - text);
        const int found = match_text(literal, from, len - before, last, end);
        if (found != MATCH_NONE) {
            *at = before;
            *end += before;
            return found;
        }
        from++;
    }
    *at = len;
    return MATCH_NONE;
}

size_t count_name(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && (isalnum((unsigned char)text[n]) || (text[n] && strchr("_-.:/@", text[n])) ||
                       (unsigned char)text[n] >= 0x80))
        n++;
    return n;
}

/* Whether a body may begin at text[len], where white space may stand. */
static int match_body(enum tool_item_kind body, const char *text, size_t len, bool last)
{
    const int more = last ? MATCH_NONE : MATCH_MORE;
    size_t i = count_space(text, len);
    if (body == TOOL_REASONING || body == TOOL_CODE || body == TOOL_KEYWORDS)
        return MATCH_FOUND;
    if (i == len)
        return more;
    if (body == TOOL_ARGUMENTS || (body == TOOL_JSON && text[i] == '{'))
        return text[i] == '{' ? MATCH_FOUND : MATCH_NONE;
    if (text[i] == '[') {
        i++;
        i += count_space(text + i, len - i);
        if (i == len)
            return more;
        if (body != TOOL_PYTHON)
            return text[i] == '{' || text[i] == ']' ? MATCH_FOUND : MATCH_NONE;
    } else if (body != TOOL_PYTHON) {
        return MATCH_NONE;
    }
    const size_t n = count_name(text + i, len - i);
    if (n >= FIELD_BYTES)
        return MATCH_NONE;
    return i + n == len ? more : n && text[i + n] == '(' ? MATCH_FOUND : MATCH_NONE;
}

int match_parameters_end(const struct tool_pattern *pattern, const struct tool_format *format,
                         const char *text, size_t len, bool last)
{
    const char *const next[] = {tool_pattern_opening(tool_format_parameter(format)),
                                tool_pattern_closing(pattern)};
    const bool cut = len > MATCH_BYTES;
    len = size_min(len, MATCH_BYTES);
    last = last && !cut;
    const size_t space = count_space(text, len);
    int best = last && space == len ? MATCH_FOUND : MATCH_NONE;
    for (size_t i = 0; i < ARRAY_LEN(next) && best != MATCH_FOUND; i++) {
        size_t end;
        const int found =
            next[i] ? match_text(next[i], text + space, len - space, false, &end) : MATCH_FOUND;
        if (found != MATCH_NONE)
            best = found;
    }
    return cut && best == MATCH_MORE ? MATCH_NONE : best;
}

/* Reads a name or an id at text[len]: up to `next`, the literal text behind it or NULL, or a byte that it cannot have. */
static int match_name(const char *next, const char *text, size_t len, bool last, size_t *end)
{
    const size_t n = count_name(text, len);
    const bool follows = next && first_of(next);
    size_t at = n, ignored;
    for (size_t i = 1; follows && i <= n && i < len && at == n; i++)
        if (text[i] == first_of(next) &&
            match_text(next, text + i, len - i, last, &ignored) != MATCH_NONE)
            at = i;
    *end = at;
    if (!n && len)
        return MATCH_NONE;
    if (at == len && !last)
        return at < FIELD_BYTES ? MATCH_MORE : MATCH_NONE;
    return at && at < FIELD_BYTES ? MATCH_FOUND : MATCH_NONE;
}

/* Reads text up to `next`. */
static int match_anything(const char *next, const char *text, size_t len, bool last, size_t *end)
{
    size_t ignored;
    const int found = find_text(next, text, len, last, end, &ignored);
    if (found == MATCH_NONE)
        return last || len > FIELD_BYTES ? MATCH_NONE : MATCH_MORE;
    return *end > FIELD_BYTES ? MATCH_NONE : found;
}

/* Takes the name out of an id such as "functions.f:0". */
static struct slice name_in_id(struct slice id)
{
    static const char prefix[] = "functions.";
    const size_t n = sizeof prefix - 1;
    const char *colon = memrchr(id.data, ':', id.size);
    struct slice name = {id.data, colon ? (size_t)(colon - id.data) : id.size};
    if (name.size > n && memcmp(name.data, prefix, n) == 0)
        name = (struct slice){name.data + n, name.size - n};
    return name;
}

/* Matches an item that is a field at text[len]; `next`: the literal text behind it, or NULL. */
static int match_field(const struct tool_item *item, const char *next, const char *text, size_t len,
                       bool last, struct tool_head *head, size_t *end)
{
    const size_t space = item->kind == TOOL_KEY ? 0 : count_space(text, len);
    *end = 0;
    if (item->kind == TOOL_NAME && item->text) {
        head->name = (struct slice){item->text, strlen(item->text)};
        return MATCH_FOUND;
    }
    const bool any = item->kind == TOOL_ANYTHING || item->kind == TOOL_KEY;
    const int found = (any ? match_anything : match_name)(next, text + space, len - space, last, end);
    struct slice read = {text + space, *end};
    *end += space;
    if (found != MATCH_FOUND || item->kind == TOOL_ANYTHING)
        return found;
    if (item->kind == TOOL_KEY)
        head->key = read;
    if (item->kind == TOOL_ID || item->kind == TOOL_NAME_IN_ID)
        head->id = read;
    if (item->kind == TOOL_NAME)
        head->name = read;
    if (item->kind == TOOL_NAME_IN_ID)
        head->name = name_in_id(read);
    return item->kind == TOOL_NAME_IN_ID && !head->name.size ? MATCH_NONE : MATCH_FOUND;
}

static int match_items(const struct tool_pattern *pattern, const struct tool_format *format,
                       const char *text, size_t len, bool last, struct tool_head *head)
{
    const struct tool_pattern *parameter = tool_format_parameter(format);
    size_t i = 0, end = 0;
    *head = (struct tool_head){0};
    for (size_t k = 0; k < pattern->n; k++, i += end) {
        const struct tool_item *item = &pattern->item[k];
        const bool more = k + 1 < pattern->n;
        const char *next = more ? item[1].text : NULL;
        int found;
        if (item->kind == TOOL_VALUE || k == pattern->body)
            break;
        if (item->kind != TOOL_TEXT && more && item[1].kind == TOOL_PARAMETERS)
            next = tool_pattern_opening(parameter);
        if (item->kind == TOOL_TEXT) {
            const size_t space = k ? count_space(text + i, len - i) : 0;
            found = match_text(item->text, text + i + space, len - i - space, last, &end);
            end += space;
        } else {
            found = match_field(item, next, text + i, len - i, last, head, &end);
        }
        if (found != MATCH_FOUND)
            return found;
    }
    head->len = i;
    if (pattern->body == pattern->n)
        return MATCH_FOUND;
    return pattern->item[pattern->body].kind == TOOL_PARAMETERS
               ? match_parameters_end(pattern, format, text + i, len - i, last)
               : match_body(pattern->item[pattern->body].kind, text + i, len - i, last);
}

int match_head(const struct tool_pattern *pattern, const struct tool_format *format, const char *text,
               size_t len, bool last, struct tool_head *head)
{
    const bool cut = len > MATCH_BYTES;
    const int found =
        match_items(pattern, format, text, size_min(len, MATCH_BYTES), last && !cut, head);
    return cut && found == MATCH_MORE ? MATCH_NONE : found;
}
