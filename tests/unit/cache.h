/* Opens a cache for a test with a policy spelled as for --kv; the test program exits on failure. */
#ifndef BMC_TEST_CACHE_H
#define BMC_TEST_CACHE_H

#include "check.h"
#include "cpu/cpu_memory.h"
#include "kv/kv.h"

/* Tests that set this run with V as the leading three quarters of K, as in latent attention, too. */
static bool v_in_k __attribute__((unused));

/* For kv_sizes.v_dim and attn_shape.v_dim. */
static inline size_t cache_v_dim(size_t d) { return v_in_k ? div_up(3 * d, 4) : 0; }

/* Stored matrices per layer; elements of V that attention uses. */
static inline size_t cache_matrices(void) { return v_in_k ? 1 : 2; }
static inline size_t cache_v_width(size_t d) { return v_in_k ? cache_v_dim(d) : d; }

static inline struct kv_shape cache_shape(size_t layers, size_t kv_heads, size_t d, size_t rows,
                                          enum dtype type)
{
    return kv_shape_uniform(
        layers, (struct kv_sizes){.kv_heads = kv_heads, .head_dim = d, .v_dim = cache_v_dim(d)}, rows,
        type);
}

/* The memory of the caches, whose addresses are pointers. */
static const struct backend_memory *cache_memory = &cpu_memory;

/* kv_spec_parse(), for a cache in this memory. */
static inline int cache_spec_parse(struct kv_spec *spec, const char *text, struct err *err)
{
    const int rc = kv_spec_parse(spec, text, err);
    spec->memory = cache_memory;
    return rc;
}

/* kv_append() of keys and values in the memory of the CPU. */
static inline void cache_append(struct kv *kv, size_t seq, size_t layer, const float *k, const float *v,
                                size_t stride)
{
    kv_append(kv, seq, layer, cpu_addr(k), cpu_addr(v), stride, NULL);
}

static inline struct kv *cache_of(const char *text, const struct kv_shape *shape, size_t seqs)
{
    struct kv_spec spec;
    struct err err;
    struct kv *kv = NULL;
    if (cache_spec_parse(&spec, text, &err) < 0 || kv_open(&kv, &spec, shape, seqs, &err) < 0) {
        check(false, "%s: %s", text, err.text);
        exit(1);
    }
    return kv;
}

#endif
