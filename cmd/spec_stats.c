/* Statistics of a bmc-spec run, beside those of bmc-gen. */
#include <stdio.h>

#include "speccmd.h"

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static const char *shape_name(const struct spec_run *run)
{
    if (run->off || spec_most(&run->options) == 0)
        return "off";
    return run->options.record ? "fan" : run->options.tree ? "tree" : "chain";
}

void spec_print_stats(const struct gen *gen)
{
    const struct spec_run *run = (const struct spec_run *)gen;
    const struct spec_stats *s = spec_stats(run->spec);
    fprintf(stderr,
            "speculation      = %s, %s of at most %zu: %zu of %zu candidates accepted, %.3f tokens per "
            "step, "
            "%zu pause%s%s\n",
            run->drafter->name, shape_name(run), spec_most(&run->options), s->accepted, s->drafted,
            ratio((double)s->tokens, (double)s->steps), s->pauses, s->pauses == 1 ? "" : "s",
            run->options.simulate >= 0 ? "; acceptance is SIMULATED, the text means nothing" : "");
    fprintf(stderr,
            "                   draft %.2f ms, verify %.2f ms (attention %.2f ms), compact %.2f ms; "
            "per token: first "
            "sequence %.3f ms, "
            "last %.3f ms, all %.3f ms\n",
            s->draft_ms, s->verify_ms, s->attention_ms, s->compact_ms, s->first_ptl_ms, s->last_ptl_ms,
            ratio(s->sum_ptl_ms, (double)s->ended));
}

/* The list, or NULL when a push to it failed. */
static json_t *whole_or_null(json_t *list, int rc)
{
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* Of the steps that had a candidate at depth i + 1, the share in which it was accepted. NULL when memory is short. */
static json_t *acceptance(const struct spec_stats *s)
{
    struct err ignored;
    json_t *list = json_array();
    int rc = 0;
    for (size_t d = 1; rc == 0 && d < TREE_NODES && s->offered_at[d]; d++)
        rc = json_push(list, json_real(ratio((double)s->accepted_at[d], (double)s->offered_at[d])),
                       &ignored);
    return whole_or_null(list, rc);
}

static json_t *history(const struct spec_stats *s)
{
    struct err ignored;
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->n_history; i++)
        rc = json_push(list, json_integer(s->history[i]), &ignored);
    return whole_or_null(list, rc);
}

int spec_stats_fields(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                      struct err *err)
{
    static const char *const ragged[] = {"one", "pad", "split"};
    const struct spec_run *run = (const struct spec_run *)gen;
    const struct spec_stats *s = spec_stats(run->spec);
    const char *free_rows_from;
    const size_t free_rows = spec_free_rows(run, &run->gen.session.options, &free_rows_from);
    (void)stats;
    json_t *fields = json_pack(
        "{s:s, s:s, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:f, "
        "s:I, "
        "s:o, "
        "s:o}",
        "drafter", run->drafter->name, "speculation", shape_name(run), "k",
        (json_int_t)spec_most(&run->options), "free_rows", (json_int_t)free_rows, "free_rows_from",
        free_rows_from, "ragged", ragged[run->cli->ragged], "steps", (json_int_t)s->steps, "drafted",
        (json_int_t)s->drafted, "accepted", (json_int_t)s->accepted, "tokens_per_step",
        ratio((double)s->tokens, (double)s->steps), "acceptance_by_position", acceptance(s), "draft_ms",
        s->draft_ms, "verify_ms", s->verify_ms, "attention_ms", s->attention_ms, "compact_ms",
        s->compact_ms, "first_ptl_ms", s->first_ptl_ms, "last_ptl_ms", s->last_ptl_ms, "all_ptl_ms",
        ratio(s->sum_ptl_ms, (double)s->ended), "pauses", (json_int_t)s->pauses, "simulated_acceptance",
        run->options.simulate >= 0 ? json_real(run->options.simulate) : json_null(),
        "draft_length_history", history(s));
    if (!fields || json_object_update(object, fields) < 0) {
        json_decref(fields);
        return err_set(err, "out of memory for statistics");
    }
    json_decref(fields);
    return 0;
}
