/* Element types of a KV cache. Their names differ from those of weight types: "q8" is
 * DTYPE_Q8_CHANNEL, with one scale for the K or V vector of a head, "q4" is DTYPE_Q4_1, and "q4h" is
 * DTYPE_Q4_1_ROTATED, in which K and V are rotated by a Hadamard matrix of the head size. */
#ifndef BMC_CACHE_TYPES_H
#define BMC_CACHE_TYPES_H

#include "quant/dtype.h"

struct cache_type {
    const char *name;
    enum dtype type;
};

/* All element types of KV caches, in the order in which help texts list them; ended by a NULL
 * name. */
extern const struct cache_type cache_types[];

/* The name of a KV cache type; NULL if `type` is not one. */
const char *cache_type_name(enum dtype type);

/* Finds the type of a name in cache_types, or of "q8_channel" or "q4_1"; case-insensitive. False:
 * no such cache type. */
bool cache_type_find(const char *name, enum dtype *type) MUST_USE;

/* Sets *name_bytes to the length of the name in "q8" or "q8:scales=FILE"; returns FILE, NULL if it does not follow. */
const char *cache_type_scales(const char *text, size_t *name_bytes);

/* True if all entries of a KV cache of this type can have the same scales. */
bool cache_type_shares_scales(enum dtype type);

/* True if rows of the type have f16 values, elements or scales: they end at 65504. */
bool cache_type_narrow(enum dtype type);

/* True if x[n] is finite, but the row of this type that it was converted to is not. */
bool cache_type_overflowed(enum dtype type, const void *row, const float *x, size_t n);

#endif
