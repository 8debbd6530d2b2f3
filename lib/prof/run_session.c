/* Sessions of bmc-prof's measurements, and running a text in one. */
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
        .chunk = size_min(DEFAULT_CHUNK, context),
        .threads = run->threads,
        .threads_prefill = run->threads,
    };
}

int run_text(struct session *s, const struct run *run, const uint32_t *id, size_t n, struct err *err)
{
    session_begin(s, 0, n, n);
    for (size_t at = 0, rows; at < n; at += rows) {
        rows = size_min(batch_space(s), n - at);
        batch_add(s, 0, id + at, rows);
        if (*run->interrupted)
            return err_code(err, ERR_INTERRUPTED, "interrupted");
        if (session_run(s, run->threads, err) < 0)
            return -1;
    }
    return 0;
}
