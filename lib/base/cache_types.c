/* Types that rows of a cache may have, and what users call them: the row form of base/few_bits.h, with one scale where
 * a row of 8 bits has one (BASS paper A.1), and one in 32 where it has 4. */
#include "base/cache_types.h"

const struct cache_type cache_types[] = {
    {"f32", DTYPE_F32}, {"bf16", DTYPE_BF16}, {"f16", DTYPE_F16},
    {"q8", DTYPE_Q8C},  {"q4", DTYPE_Q4},     {NULL, DTYPE_COUNT},
};

const char *cache_type_name(enum dtype type)
{
    for (size_t i = 0; cache_types[i].name; i++)
        if (cache_types[i].type == type)
            return cache_types[i].name;
    return NULL;
}

bool cache_type_find(const char *name, enum dtype *type)
{
    for (size_t i = 0; cache_types[i].name; i++)
        if (strcmp(cache_types[i].name, name) == 0) {
            *type = cache_types[i].type;
            return true;
        }
    return false;
}
