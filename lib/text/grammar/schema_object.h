/* The grammar of objects of a JSON Schema. */
#ifndef BMC_SCHEMA_OBJECT_H
#define BMC_SCHEMA_OBJECT_H

#include "text/grammar/schema_parts.h"

/* Objects that a schema allows: its properties in their order. */
expr_id schema_object(struct schema_job *job, const json_t *schema);

#endif
