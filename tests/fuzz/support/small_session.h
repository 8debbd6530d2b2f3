/* A session with one sequence and one thread on the reference kernels, for targets that run a
 * model. */
#ifndef BMC_FUZZ_SMALL_SESSION_H
#define BMC_FUZZ_SMALL_SESSION_H

#include "base/threads.h"
#include "decode/session.h"
#include "input.h"

static inline int small_session_open(struct session **session, const struct model *model,
                                     const char *policy, enum dtype type, size_t context,
                                     struct err *err)
{
    struct session_options o = {.kv_types = cache_types_alike(type),
                                .cpu.precision = PRECISION_F32,
                                .context = context,
                                .batch = 1,
                                .chunk = 4,
                                .threads = 1,
                                .threads_prefill = 1};
    threads_set(1);
    kernels_setup();
    if (!(o.cpu.attn = attn_find("fused", err)) || !(o.cpu.kernels = kernels_select("ref", err)) ||
        kv_spec_parse(&o.kv, policy, err) < 0) {
        fprintf(stderr, "%s\n", err->text);
        abort();
    }
    return session_open(session, model, &o, err);
}

#endif
