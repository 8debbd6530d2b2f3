/* Element types of a KV cache and their names. They differ from names of weight types: "q8" is
 * DTYPE_Q8_CHANNEL with a KV entry as its row, "q4" is DTYPE_Q4_1. */
#ifndef BMC_CACHE_TYPES_H
#define BMC_CACHE_TYPES_H

#include "quant/dtype.h"

struct cache_type {
    const char *name;
    enum dtype type;
};

/* In the order in which help texts list them; ended by a NULL name. */
extern const struct cache_type cache_types[];

/* NULL: `type` is not a KV cache type. */
const char *cache_type_name(enum dtype type);

/* Parses a name of the table, or "q8_channel" or "q4_1", in any case. False: no such cache type. */
bool cache_type_find(const char *name, enum dtype *type) MUST_USE;

#endif
