/* Element types of a KV cache: f32, half precision, 8 bits with one scale for the K or V vector of
 * a head (BASS paper A.1), or 4 bits with a scale and a minimum per 32 elements, as they are or
 * rotated. */
#include "quant/cache_types.h"

#include <string.h>
#include <strings.h>

const struct cache_type cache_types[] = {
    {"f32", DTYPE_F32}, {"bf16", DTYPE_BF16},        {"f16", DTYPE_F16},  {"q8", DTYPE_Q8_CHANNEL},
    {"q4", DTYPE_Q4_1}, {"q4h", DTYPE_Q4_1_ROTATED}, {NULL, DTYPE_COUNT},
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
        if (strcasecmp(name, cache_types[i].name) == 0 ||
            (dtype_stored(cache_types[i].type) == cache_types[i].type &&
             strcasecmp(name, dtype_name(cache_types[i].type)) == 0)) {
            *type = cache_types[i].type;
            return true;
        }
    return false;
}

const char *cache_type_scales(const char *text, size_t *name_bytes)
{
    static const char before[] = ":scales=";
    const size_t n = strcspn(text, ":");
    *name_bytes = n;
    return strncmp(text + n, before, sizeof before - 1) == 0 && text[n + sizeof before - 1]
               ? text + n + sizeof before - 1
               : NULL;
}

bool cache_type_shares_scales(enum dtype type)
{
    return type == DTYPE_Q8_CHANNEL || type == DTYPE_Q4_1;
}

bool cache_type_narrow(enum dtype type)
{
    return type == DTYPE_F16 || dtype_stored(type) == DTYPE_Q4_1;
}

bool cache_type_overflowed(enum dtype type, const void *row, const float *x, size_t n)
{
    return cache_type_narrow(type) && !dtype_finite(type, row, n) && dtype_finite(DTYPE_F32, x, n);
}
