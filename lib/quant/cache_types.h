/* Element types of a KV cache. Their names differ from those of weight types: "q8" is DTYPE_KV8, "q6", "q5" and
 * "q4" are DTYPE_KV6, DTYPE_KV5 and DTYPE_KV4: K and V are rotated by a Hadamard matrix of the head size. What
 * earlier versions called "q8" and "q4" is "q8_channel" and "q4_1": one scale per vector, or a scale and a minimum
 * per 32 elements, without a rotation, as shared scales need it; "q4h" is "q4_1" of rotated vectors. */
#pragma once

#include "base/mem.h"
#include "quant/dtype.h"

/* Types of K and V in a layer; where V is a part of K, both are the same. */
struct kv_types {
    enum dtype k, v;
};

/* Those of the layers of a cache: layer[n], borrowed; others have `all`. */
struct cache_types {
    struct kv_types all;
    size_t n;
    const struct kv_types *layer;
};

static inline struct cache_types cache_types_alike(enum dtype type)
{
    return (struct cache_types){.all = {type, type}};
}

static inline struct kv_types cache_types_of(const struct cache_types *types, size_t layer)
{
    return layer < types->n ? types->layer[layer] : types->all;
}

/* True if K or V of some layer is of such a type. */
bool cache_types_any(const struct cache_types *types, bool (*is)(enum dtype type));

static inline bool kv_types_equal(struct kv_types a, struct kv_types b)
{
    return a.k == b.k && a.v == b.v;
}

struct cache_type {
    const char *name;
    enum dtype type;
};

/* All element types of KV caches, in the order in which help texts list them; ended by a NULL
 * name. */
extern const struct cache_type cache_types[];

/* The name of a KV cache type; NULL if `type` is not one. */
const char *cache_type_name(enum dtype type);

/* Finds the type of a name in cache_types; case-insensitive. False: no such cache type. */
bool cache_type_find(const char *name, enum dtype *type) MUST_USE;

/* Parses the types of all layers: "q8", or those of K and V apart, "k=q8,v=q4", of which one may be missing (f32).
 * Both may be followed by ":scales=FILE", if they can share scales: *scales is FILE then, else NULL. */
int cache_types_parse(struct cache_types *types, const char *text, const char **scales,
                      struct err *err) MUST_USE;

/* The text that cache_types_parse() would take: "q8" or "k=q8,v=q4"; "per layer" if layers differ. */
enum { CACHE_TYPES_TEXT = 32 };
struct cache_types_text {
    char text[CACHE_TYPES_TEXT];
};
struct cache_types_text cache_types_format(const struct cache_types *types);

/* Appends that text, or the types by layer: "0-3:q8 4:k=q5,v=q4 5-29:q4". */
int cache_types_add(struct buf *text, const struct cache_types *types, struct err *err) MUST_USE;

/* True if all entries of a KV cache of this type can have the same scales. */
bool cache_type_shares_scales(enum dtype type);

/* True if rows of the type have f16 values, elements or scales: they end at 65504. */
bool cache_type_narrow(enum dtype type);

/* True if x[n] is finite, but the row of this type that it was converted to is not. */
bool cache_type_overflowed(enum dtype type, const void *row, const float *x, size_t n);
