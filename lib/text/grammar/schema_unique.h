/* Lists whose items are all different (uniqueItems). */
#ifndef BMC_SCHEMA_UNIQUE_H
#define BMC_SCHEMA_UNIQUE_H

#include "text/grammar/schema_parts.h"

/* Lists of min to max different items: in any order, if the items' schema lists at most SCHEMA_UNIQUE_VALUES values; in
 * its order, if it lists more; or of items that begin differently. Without `schema`, items are any values. */
enum { SCHEMA_UNIQUE_VALUES = 10 };
expr_id schema_unique_items(struct schema_job *job, const json_t *schema, uint32_t min, uint32_t max);

#endif
