/* Draft lengths and tree sizes. */
#include <stdio.h>
#include <string.h>

#include "spec/speccmd.h"

enum { DEFAULT_TREE = 26 };

size_t spec_batch_knee(const struct spec_run *run, const struct session_options *s, const char **from)
{
    const size_t given = run->cli->batch_knee, tuned = tuned_batch_knee(&run->gen.tuned);
    if (from)
        *from = given ? "option" : tuned ? "profile" : "default";
    return given ? given : tuned ? tuned : draft_default_knee(s->kernels, s->precision);
}

/* True if a shape of the tuned profile can be used in this run, and no option forbids it. */
static bool can_use(const struct spec_run *run, const struct session_options *s,
                    const struct spec_shape *shape)
{
    const struct spec_cli *o = run->cli;
    const size_t window = spec_draft_context(run, s);
    const bool limited = shape->draft_tokens > run->options.length.limit;
    return shape->draft_tokens && !o->draft_context &&
           shape->draft_tokens + DRAFT_WINDOW_REST < window &&
           !(shape->tree && (o->lookup || o->batch_knee || limited));
}

/* Takes T and the shape from the tuned profile, if it has them for these models. Under tensor and
 * pipeline parallelism all processes must choose the same T. */
static void take_tuned(struct spec_run *run, const struct session_options *s)
{
    struct tuned_spec like = {.type = s->kv_type, .batch = s->batch, .N = s->context};
    struct draft_length *length = &run->options.length;
    snprintf(like.attn, sizeof like.attn, "%s", s->attn->name);
    const struct tuned_spec *tuned =
        tuned_speculation(&run->gen.tuned, run->draft ? &run->draft->file.model_id : NULL, like);
    if (!tuned || !can_use(run, s, &tuned->shape) ||
        (run->gen.ranks && run->gen.parallelism != DATA_PARALLEL))
        return;
    tuned_use_speculation(&run->gen.tuned, tuned);
    length->now = size_min(tuned->shape.draft_tokens, length->limit);
    if (!tuned->shape.tree)
        return;
    run->options.tree = tuned->shape.draft_tokens;
    run->options.tree_levels = tuned->shape.levels;
    length->measured = false;
}

size_t spec_draft_context(const struct spec_run *run, const struct session_options *s)
{
    const size_t given = run->cli->draft_context;
    return !run->draft ? s->context : given ? given : size_min(s->context, run->draft->config.context);
}

int spec_set_length(struct spec_run *run, const struct session_options *s, struct err *err)
{
    const struct spec_cli *o = run->cli;
    const bool tree = o->tree_nodes || (o->recycle && o->k_auto && !o->tree_auto);
    const char *from;
    const size_t batch_knee = spec_batch_knee(run, s, &from);
    run->options.length =
        draft_length_choose(&(struct draft_length_params){.fixed = !o->k_auto,
                                                          .bass = o->bass,
                                                          .tree = tree || o->record,
                                                          .k = o->k,
                                                          .start = o->start,
                                                          .limit = o->limit,
                                                          .increment = o->step,
                                                          .modulus = o->modulus,
                                                          .batch = s->batch,
                                                          .knee = batch_knee,
                                                          .knee_measured = strcmp(from, "default") != 0,
                                                          .knee_fixed = o->batch_knee != 0,
                                                          .context = spec_draft_context(run, s)});
    if (tree)
        run->options.tree =
            o->tree_nodes ? o->tree_nodes : size_min(DEFAULT_TREE, size_max(batch_knee, 2) - 1);
    if (run->options.length.measured && !o->tree)
        take_tuned(run, s);
    const size_t most = spec_max_draft(&run->options);
    if ((!o->k_auto || o->tree_nodes) && most >= s->context)
        return err_set(
            err, "%zu draft tokens do not fit the context of %zu tokens: use fewer, or a larger -c",
            most, s->context);
    return 0;
}
