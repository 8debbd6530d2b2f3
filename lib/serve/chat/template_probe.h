/* Finds out what a Jinja template does with parts of conversations that clients send in several forms, by
 * rendering small conversations. */
#ifndef BMC_TEMPLATE_PROBE_H
#define BMC_TEMPLATE_PROBE_H

#include "text/jinja/jinja.h"

/* The forms of arguments of tool calls that a template takes; any: both, or nothing tells. */
enum call_arguments { ARGUMENTS_OBJECT = 1, ARGUMENTS_STRING, ARGUMENTS_ANY };

/* Messages that differ in what templates do with a content that is null. */
enum null_content {
    NULL_OF_CALLS,
    NULL_OF_ANSWER,
    NULL_OF_TOOL,
    NULL_OF_USER,
    NULL_OF_SYSTEM,
    NULL_CONTENTS
};

struct template_traits {
    enum call_arguments arguments;
    bool drops_calls;               /* it neither names tool calls nor writes them */
    bool takes_null[NULL_CONTENTS]; /* it copes with null as content; else "" replaces it */
};

/* `trusted`: variables, as of jinja_render(). */
int template_probe(const struct jinja_template *template, const json_t *trusted, const struct tm *now,
                   struct template_traits *traits, struct err *err) MUST_USE;

#endif
