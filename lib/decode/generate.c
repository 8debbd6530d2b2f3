/* The generation loop, as its users see it. */
#include "decode/generate.h"

#include "decode/loop.h"

int generate(struct session *session, const struct sampler_options *sampling,
             const struct step_strategy *strategy, const struct gen_callbacks *callbacks,
             const volatile sig_atomic_t *interrupted, struct gen_stats *stats, struct err *err)
{
    struct loop loop = {
        .session = session,
        .sampling = sampling,
        .strategy = strategy ? strategy : &step_plain,
        .callbacks = callbacks,
        .interrupted = interrupted,
        .stats = stats,
    };
    *stats = (struct gen_stats){0};
    const int rc = loop_open(&loop, err) < 0 ? -1 : loop_run(&loop, err);
    stats->logits_hash = loop_hash(&loop);
    loop_close(&loop);
    return rc;
}
