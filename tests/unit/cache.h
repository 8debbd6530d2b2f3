/* Opens a cache for a test with a policy spelled as for --kv; the test program exits on failure. */
#ifndef BMC_TEST_CACHE_H
#define BMC_TEST_CACHE_H

#include "check.h"
#include "kv/kv.h"

static inline struct kv *cache_of(const char *text, const struct kv_shape *shape, size_t seqs)
{
    struct kv_spec spec;
    struct err err;
    struct kv *kv = NULL;
    if (kv_spec_parse(&spec, text, &err) < 0 || kv_open(&kv, &spec, shape, seqs, &err) < 0) {
        check(false, "%s: %s", text, err.text);
        exit(1);
    }
    return kv;
}

#endif
