/* A format of tool calls and reasoning as data: models.d/tools/NAME.tools, described in bmc-tools(5).
 *
 * A pattern is text with fields in braces, as "<tool_call>\n{json}\n</tool_call>". Models write it, so it
 * is also what a constraint generates: texts as they are, white space included, and the field between them.
 * The parser takes any white space, or none, where a pattern has some. */
#pragma once

#include "base/json.h"
#include "base/mem.h"

enum tool_item_kind {
    TOOL_TEXT,
    TOOL_NAME,       /* {name}, or {name=f}, which takes no text: the call is one of f */
    TOOL_ID,         /* {id} */
    TOOL_NAME_IN_ID, /* {functions.name:index}: an id that holds the name */
    TOOL_ANYTHING,   /* {_}: ignored */
    TOOL_KEY,        /* {key} of a parameter */
    TOOL_VALUE,      /* {value} of a parameter */
    /* bodies: of a pattern at most one, behind which there is at most one text */
    TOOL_JSON, /* {json}: an object with the members of `name`, `arguments` and `id`, or a list of some */
    TOOL_LIST,       /* {list}: the list */
    TOOL_ARGUMENTS,  /* {arguments}: an object */
    TOOL_KEYWORDS,   /* {keywords}: a=1, b="x", without the parentheses */
    TOOL_PYTHON,     /* {python}: calls as f(a=1), separated by commas or line feeds; or in brackets,
                      as they are written by models of {[python]} */
    TOOL_PARAMETERS, /* {parameters}: any number of the pattern `parameter` */
    TOOL_CODE,       /* {code}: text that becomes the argument "code" */
    TOOL_REASONING,  /* {reasoning} */
};

struct tool_item {
    enum tool_item_kind kind;
    /* of TOOL_TEXT; of TOOL_NAME the name, or NULL; of TOOL_PYTHON "[", if models write brackets, or
     * NULL */
    char *text;
};

enum tool_use {
    TOOL_CALLS,
    TOOL_CALLS_MAYBE, /* a call only if its name is one of the tools' */
    TOOL_THINKS,
    TOOL_SKIPS, /* the text is left out */
    TOOL_IS_PARAMETER,
};

enum { TOOL_ITEMS = 10, TOOL_PATTERNS = 24, TOOL_KEYS = 4 };

struct tool_pattern {
    enum tool_use use;
    struct tool_item item[TOOL_ITEMS];
    size_t n, body; /* `body`: index of the body; n: there is none */
};

struct tool_format {
    char *name;
    /* in the order of the file: of several that match a text, the first applies. The first of TOOL_CALLS or
     * TOOL_CALLS_MAYBE is that which models write */
    struct tool_pattern pattern[TOOL_PATTERNS];
    size_t n_patterns;
    json_t *mark, *without; /* lists of texts, by which chat templates are recognised */
    /* members of {json}, the first as models write it; then alternatives, up to a NULL */
    char *key[3][TOOL_KEYS + 1];
    /* further delimiter of strings in {arguments}, whose keys have no quotes then; or NULL */
    char *quote;
    char *separator;      /* text that may stand between calls, besides white space; or NULL */
    char *before, *after; /* texts around all calls, which are patterns of TOOL_SKIPS, too; or NULL */
    size_t id_chars; /* length of ids that the model does not write; 0: "call_" and 24 characters */
};

/* Indices of `key`. */
enum { TOOL_KEY_NAME, TOOL_KEY_ARGUMENTS, TOOL_KEY_ID };

/* Parses a file's text; `source` names it in errors. After an error nothing needs releasing. */
int tool_format_parse(struct tool_format *format, const char *text, size_t size, const char *source,
                      struct err *err) MUST_USE;
void tool_format_release(struct tool_format *format);

/* Opens MODELS_DIR/tools/NAME.tools. */
int tool_format_open(struct tool_format *format, const char *models_dir, const char *name,
                     struct err *err) MUST_USE;

/* Opens the format whose `mark` texts all occur in a chat template and none of `without`; of several, the one with the
 * longest marks in total. Returns 1, 0: there is none, or -1. */
int tool_format_find(struct tool_format *format, const char *models_dir, const char *chat_template,
                     size_t len, struct err *err) MUST_USE;

/* The pattern of TOOL_PARAMETERS, or NULL. */
const struct tool_pattern *tool_format_parameter(const struct tool_format *format);

/* The first pattern of calls, which models write; one past the last pattern: there is none. */
const struct tool_pattern *tool_format_calls(const struct tool_format *format);

/* The text with which a pattern begins, or "" if it begins with a field. */
const char *tool_pattern_opening(const struct tool_pattern *pattern);

/* The text behind a pattern's body, or NULL. */
const char *tool_pattern_closing(const struct tool_pattern *pattern);
