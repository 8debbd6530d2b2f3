/* Sessions of bmc-prof's measurements. */
#include "prof/run.h"

struct session_options run_session_options(const struct run *run, size_t context, size_t batch)
{
    return (struct session_options){
        .kv_type = run->kv_type,
        .attn = run->attn,
        .kernels = run->kernels,
        .precision = run->precision,
        .context = context,
        .batch = batch,
        .chunk = size_min(RUN_CHUNK, context),
        .threads = run->threads,
        .threads_prefill = run->threads,
    };
}
