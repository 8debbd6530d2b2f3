/* The public API: drafters of a context. */
#include "api/api_draft.h"

#include "base/text_util.h"
#include "decode/spec/acceptance.h"
#include "model/draft_head.h"

#define DRAFTERS "lookup|suffix|recycle|none" /* as enum drafter_kind */

/* Sets *kind to the drafter without a model: the given one, by default the one that bmc-gen has. */
static int find_drafter(const struct bmc_options *o, const struct model *target,
                        const struct session_options *s, enum drafter_kind *kind, struct err *err)
{
    const bool off = o->draft || o->beams || spec_off_by_default(target, s);
    const size_t index = o->drafter ? text_choice(DRAFTERS, o->drafter)
                         : off      ? DRAFTER_NONE
                                    : DRAFTER_SUFFIX;
    *kind = (enum drafter_kind)size_min(index, DRAFTER_NONE);
    if (index == SIZE_MAX)
        return text_no_choice("drafter", o->drafter, DRAFTERS, err);
    if (*kind == DRAFTER_RECYCLE && o->draft)
        return err_set(err, "the drafter \"recycle\" cannot be combined with a draft model");
    if (*kind == DRAFTER_LOOKUP && o->draft_tree)
        return err_set(err,
                       "the drafter \"lookup\" drafts one token for each position: there is no tree");
    if (o->draft_max && o->draft_tree)
        return err_set(err, "draft_max is the length of chains, draft_tree the size of trees: set one");
    return 0;
}

static int open_model(struct api_draft *d, const struct bmc_options *o, const struct bmc_model *m,
                      struct err *err)
{
    const struct model *target = m->model;
    if (!o->draft)
        return 0;
    if (draft_open(&d->model, o->draft, o->draft, target, err) < 0 ||
        api_place_model(m, d->model, err) < 0)
        return draft_model_error(-1, err);
    if (config_is_draft_head(&d->model->config) && o->hidden_states)
        return err_set(err, "a draft head reads hidden states: the option hidden_states excludes it");
    return draft_attach(d->model, target, d->tapped, err);
}

/* Draft lengths as those of bmc-spec without a tuned profile. */
static int set_lengths(struct api_draft *d, const struct bmc_options *o, enum drafter_kind kind,
                       struct session_options *s, struct err *err)
{
    const size_t window = size_min(s->context, d->model ? d->model->config.context : SIZE_MAX);
    const size_t fits = window - size_min(window, DRAFT_WINDOW_REST);
    const size_t given = size_max(o->draft_max, o->draft_tree);
    if (given >= TREE_NODES || given > fits)
        return err_set(err, "%zu draft tokens: at most %zu fit", given, size_min(fits, TREE_NODES - 1));
    d->options = (struct spec_options){
        .length = draft_length_choose(&(struct draft_length_params){
            .fixed = o->draft_max != 0,
            .tree = o->draft_tree != 0,
            .planned = kind == DRAFTER_SUFFIX && !o->draft && !o->draft_always,
            .k = o->draft_max,
            .start = DRAFT_LENGTH_START,
            .limit = DRAFT_LENGTH_LIMIT,
            .batch = s->batch,
            .knee = draft_default_knee(s->cpu.kernels, s->cpu.precision),
            .context = window}),
        .tree = o->draft_tree,
        .simulate = -1,
        .always = o->draft_always,
    };
    d->options.ranks = acceptance_typical(d->options.accept);
    s->rows = spec_max_rows(&d->options, s->batch);
    return s->rows < SIZE_MAX ? 0
                              : err_set(err, "%zu sequences of %zu draft tokens are too many", s->batch,
                                        spec_max_draft(&d->options));
}

int api_draft_open(struct api_draft **draft, const struct bmc_options *o,
                   const struct bmc_model *target, struct session_options *s, struct err *err)
{
    enum drafter_kind kind;
    *draft = NULL;
    if (find_drafter(o, target->model, s, &kind, err) < 0)
        return -1;
    if (!o->draft && kind == DRAFTER_NONE)
        return 0;
    struct api_draft *d = mem_zalloc(1, sizeof *d);
    if (!d)
        return err_no_memory(err, "a drafter");
    if (open_model(d, o, target, err) < 0 || set_lengths(d, o, kind, s, err) < 0) {
        api_draft_close(d);
        return -1;
    }
    *draft = d;
    return 0;
}

static int open_session(struct api_draft *d, const struct bmc_options *o, const struct session *target,
                        struct err *err)
{
    const struct session_options *given = session_options(target);
    struct session_options s =
        draft_session_options(given, d->model, size_min(given->context, d->model->config.context),
                              spec_max_draft(&d->options), o->precision != NULL);
    return draft_session_open(&d->session, d->model, &s, err);
}

int api_draft_begin(struct api_draft *d, const struct bmc_options *o, struct session *target,
                    struct err *err)
{
    struct drafter_plan plan = {.layer = d->tapped};
    if (find_drafter(o, session_model(target), session_options(target), &plan.kind, err) < 0 ||
        (d->model && open_session(d, o, target, err) < 0))
        return -1;
    plan.session = d->session;
    if (drafter_open(&d->drafter, &plan, target, err) < 0)
        return -1;
    return spec_open(&d->spec, target, d->drafter, &d->options, err);
}

void api_draft_close(struct api_draft *d)
{
    if (!d)
        return;
    spec_close(d->spec);
    drafter_close(d->drafter);
    session_close(d->session);
    model_close(d->model);
    free(d);
}
