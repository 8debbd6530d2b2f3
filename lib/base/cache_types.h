/* Types that rows of a cache may have, and what users call them. */
#ifndef BMC_CACHE_TYPES_H
#define BMC_CACHE_TYPES_H

#include "base/dtype.h"

struct cache_type {
    const char *name;
    enum dtype type;
};

/* In the order of the options; ended by a name that is NULL. */
extern const struct cache_type cache_types[];

/* NULL: no cache has rows of that type. */
const char *cache_type_name(enum dtype type);

/* False: no type has that name. */
bool cache_type_find(const char *name, enum dtype *type) MUST_USE;

#endif
