/* Speculative decoding without a draft model, the default of bmc-gen, and what bmc-gen and bmc-spec report of drafts. */
#include "gen/gen.h"
#include "gen/gen_ranks.h"

/* Why the run drafts nothing, or NULL. */
static const char *why_off(const struct gen *gen, const struct session_options *s)
{
    const struct gen_options *o = gen->options;
    return o->no_spec                                               ? "--no-spec"
           : o->beams                                               ? "beam search"
           : o->embed || o->rerank || o->score || o->verify_receipt ? "nothing is generated"
           : gen->ranks && gen->parallelism == PIPELINE_PARALLEL    ? "pipeline parallelism"
                                                                 : spec_off_by_default(gen->model, s);
}

int gen_spec_session(struct gen *gen, struct session_options *s, struct err *err)
{
    if (gen->hooks)
        return gen->hooks->session(gen, s, err);
    gen->drafting_off = why_off(gen, s);
    if (gen->drafting_off)
        return 0;
    gen->drafting = spec_default_options(s->context);
    s->rows = spec_max_rows(&gen->drafting, s->batch);
    return 0;
}

int gen_spec_open(struct gen *gen, struct err *err)
{
    const struct drafter_plan plan = {.kind = DRAFTER_SUFFIX};
    if (gen->hooks && gen->hooks->opened(gen, err) < 0)
        return -1;
    if (gen->drafting_off)
        return 0;
    if ((!gen->drafter && drafter_open(&gen->drafter, &plan, gen->session, err) < 0) ||
        spec_open(&gen->spec, gen->session, gen->drafter, &gen->drafting, err) < 0)
        return -1;
    gen->strategy = spec_strategy(gen->spec);
    return 0;
}

void gen_spec_close(struct gen *gen)
{
    spec_close(gen->spec);
    drafter_close(gen->drafter);
}

/* ---- statistics ---- */

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static const char *shape_name(const struct gen *gen)
{
    if (!gen->spec || spec_max_draft(&gen->drafting) == 0)
        return "off";
    return gen->drafting.record ? "fan" : gen->drafting.tree ? "tree" : "chain";
}

void gen_spec_print(const struct gen *gen)
{
    const struct spec_stats *s = spec_stats(gen->spec);
    if (gen->options->score)
        return;
    if (!gen->drafter)
        fprintf(stderr, "speculation      = off: %s\n", gen->drafting_off);
    else
        fprintf(
            stderr,
            "speculation      = %s, %s of at most %zu: %zu of %zu draft tokens accepted, mean accepted "
            "length %.3f, %zu pause%s%s%s\n",
            gen->drafter->name, shape_name(gen), spec_max_draft(&gen->drafting), s->accepted,
            s->drafted, ratio((double)s->tokens, (double)s->steps), s->pauses,
            s->pauses == 1 ? "" : "s", gen->counts ? " (rank 0 only)" : "",
            gen->drafting.simulate >= 0 ? "; acceptance is SIMULATED, the text is meaningless" : "");
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

int gen_spec_fields(json_t *object, const struct gen *gen, struct err *err)
{
    const struct spec_stats *s = spec_stats(gen->spec);
    AUTO(json_auto)
    json_t *fields = json_pack("{s:s?, s:s, s:I, s:I, s:I, s:f, s:o, s:f, s:f, s:f, s:I}", "drafter",
                               gen->drafter ? gen->drafter->name : NULL, "speculation", shape_name(gen),
                               "steps", (json_int_t)s->steps, "drafted", (json_int_t)s->drafted,
                               "accepted", (json_int_t)s->accepted, "tokens_per_step",
                               ratio((double)s->tokens, (double)s->steps), "acceptance_by_position",
                               acceptance(s), "draft_ms", s->draft_ms, "verify_ms", s->verify_ms,
                               "compact_ms", s->compact_ms, "pauses", (json_int_t)s->pauses);
    return fields && json_object_update(object, fields) == 0 ? 0 : err_no_memory(err, "statistics");
}
