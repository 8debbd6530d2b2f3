/* JSON Schemas (draft 2020-12 and older ones that agree with it) as constraints. */
#pragma once

#include "base/json.h"
#include "text/grammar/expr.h"
#include "text/grammar/schema.h"

/* Makes the grammar of the JSON texts that a schema allows, or of some of them: what the manual says
 * under CONSTRAINED OUTPUT. Keywords that are not supported are errors that name them and their
 * place as a JSON pointer. */
void json_schema_parse(struct grammar *grammar, const json_t *schema);

/* The same of values that are written in a style; NULL: JSON. */
void json_schema_parse_as(struct grammar *grammar, const json_t *schema,
                          const struct json_style *style);
