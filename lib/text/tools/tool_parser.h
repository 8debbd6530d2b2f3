/* Splits an answer into text, reasoning and tool calls, while it is generated, by a tool_format.
 *
 * The answer arrives in pieces with any boundaries, with its special tokens spelled. Events are the same for all
 * boundaries, if successive ones of a kind are joined. Text that may be the beginning of a pattern is held back until that
 * is decided. White space between a pattern and text belongs to the pattern. Reasoning does not begin behind text.
 *
 * Text that begins like a call and is not one stays text: a call that ends early or is not valid JSON. Arguments that
 * were reported already are followed by TOOL_EVENT_VOID then, and what was read of the call is reported as text. */
#pragma once

#include "text/slice.h"
#include "text/tools/tool_format.h"
#include "text/tools/tool_value.h"

enum tool_event_kind {
    TOOL_EVENT_TEXT,
    TOOL_EVENT_REASONING,
    TOOL_EVENT_CALL,      /* a call begins: `name`, `id` */
    TOOL_EVENT_ARGUMENTS, /* the next bytes of its arguments: together, an object of compact JSON */
    TOOL_EVENT_END,       /* the call is complete */
    TOOL_EVENT_VOID,      /* the call is none: forget it */
};

struct tool_event {
    enum tool_event_kind kind;
    const char *text; /* text[len]: of text, reasoning and arguments */
    size_t len;
    size_t index; /* of calls: their number from 0; the next call after a void one has the same */
    const char *name, *id; /* of calls */
};

struct tool_parser {
    /* set by the caller, borrowed */
    const struct tool_format *format;
    /* OpenAI's list of tools: types of parameters, names of doubtful calls; or NULL */
    const json_t *tools;
    bool no_calls; /* what looks like a call is text */
    uint64_t seed; /* of ids that the model does not write: the same seed, the same ids */
    int (*event)(void *arg, const struct tool_event *event, struct err *err);
    void *arg;

    /* the rest: zeros */
    struct buf in; /* text that arrived, from the start of the call that is read */
    size_t at,
        start; /* of `in`: what is read next; where the call, or the rest of a list of calls, begins */
    size_t scan; /* of `in`: no parameter's value ends before */
    unsigned state;
    bool truncated;           /* see tool_parser_end() */
    bool fresh;               /* behind a pattern: white space is left out */
    bool any_text, not_first; /* text was reported; since the last pattern */
    bool after_call;
    struct buf space;                   /* white space that is text only if text follows */
    const struct tool_pattern *pattern; /* that is read */
    size_t n_calls;
    /* the call that is read: its JSON in part, and a value of it that is not in the arguments */
    struct buf name, id, arguments, scratch;
    bool begun, in_list, given_arguments;
    unsigned step, member;
    struct value_reader value;
};

/* Begins an answer behind a prompt: if that ends with the beginning of a pattern, as "<think>", the answer is read as if it
 * began with it. */
int tool_parser_begin(struct tool_parser *parser, const char *prompt, size_t len,
                      struct err *err) MUST_USE;

/* Reads the next bytes. */
int tool_parser_add(struct tool_parser *parser, const char *text, size_t len, struct err *err) MUST_USE;

/* Ends the answer; `truncated`: the model had not ended it. A call that lacks no more than the text behind it is complete. */
int tool_parser_end(struct tool_parser *parser, bool truncated, struct err *err) MUST_USE;

void tool_parser_release(struct tool_parser *parser);
