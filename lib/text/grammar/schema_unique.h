/* uniqueItems of a JSON Schema. */
#ifndef BMC_SCHEMA_UNIQUE_H
#define BMC_SCHEMA_UNIQUE_H

#include "text/grammar/schema_parts.h"

/* Lists of different items, min to max of them, whose schema lists its values (enum, const, boolean or null):
 * at most SCHEMA_UNIQUE_VALUES. Fails for other schemas. */
enum { SCHEMA_UNIQUE_VALUES = 8 };
expr_id schema_unique_items(struct schema_job *job, const json_t *schema, uint32_t min, uint32_t max);

#endif
