/* bmc-prof ranks: predicts the step time of several hosts that share a model on a given
 * network. */
#include "model/model.h"
#include "prof/prof.h"

#define COLUMNS                                                                                        \
    "batch ranks parallelism step_ms compute_ms network_ms tok_s against_one sent_bytes sent_calls"

static struct ranks_case read_case(const struct prof_options *o, size_t *batch, size_t *ranks)
{
    const struct opt_sizes sizes = {"--ranks", 2, RANKS_MOST, PROF_MAX_LIST};
    struct ranks_case what = {.network_text = o->network,
                              .batch = batch,
                              .ranks = ranks,
                              .depth = prof_one(o->prompt, "--prompt", 0),
                              .n_gen = prof_one(o->gen, "--gen", 1)};
    struct err err;
    if (network_parse(&what.network, o->network, &err) < 0)
        opt_usage_error(&prof_program, "--network: %s", err.text);
    prof_list(o->batch, "--parallel", 1, batch, &what.n_batches);
    opt_sizes(&prof_program, &sizes, o->ranks, ranks, &what.n_ranks);
    return what;
}

int prof_ranks(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    size_t batch[PROF_MAX_LIST], ranks[PROF_MAX_LIST];
    struct prof_options o = *options;
    const struct ranks_case what = read_case(&o, batch, ranks);
    o.context = what.depth + what.n_gen;
    int rc = prof_open(&prof, &o, true, err);
    if (rc == 0 && prof.n_contenders > 1)
        opt_usage_error(&prof_program, "--kv: ranks measures under one policy, \"%s\" names %zu", o.kv,
                        prof.n_contenders);
    if (rc == 0)
        rc = report_ranks(&prof.report, prof.model, &prof.contender[0].spec, &what, prof.rows, err);
    if (rc == 0)
        rc = prof_print(&prof, COLUMNS, err);
    prof_close(&prof);
    return rc;
}
