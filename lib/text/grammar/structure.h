/* Structures: texts, tokens and JSON Schemas in an order, as a value of JSON:
 *
 *    "text"                        the text
 *    17                            the token with this id, which may be a special one
 *    [A, B, ..]                    one after the other
 *    {"schema": S}                 JSON that the schema allows, or, with further members, what means it:
 *      "call": true                as arguments of a call in Python, (a=1, b=[True])
 *      "quote": "text"             strings between such texts, names without quotes;
 *        "token": 17               the text is this token
 *    {"any_of": [A, B, ..]}        one of them
 *    {"repeat": A, "between": B}   A once or more often, B between them
 *    {"optional": A}               A or nothing
 *    {"regex": "re"}               text that matches from start to end
 *    {"until": "text"}             any text up to this one, and it; to be sound where the text's first two characters
 *                                  may not occur before, it begins with two different ones */
#pragma once

#include "base/json.h"
#include "text/grammar/expr.h"

/* Makes the grammar of a structure. */
void structure_parse(struct grammar *grammar, const json_t *structure);
