/* The grammar of objects of a JSON Schema. */
#ifndef BMC_SCHEMA_OBJECT_H
#define BMC_SCHEMA_OBJECT_H

#include "text/grammar/schema_parts.h"

/* Objects that a schema allows: its properties in their order. */
expr_id schema_object(struct schema_job *job, const json_t *schema);

/* An expression as a rule, so that several uses share it. */
expr_id schema_rule(struct schema_job *job, expr_id body, const char *name);

/* The values that a schema allows. */
expr_id schema_compile(struct schema_job *job, const json_t *schema);

#endif
