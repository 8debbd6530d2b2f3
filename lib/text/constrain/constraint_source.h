/* Constraints as users write them: JSON Schemas, GBNF grammars, regular expressions, choices. */
#ifndef BMC_CONSTRAINT_SOURCE_H
#define BMC_CONSTRAINT_SOURCE_H

#include "base/json.h"
#include "text/grammar/expr.h"

enum constraint_kind {
    CONSTRAINT_NONE,
    CONSTRAINT_JSON_SCHEMA, /* text: the schema */
    CONSTRAINT_JSON_OBJECT, /* any JSON object; no text */
    CONSTRAINT_GRAMMAR,     /* text: GBNF */
    CONSTRAINT_REGEX,       /* text: a regular expression that whole outputs match */
    CONSTRAINT_CHOICE,      /* text: a list of strings as JSON */
};

/* Reads a constraint into a grammar, which the caller releases in either case. */
int constraint_source_parse(struct grammar *grammar, enum constraint_kind kind, const char *text,
                            size_t len, struct err *err) MUST_USE;

/* The alternatives of "A|B|C", where \| and \\ stand for themselves, as a list of strings in JSON. */
int constraint_split_choice(const char *text, struct buf *json, struct err *err) MUST_USE;

#endif
