/* The streaming parser of answers: text between patterns, heads of patterns, and what follows bodies. */
#include "text/tools/tool_parser.h"

#include <ctype.h>

#include "text/tools/tool_body.h"
#include "text/tools/tool_call.h"
#include "text/tools/tool_match.h"

enum state { IN_TEXT, IN_REASONING, IN_BODY, IN_CLOSING, IN_VOID };
enum { WAITS, GOES_ON }; /* results of the functions of states, besides -1 */

static const char *left(const struct tool_parser *p, size_t *len)
{
    *len = p->in.len - p->at;
    return buf_text(&p->in) + p->at;
}

/* Reports text or reasoning up to `to`, but holds back white space at its end. */
static int put_text(struct tool_parser *p, enum tool_event_kind kind, size_t to, struct err *err)
{
    const char *text = buf_text(&p->in) + p->at;
    size_t len = to - p->at, shown;
    p->at = to;
    if (p->fresh) {
        const size_t skipped = count_space(text, len);
        text += skipped;
        len -= skipped;
    }
    for (shown = len; shown && is_space(text[shown - 1]);)
        shown--;
    if (shown) {
        p->fresh = p->after_call = false;
        p->not_first = p->any_text = true;
        if ((p->space.len && tool_put(p, kind, p->space.data, p->space.len, err) < 0) ||
            tool_put(p, kind, text, shown, err) < 0)
            return -1;
        buf_clear(&p->space);
    }
    return buf_add(&p->space, text + shown, len - shown, err);
}

/* Goes on behind a pattern. */
static int continue_text(struct tool_parser *p, bool after_call)
{
    p->state = IN_TEXT;
    p->fresh = true;
    p->not_first = false;
    p->after_call = after_call;
    p->start = p->at;
    return GOES_ON;
}

/* ---- calls ---- */

/* What was read since the call's start becomes text. */
static int void_call(struct tool_parser *p, struct err *err)
{
    const size_t to = p->at;
    if (p->begun && tool_put(p, TOOL_EVENT_VOID, NULL, 0, err) < 0)
        return -1;
    tool_forget_call(p);
    p->at = p->start;
    p->not_first = true;
    p->state = p->pattern->use == TOOL_CALLS_MAYBE ? IN_TEXT : IN_VOID;
    return put_text(p, TOOL_EVENT_TEXT, to, err) < 0 ? -1 : GOES_ON;
}

/* ---- states ---- */

/* Begins the pattern whose head was found at p->at. */
static int begin_pattern(struct tool_parser *p, const struct tool_pattern *pattern,
                         const struct tool_head *head, struct err *err)
{
    p->pattern = pattern;
    p->start = p->at;
    p->at += head->len;
    if (!p->any_text || pattern->use == TOOL_THINKS)
        buf_clear(&p->space);
    if (pattern->use == TOOL_SKIPS)
        return continue_text(p, p->after_call);
    if (pattern->use == TOOL_THINKS) {
        p->fresh = true;
        p->state = IN_REASONING;
        return GOES_ON;
    }
    p->state = IN_BODY;
    p->step = 0;
    p->in_list = false;
    p->scan = p->at;
    tool_forget_call(p);
    if (buf_add(&p->name, head->name.data, head->name.size, err) < 0 ||
        buf_add(&p->id, head->id.data, head->id.size, err) < 0)
        return -1;
    const int rc = p->name.len ? tool_begin_call(p, err) : 0;
    return rc == TOOL_NO_CALL ? void_call(p, err) : rc < 0 ? -1 : GOES_ON;
}

/* Whether a pattern is looked for between texts. */
static bool is_sought(const struct tool_parser *p, const struct tool_pattern *pattern)
{
    return pattern->use != TOOL_IS_PARAMETER &&
           !(p->no_calls && (pattern->use == TOOL_CALLS || pattern->use == TOOL_CALLS_MAYBE));
}

/* Which patterns may begin: those that begin with a field; others; those but reasoning, as text precedes. */
enum seeking { SEEKS_BARE, SEEKS_FIRST, SEEKS_LATER };

/* Compares the text at `at` with the heads of patterns. */
static int find_head(const struct tool_parser *p, size_t at, enum seeking seeking, bool last,
                     const struct tool_pattern **pattern, struct tool_head *head)
{
    for (size_t i = 0; i < p->format->n_patterns; i++) {
        *pattern = &p->format->pattern[i];
        if (!is_sought(p, *pattern) || !*tool_pattern_opening(*pattern) != (seeking == SEEKS_BARE) ||
            ((*pattern)->use == TOOL_THINKS && seeking == SEEKS_LATER))
            continue;
        const int found = match_head(*pattern, p->format, p->in.data + at, p->in.len - at, last, head);
        if (found != MATCH_NONE)
            return found;
    }
    return MATCH_NONE;
}

/* Looks for a pattern that begins with a field, at the beginning of the answer or behind another pattern. */
static int find_bare(struct tool_parser *p, bool last, const struct tool_pattern **pattern,
                     struct tool_head *head, size_t *at)
{
    size_t len, end;
    const char *text = left(p, &len), *separator = p->format->separator;
    const bool cut = len > MATCH_BYTES;
    len = size_min(len, MATCH_BYTES);
    size_t i = count_space(text, len);
    if (separator && p->after_call) {
        const int found = match_text(separator, text + i, len - i, last, &end);
        if (found == MATCH_MORE)
            return MATCH_MORE;
        if (found == MATCH_FOUND) {
            i += end;
            i += count_space(text + i, len - i);
        }
    }
    *at = p->at + i;
    return i == len ? last || cut ? MATCH_NONE : MATCH_MORE
                    : find_head(p, *at, SEEKS_BARE, last, pattern, head);
}

static int read_text(struct tool_parser *p, bool last, struct err *err)
{
    const struct tool_pattern *pattern;
    struct tool_head head;
    size_t len, at;
    const char *text = left(p, &len);
    if (put_text(p, TOOL_EVENT_TEXT, p->at + count_space(text, len), err) < 0)
        return -1;
    int found = p->not_first ? MATCH_NONE : find_bare(p, last, &pattern, &head, &at);
    if (found == MATCH_MORE)
        return WAITS;
    if (found == MATCH_FOUND) {
        p->at = at;
        return begin_pattern(p, pattern, &head, err);
    }
    enum seeking seeking = p->not_first ? SEEKS_LATER : SEEKS_FIRST;
    for (at = p->at; at < p->in.len; at++) {
        if ((found = find_head(p, at, seeking, last, &pattern, &head)) != MATCH_NONE)
            break;
        if (!is_space(p->in.data[at]))
            seeking = SEEKS_LATER;
    }
    if (put_text(p, TOOL_EVENT_TEXT, at, err) < 0)
        return -1;
    return found == MATCH_FOUND ? begin_pattern(p, pattern, &head, err) : WAITS;
}

/* Reads text or reasoning up to the end of the pattern's closing text: that of reasoning is left out. */
static int read_to_closing(struct tool_parser *p, bool last, struct err *err)
{
    const bool thinks = p->state == IN_REASONING;
    const char *closing = tool_pattern_closing(p->pattern);
    size_t len, at, end;
    const char *text = left(p, &len);
    const int found = closing ? find_text(closing, text, len, last, &at, &end) : MATCH_NONE;
    const size_t done = p->at + (found == MATCH_FOUND ? end : 0);
    if (!closing)
        at = len;
    if (found == MATCH_FOUND && !thinks)
        at = end;
    if (put_text(p, thinks ? TOOL_EVENT_REASONING : TOOL_EVENT_TEXT, p->at + at, err) < 0)
        return -1;
    if (found != MATCH_FOUND)
        return WAITS;
    p->at = done;
    if (thinks) {
        buf_clear(&p->space);
        p->any_text = false;
        return continue_text(p, false);
    }
    p->state = IN_TEXT;
    return GOES_ON;
}

static int read_body(struct tool_parser *p, bool last, struct err *err)
{
    const int got = tool_read_body(p, last, err);
    if (got == BODY_DONE)
        p->state = IN_CLOSING;
    if (got == BODY_BAD || (got == BODY_MORE && last))
        return void_call(p, err);
    return got == BODY_MORE ? WAITS : got < 0 ? -1 : GOES_ON;
}

/* Reads the text behind a call's body. The beginning of another pattern may stand in its place, or the end of the answer,
 * unless the call might have gone on there. */
static int read_closing(struct tool_parser *p, bool last, struct err *err)
{
    const char *closing = tool_pattern_closing(p->pattern);
    const enum tool_item_kind body = p->pattern->item[p->pattern->body].kind;
    const bool open_end = body == TOOL_PARAMETERS || body == TOOL_CODE;
    const struct tool_pattern *pattern;
    struct tool_head head;
    size_t len, end = 0;
    const char *text = left(p, &len);
    const size_t space = count_space(text, len);
    p->at += space;
    int found = MATCH_FOUND;
    if (closing)
        found = match_text(closing, text + space, len - space, false, &end);
    if (found == MATCH_MORE && !last)
        return WAITS;
    if (found == MATCH_FOUND && closing)
        p->at += end;
    if (found == MATCH_MORE && (!p->truncated || !open_end)) {
        p->at = p->in.len;
        found = MATCH_FOUND;
    }
    if (found == MATCH_NONE)
        found = find_head(p, p->at, SEEKS_FIRST, last, &pattern, &head);
    if (found == MATCH_MORE && !last)
        return WAITS;
    if (found != MATCH_FOUND && p->begun)
        return void_call(p, err);
    return p->begun && tool_end_call(p, err) < 0 ? -1 : continue_text(p, true);
}

static int advance(struct tool_parser *p, bool last, struct err *err)
{
    static int (*const read[])(struct tool_parser * p, bool last, struct err *err) = {
        [IN_TEXT] = read_text,       [IN_REASONING] = read_to_closing, [IN_BODY] = read_body,
        [IN_CLOSING] = read_closing, [IN_VOID] = read_to_closing,
    };
    int rc = GOES_ON;
    while (rc == GOES_ON)
        rc = read[p->state](p, last, err);
    const size_t drop = p->state == IN_BODY || p->state == IN_CLOSING ? p->start : p->at;
    if (drop) {
        p->in.len -= drop;
        memmove(p->in.data, p->in.data + drop, p->in.len);
        p->at -= drop;
        p->start -= size_min(drop, p->start);
        p->scan -= size_min(drop, p->scan);
    }
    return rc;
}

int tool_parser_add(struct tool_parser *p, const char *text, size_t len, struct err *err)
{
    return buf_add(&p->in, text, len, err) < 0 ? -1 : advance(p, false, err);
}

int tool_parser_begin(struct tool_parser *p, const char *prompt, size_t len, struct err *err)
{
    while (len && is_space(prompt[len - 1]))
        len--;
    for (size_t i = 0; i < p->format->n_patterns; i++) {
        const struct tool_pattern *pattern = &p->format->pattern[i];
        const char *opening = is_sought(p, pattern) ? tool_pattern_opening(pattern) : "";
        size_t n = strlen(opening);
        while (n && is_space(opening[n - 1]))
            n--;
        if (n && n <= len && memcmp(prompt + len - n, opening, n) == 0)
            return tool_parser_add(p, opening, strlen(opening), err);
    }
    return 0;
}

int tool_parser_end(struct tool_parser *p, bool truncated, struct err *err)
{
    p->truncated = truncated;
    if (advance(p, true, err) < 0)
        return -1;
    const bool shows = p->space.len && !p->fresh && p->state != IN_REASONING;
    return shows ? tool_put(p, TOOL_EVENT_TEXT, p->space.data, p->space.len, err) : 0;
}

void tool_parser_release(struct tool_parser *p)
{
    struct buf *const owned[] = {&p->in, &p->space, &p->name, &p->id, &p->arguments, &p->scratch};
    for (size_t i = 0; i < ARRAY_LEN(owned); i++)
        buf_release(owned[i]);
}
