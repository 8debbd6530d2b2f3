/* Compares the beginning of a text with patterns of a tool_format. */
#pragma once

#include "text/slice.h"
#include "text/tools/tool_format.h"

enum { MATCH_NONE, MATCH_MORE, MATCH_FOUND };

/* What is not decided after so many bytes is no match, so that text that arrives in pieces is not compared without end. */
enum { MATCH_BYTES = 1024 };

/* Compares text[len] with a literal text: white space in that stands for any or none, that at its end is not compared, and
 * a letter or digit at its end is the end of a word. `last`: nothing follows text[len]; else the result may be MATCH_MORE.
 * Sets *end behind it. */
int match_text(const char *literal, const char *text, size_t len, bool last, size_t *end);

/* What a pattern says before its body. */
struct tool_head {
    size_t len;
    struct slice name, id, key;
};

/* Compares text[len] with the items of a pattern before its body, and looks whether the body may begin behind them. */
int match_head(const struct tool_pattern *pattern, const struct tool_format *format, const char *text,
               size_t len, bool last, struct tool_head *head);

/* Whether another parameter or the end of {parameters} follows at text[len]. */
int match_parameters_end(const struct tool_pattern *pattern, const struct tool_format *format,
                         const char *text, size_t len, bool last);

/* Finds the first place of a literal text: sets *at to it and *end behind it. MATCH_MORE: it may begin at *at.
 * MATCH_NONE: *at is len. */
int find_text(const char *literal, const char *text, size_t len, bool last, size_t *at, size_t *end);

static inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* The number of leading bytes that are white space. */
static inline size_t count_space(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && is_space(text[n]))
        n++;
    return n;
}

/* The number of leading bytes that a name may have. */
size_t count_name(const char *text, size_t len);
