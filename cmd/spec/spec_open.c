/* Opens the draft model, its session and the drafter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "spec/speccmd.h"

bool spec_uses_model(const struct spec_cli *o)
{
    return o->draft || !(o->lookup || o->suffix || o->recycle);
}

/* A draft head reads the target's hidden states, and may use its embedding and LM head. */
static int attach_head(struct spec_run *run, struct err *err)
{
    if (run->gen.ranks && run->gen.parallelism != DATA_PARALLEL)
        return err_set(err,
                       "%s: a draft head needs all of the target model in one process: use "
                       "--parallelism data, or draft with --lookup",
                       run->draft->path);
    return draft_head_attach(run->draft, run->gen.model, run->tapped, err);
}

int spec_open_draft(struct spec_run *run, struct err *err)
{
    const struct spec_cli *o = run->cli;
    char path[16384];
    if (!spec_uses_model(o))
        return 0;
    if (!o->draft && cli_default_model("grimm-draft", "-d", path, sizeof path, err) < 0)
        return -1;
    if (draft_open(&run->draft, o->draft ? o->draft : path, run->gen.model, err) < 0 ||
        gen_use_pages(&run->gen, run->draft, err) < 0 ||
        (o->gen.mlock && model_lock(run->draft, err) < 0))
        return draft_model_error(-1, err);
    if (config_is_draft_head(&run->draft->config))
        return attach_head(run, err);
    return draft_model_check(run->gen.model, run->draft, err);
}

/* Sizes forward passes to include draft tokens, and sets the cache layout for --ragged. */
static int adjust_session(struct gen *gen, struct session_options *s, struct err *err)
{
    struct spec_run *run = (struct spec_run *)gen;
    const struct spec_cli *o = run->cli;
    run->options.simulate = o->simulate;
    run->options.always = o->always;
    run->options.dynamic = o->dynamic;
    run->options.record = o->record;
    if (spec_set_length(run, s, err) < 0 || spec_read_acceptance(run, err) < 0)
        return -1;
    const size_t most = size_max(spec_max_draft(&run->options), o->tree_auto ? AUTO_TREE : 0);
    if (!size_mul(s->batch, most + 1, &s->rows))
        return err_set(err, "%zu sequences of %zu draft tokens are too many", s->batch, most);
    s->split = o->ragged == RAGGED_SPLIT;
    s->kv.lockstep = o->ragged == RAGGED_PAD;
    if (s->kv.lockstep && !kv_spec_can_lockstep(&s->kv))
        return err_set(err,
                       "--ragged pad needs a KV cache that is one tensor per layer, unlike --kv %s",
                       kv_spec_name(&s->kv));
    return 0;
}

static int open_draft_session(struct spec_run *run, struct err *err)
{
    const struct session_options *target = session_options(run->gen.session);
    const struct spec_cli *o = run->cli;
    const size_t limit = run->draft->config.context;
    if (o->draft_context > limit)
        return err_set(err,
                       "-cd %zu exceeds the draft model's context of %zu tokens: give -cd %zu or less",
                       o->draft_context, limit, limit);
    const size_t context = spec_draft_context(run, target), most = spec_max_draft(&run->options);
    if (most > 0 && most + DRAFT_WINDOW_REST > context)
        return err_set(err, "%zu draft tokens do not fit the draft model's window of %zu tokens", most,
                       context);
    struct session_options s =
        draft_session_options(target, run->draft, context, most, run->gen.options->precision != NULL);
    if (o->draft_kv) {
        if (kv_spec_parse(&s.kv, o->draft_kv, err) < 0)
            return -1;
        s.kv.alloc = target->kv.alloc;
        s.kv.attend_valid = target->kv.attend_valid;
    }
    run->draft_tuner = profile_tuner(&run->gen.tuned.profile, s.attn->name, run->draft->config.heads);
    s.kv.tuner = target->kv.tuner ? &run->draft_tuner.tuner : NULL;
    return draft_session_open(&run->draft_session, run->draft, &s, err);
}

static int open_suffix(const struct spec_run *run, struct drafter **drafter, struct err *err)
{
    const struct spec_cli *o = run->cli;
    struct ids corpus = {0};
    int rc = o->corpus ? spec_read_corpus(run->gen.model, o->corpus, &corpus, err) : 0;
    if (rc == 0)
        rc =
            draft_suffix_open(drafter, session_options(run->gen.session)->batch, o->pool, &corpus, err);
    ids_release(&corpus);
    return rc;
}

static int open_drafter(struct spec_run *run, struct err *err)
{
    const struct spec_cli *o = run->cli;
    struct drafter **drafter = &run->drafter, *model = NULL;
    int rc = 0;
    if (o->lookup)
        rc = draft_lookup_open(drafter, DEFAULT_LOOKUP_MAX, DEFAULT_LOOKUP_MIN, o->oldest, err);
    else if (o->suffix)
        rc = open_suffix(run, drafter, err);
    else if (o->recycle)
        rc = draft_recycle_open(drafter, run->gen.model->config.vocab, err);
    if (rc < 0 || !spec_uses_model(o))
        return rc;
    if (open_draft_session(run, err) < 0 ||
        draft_session_drafter(&model, run->draft_session, run->gen.session, run->tapped, err) < 0)
        return -1;
    return draft_add_fallback(drafter, model, session_options(run->gen.session)->batch, err);
}

/* --tree auto: times forward passes, chooses chain, tree or no drafting, and prints the reason. */
static int autotune(struct spec_run *run, struct err *err)
{
    struct session *session = run->gen.session;
    struct spec_options *o = &run->options;
    struct row_times target, draft = {0};
    struct draft_choice c;
    const size_t window = run->draft ? session_options(run->draft_session)->context : SIZE_MAX;
    const size_t space = size_min(session_options(session)->context, batch_space(session));
    const size_t most =
        size_min(size_min(AUTO_TREE, space - 1), window - size_min(window, DRAFT_WINDOW_REST));
    if (most == 0) {
        run->off = true;
        if (!run->gen.options->quiet)
            fprintf(stderr,
                    "bmc-spec: --tree auto: no drafting: the context has no room for draft tokens\n");
        return 0;
    }
    if (row_times_measure(&target, session, most + 1, true, err) < 0 ||
        (run->draft &&
         draft_model_error(row_times_measure(&draft, run->draft_session, most, true, err), err) < 0))
        return -1;
    draft.parallel = run->draft && run->draft->config.mask_token;
    if (draft_autotune(&c, &target, run->draft ? &draft : NULL, o->accept,
                       size_min(o->ranks, run->drafter->ranks), o->length.limit, most, err) < 0)
        return -1;
    run->off = c.draft_tokens == 0;
    o->tree = c.tree ? c.draft_tokens : 0;
    o->tree_levels = c.levels;
    if (!c.tree)
        o->length.limit = o->length.now = c.draft_tokens;
    if (!run->gen.options->quiet)
        fprintf(stderr,
                "bmc-spec: --tree auto: %s%.0zu: %.2f tokens in %.2f ms expected, 1 in %.2f ms "
                "without; the best chain, of %zu, gains %.2fx, the best tree, of %zu, %.2fx\n",
                run->off ? "no drafting"
                : c.tree ? "a tree of "
                         : "a chain of ",
                c.draft_tokens, c.tokens, c.ms, c.plain_ms, c.chain, c.chain_gain, c.nodes,
                c.tree_gain);
    return 0;
}

static int check_dynamic(const struct spec_run *run, struct err *err)
{
    if (!run->options.dynamic || run->drafter->dynamic)
        return 0;
    return err_set(err, "--dynamic needs a draft head (EAGLE), not the drafter \"%s\": leave it out",
                   run->drafter->name);
}

static int opened(struct gen *gen, struct err *err)
{
    struct spec_run *run = (struct spec_run *)gen;
    if (open_drafter(run, err) < 0 || check_dynamic(run, err) < 0 ||
        (run->cli->tree_auto && !run->cli->record && autotune(run, err) < 0))
        return -1;
    if (run->off)
        return 0;
    if (spec_open(&run->spec, gen->session, run->drafter, &run->options, err) < 0)
        return -1;
    gen->strategy = spec_strategy(run->spec);
    return 0;
}

void spec_close_run(struct spec_run *run)
{
    spec_close(run->spec);
    drafter_close(run->drafter);
    session_close(run->draft_session);
    model_close(run->draft);
    gen_close(&run->gen);
}

const struct gen_hooks spec_hooks = {adjust_session, opened, spec_print_stats, spec_stats_fields};
