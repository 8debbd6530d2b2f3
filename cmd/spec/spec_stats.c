/* Statistics of bmc-spec, in addition to those of bmc-gen. */
#include <stdio.h>

#include "spec/speccmd.h"

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static const char *shape_name(const struct spec_run *run)
{
    if (run->off || spec_max_draft(&run->options) == 0)
        return "off";
    return run->options.record ? "fan" : run->options.tree ? "tree" : "chain";
}

void spec_print_stats(const struct gen *gen)
{
    const struct spec_run *run = (const struct spec_run *)gen;
    const struct spec_stats *s = spec_stats(run->spec);
    fprintf(stderr,
            "speculation      = %s, %s of at most %zu: %zu of %zu draft tokens accepted, mean accepted "
            "length %.3f, %zu pause%s%s\n",
            run->drafter->name, shape_name(run), spec_max_draft(&run->options), s->accepted, s->drafted,
            ratio((double)s->tokens, (double)s->steps), s->pauses, s->pauses == 1 ? "" : "s",
            run->options.simulate >= 0 ? "; acceptance is SIMULATED, the text is meaningless" : "");
    fprintf(stderr,
            "                   draft %.2f ms, verify %.2f ms (attention %.2f ms), compact %.2f ms; "
            "per token: first sequence %.3f ms, last %.3f ms, all %.3f ms\n",
            s->draft_ms, s->verify_ms, s->attention_ms, s->compact_ms, s->first_ptl_ms, s->last_ptl_ms,
            ratio(s->sum_ptl_ms, (double)s->ended));
}

/* A JSON array whose element i is the acceptance rate of draft tokens at depth i + 1, among forward
 * passes that verified tokens at that depth. NULL: out of memory. */
static json_t *acceptance(const struct spec_stats *s)
{
    struct err ignored;
    json_t *list = json_array();
    int rc = 0;
    for (size_t d = 1; rc == 0 && d < TREE_NODES && s->offered_at[d]; d++)
        rc = json_push(list, json_real(ratio((double)s->accepted_at[d], (double)s->offered_at[d])),
                       &ignored);
    return json_or_null(list, rc, &ignored);
}

static json_t *history(const struct spec_stats *s)
{
    struct err ignored;
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_history; i++)
        rc = json_push(list, json_integer(s->history[i]), &ignored);
    return json_or_null(list, rc, &ignored);
}

int spec_stats_fields(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                      struct err *err)
{
    static const char *const ragged[] = {"one", "pad", "split"};
    const struct spec_run *run = (const struct spec_run *)gen;
    const struct spec_stats *s = spec_stats(run->spec);
    const char *batch_knee_from;
    const size_t batch_knee = spec_batch_knee(run, session_options(run->gen.session), &batch_knee_from);
    (void)stats;
    json_t *fields = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:I, s:o, s:o}",
        "drafter", run->drafter->name, "speculation", shape_name(run), "k",
        (json_int_t)spec_max_draft(&run->options), "batch_knee", (json_int_t)batch_knee,
        "batch_knee_from", batch_knee_from, "ragged", ragged[run->cli->ragged], "steps",
        (json_int_t)s->steps, "drafted", (json_int_t)s->drafted, "accepted", (json_int_t)s->accepted,
        "tokens_per_step", ratio((double)s->tokens, (double)s->steps), "acceptance_by_position",
        acceptance(s), "draft_ms", s->draft_ms, "verify_ms", s->verify_ms, "attention_ms",
        s->attention_ms, "compact_ms", s->compact_ms, "first_ptl_ms", s->first_ptl_ms, "last_ptl_ms",
        s->last_ptl_ms, "all_ptl_ms", ratio(s->sum_ptl_ms, (double)s->ended), "pauses",
        (json_int_t)s->pauses, "simulated_acceptance",
        run->options.simulate >= 0 ? json_real(run->options.simulate) : json_null(),
        "draft_length_history", history(s));
    if (!fields || json_object_update(object, fields) < 0) {
        json_decref(fields);
        return err_no_memory(err, "statistics");
    }
    json_decref(fields);
    return 0;
}
