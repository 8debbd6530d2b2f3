/* What drafting adds to a run: the draft model, draft lengths, acceptance rates, the drafter, statistics. */
#include "acceptance_file.h"
#include "base/file.h"
#include "cli.h"
#include "opt/opt_files.h"
#include "spec/speccmd.h"
#include "tuned.h"
#include "userdir.h"
#include "open_model.h"

bool spec_uses_model(const struct spec_cli *o)
{
    return o->draft || !(o->lookup || o->suffix || o->recycle);
}

static int open_draft(struct gen *gen, struct err *err)
{
    struct spec_run *run = (struct spec_run *)gen;
    const struct spec_cli *o = run->cli;
    if (!spec_uses_model(o))
        return 0;
    if (cli_open_draft(run->gen.program, o->draft, "grimm-draft", run->gen.model, &run->draft, err) <
            0 ||
        gen_use_pages(&run->gen, run->draft, err) < 0 ||
        (o->gen.mlock && model_lock(run->draft, err) < 0))
        return draft_model_error(-1, err);
    gen->draft = run->draft;
    if (config_is_draft_head(&run->draft->config) && gen->ranks && gen->parallelism != DATA_PARALLEL)
        return err_set(err,
                       "%s: a draft head needs all of the target model in one process: use "
                       "--parallelism data, or draft with --lookup",
                       run->draft->name);
    if (!config_is_draft_head(&run->draft->config) && !gen_is_silent(gen) &&
        draft_model_check(gen->model, run->draft, err) < 0) {
        if (err->code == ERR_NO_MEMORY)
            return -1;
        cli_say(stderr, "%s: %s: drafts pass through text\n", gen->program->name, err->text);
    }
    return draft_attach(run->draft, gen->model, run->tapped, err);
}

/* ---- draft lengths and tree sizes ---- */

enum { DEFAULT_TREE = 26 };

/* The batch knee: tokens that a forward pass verifies at no extra latency. *from (may be NULL)
 * names the origin: option, profile or default. */
static size_t find_batch_knee(const struct spec_run *run, const struct session_options *s,
                              const char **from)
{
    const size_t given = run->cli->batch_knee, tuned = tuned_batch_knee(&run->gen.tuned);
    if (from)
        *from = given ? "option" : tuned ? "profile" : "default";
    return given ? given : tuned ? tuned : draft_default_knee(s->cpu.kernels, s->cpu.precision);
}

/* Context of the draft model, or of the target if there is none. */
static size_t draft_context(const struct spec_run *run, const struct session_options *s)
{
    const size_t given = run->cli->draft_context;
    return !run->draft ? s->context : given ? given : size_min(s->context, run->draft->config.context);
}

/* True if a shape of the tuned profile can be used in this run, and no option forbids it. */
static bool can_use(const struct spec_run *run, const struct session_options *s,
                    const struct spec_shape *shape)
{
    const struct spec_cli *o = run->cli;
    const size_t window = draft_context(run, s);
    const bool limited = shape->draft_tokens > run->gen.drafting.length.limit;
    return shape->draft_tokens && !o->draft_context &&
           shape->draft_tokens + DRAFT_WINDOW_REST < window &&
           !(shape->tree && (o->lookup || o->batch_knee || limited));
}

/* Takes T and the shape from the tuned profile, if it has them for these models. Under tensor and
 * pipeline parallelism all processes must choose the same T. */
static void take_tuned(struct spec_run *run, const struct session_options *s)
{
    struct tuned_spec like = {.type = s->kv_types.all.k, .batch = s->batch, .N = s->context};
    struct draft_length *length = &run->gen.drafting.length;
    snprintf(like.attn, sizeof like.attn, "%s", tune_attn_name(s->backend, s->cpu.attn));
    const struct tuned_spec *tuned =
        tuned_speculation(&run->gen.tuned, run->draft ? &run->draft->file.model_id : NULL, like);
    if (!tuned || !can_use(run, s, &tuned->shape) ||
        (run->gen.ranks && run->gen.parallelism != DATA_PARALLEL))
        return;
    tuned_use_speculation(&run->gen.tuned, tuned);
    length->now = size_min(tuned->shape.draft_tokens, length->limit);
    if (!tuned->shape.tree)
        return;
    run->gen.drafting.tree = tuned->shape.draft_tokens;
    run->gen.drafting.tree_levels = tuned->shape.levels;
    length->measured = false;
}

static int set_length(struct spec_run *run, const struct session_options *s, struct err *err)
{
    const struct spec_cli *o = run->cli;
    const bool tree = o->tree_nodes || (o->recycle && o->k_auto && !o->tree_auto);
    const char *from;
    const size_t batch_knee = find_batch_knee(run, s, &from);
    run->gen.drafting.length = draft_length_choose(&(struct draft_length_params){
        .fixed = !o->k_auto,
        .bass = o->bass,
        .tree = tree || o->record,
        .planned = o->suffix && !spec_uses_model(o) && !o->always && o->simulate < 0,
        .k = o->k,
        .start = o->start,
        .limit = o->limit,
        .increment = o->step,
        .modulus = o->modulus,
        .batch = s->batch,
        .knee = batch_knee,
        .knee_measured = strcmp(from, "default") != 0,
        .knee_fixed = o->batch_knee != 0,
        .context = draft_context(run, s)});
    if (tree)
        run->gen.drafting.tree =
            o->tree_nodes ? o->tree_nodes : size_min(DEFAULT_TREE, size_max(batch_knee, 2) - 1);
    if (run->gen.drafting.length.measured && !o->tree)
        take_tuned(run, s);
    const size_t most = spec_max_draft(&run->gen.drafting);
    if ((!o->k_auto || o->tree_nodes) && most >= s->context)
        return err_set(
            err, "%zu draft tokens do not fit the context of %zu tokens: use fewer, or a larger -c",
            most, s->context);
    return 0;
}

/* ---- measured acceptance rates: a file for each pair of models and mode (greedy or sampling) ---- */

static struct acceptance_pair pair_of(const struct spec_run *run)
{
    const struct spec_cli *o = run->cli;
    return (struct acceptance_pair){
        .target = &run->gen.model->file.model_id,
        .draft = run->draft ? &run->draft->file.model_id : NULL,
        .drafter = o->recycle  ? "recycle"
                   : o->suffix ? "suffix"
                               : "lookup",
        .greedy = run->gen.serve.options.sampling.temp <= 0,
    };
}

static int read_acceptance(struct spec_run *run, struct err *err)
{
    const char *given = run->cli->acceptance;
    const struct acceptance_pair pair = pair_of(run);
    struct acceptance a;
    if (given)
        snprintf(run->acceptance, sizeof run->acceptance, "%s", given);
    else if (!acceptance_path(&pair, run->acceptance, sizeof run->acceptance))
        run->acceptance[0] = 0;
    run->gen.drafting.ranks = acceptance_typical(run->gen.drafting.accept);
    if (run->cli->record && run->gen.ranks && run->gen.parallelism == DATA_PARALLEL)
        return err_set(err, "--record-acceptance needs a single process, not --parallelism data");
    if (run->cli->record) {
        if (!run->acceptance[0])
            return err_set(err, "no folder for the acceptance file, as $XDG_CONFIG_HOME or $HOME: give "
                                "--acceptance FILE");
        if (!given)
            file_make_parents(run->acceptance);
        return opt_files_output(run->gen.program, "acceptance", run->acceptance, OPT_WRITES_ACCEPTANCE,
                                err);
    }
    const bool wanted =
        (run->cli->tree_nodes || run->cli->tree_auto || run->cli->recycle || run->gen.drafting.tree);
    if (!wanted || !run->acceptance[0] || (!given && !file_exists(run->acceptance)))
        return 0;
    if (acceptance_read_pair(&a, &pair, run->acceptance, err) < 0)
        return -1;
    run->gen.drafting.recorded = true;
    run->gen.drafting.ranks = a.ranks;
    memcpy(run->gen.drafting.accept, a.share, a.ranks * sizeof *a.share);
    return 0;
}

int spec_write_acceptance(struct spec_run *run, struct err *err)
{
    const struct spec_stats *s = spec_stats(run->gen.spec);
    const struct acceptance_pair pair = pair_of(run);
    struct buf text = {0};
    char target[2 * HASH_BYTES + 1], draft[2 * HASH_BYTES + 1];
    if (s->record_steps == 0)
        return err_set(err, "nothing was drafted: there is no acceptance to record");
    acceptance_ids(&pair, target, draft);
    size_t ranks = TREE_RANKS;
    while (ranks > 1 && !s->record[ranks - 1])
        ranks--;
    int rc = buf_addf(&text, err, "target %s\ndraft %s\nmode %s\nsteps %zu\naccept", target, draft,
                      acceptance_mode(&pair), s->record_steps);
    for (size_t i = 0; i < ranks && rc == 0; i++)
        rc = buf_addf(&text, err, " %.6f", (double)s->record[i] / (double)s->record_steps);
    if (rc == 0)
        rc = buf_addf(&text, err, "\n");
    if (rc == 0)
        rc = outfile_save(run->acceptance, text.data, text.len, err);
    buf_release(&text);
    if (rc == 0 && !run->gen.options->quiet)
        cli_say(stderr, "acceptance       = written to %s\n", run->acceptance);
    return rc;
}

/* ---- the session and the drafter ---- */

/* Sizes forward passes to include draft tokens, and sets the cache layout for --ragged. */
static int adjust_session(struct gen *gen, struct session_options *s, struct err *err)
{
    struct spec_run *run = (struct spec_run *)gen;
    const struct spec_cli *o = run->cli;
    run->gen.drafting.simulate = o->simulate;
    run->gen.drafting.always = o->always;
    run->gen.drafting.dynamic = o->dynamic;
    run->gen.drafting.record = o->record;
    run->gen.drafting.rule = o->sampling == SPEC_REJECTION ? rejection_verify : NULL;
    if (set_length(run, s, err) < 0 || read_acceptance(run, err) < 0)
        return -1;
    const size_t most = spec_max_draft(&run->gen.drafting);
    s->rows = spec_max_rows(&run->gen.drafting, s->batch);
    if (o->tree_auto)
        s->rows = s->rows == SIZE_MAX ? s->rows : size_max(s->rows, s->batch * (AUTO_TREE + 1));
    if (s->rows == SIZE_MAX)
        return err_set(err, "%zu sequences of %zu draft tokens are too many", s->batch, most);
    s->split = o->ragged == RAGGED_SPLIT;
    s->kv.lockstep = o->ragged == RAGGED_PAD;
    if (s->kv.lockstep && !kv_spec_can_lockstep(&s->kv))
        return err_set(err,
                       "--ragged pad needs a KV cache that is one tensor per layer, unlike --kv %s",
                       kv_spec_name(&s->kv));
    return 0;
}

/* --lookup-corpus */

enum { CORPUS_MIB = 16 };

static int check_corpus(const char *path, const struct file_map *map, struct err *err)
{
    if (map->size == 0)
        return err_set(err, "%s: is empty; --lookup-corpus needs a text file", path);
    if (map->size > (size_t)CORPUS_MIB << 20)
        return err_set(err, "%s: has %zu bytes; --lookup-corpus takes up to %d MiB: give a part of it",
                       path, map->size, CORPUS_MIB);
    const unsigned char *nul = memchr(map->data, 0, map->size);
    if (nul)
        return err_set(err, "%s: is not text: byte %zu is 0; --lookup-corpus needs a text file", path,
                       (size_t)(nul - map->data) + 1);
    return 0;
}

static int read_corpus(const struct model *model, const char *path, struct ids *ids, struct err *err)
{
    struct file_map map;
    if (file_map(&map, path, err) < 0)
        return -1;
    int rc = check_corpus(path, &map, err);
    if (rc == 0 &&
        tokenizer_encode_plain(model->tok, (const char *)map.data, map.size, false, ids, err) < 0)
        rc = err_prefix(err, "%s", path);
    file_unmap(&map);
    return rc;
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
    const size_t context = draft_context(run, target), most = spec_max_draft(&run->gen.drafting);
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
    run->draft_tuner = profile_tuner(&run->gen.tuned.profile, tune_attn_name(s.backend, s.cpu.attn),
                                     run->draft->config.heads);
    s.kv.tuner = target->kv.tuner ? &run->draft_tuner.tuner : NULL;
    return draft_session_open(&run->draft_session, run->draft, &s, err);
}

static int open_drafter(struct spec_run *run, struct err *err)
{
    const struct spec_cli *o = run->cli;
    AUTO(ids_release) struct ids corpus = {0};
    struct drafter_plan plan = {.kind = o->lookup    ? DRAFTER_LOOKUP
                                        : o->suffix  ? DRAFTER_SUFFIX
                                        : o->recycle ? DRAFTER_RECYCLE
                                                     : DRAFTER_NONE,
                                .oldest = o->oldest,
                                .pool = o->pool,
                                .corpus = &corpus,
                                .layer = run->tapped};
    int rc = o->suffix && o->corpus ? read_corpus(run->gen.model, o->corpus, &corpus, err) : 0;
    if (rc == 0 && spec_uses_model(o))
        rc = open_draft_session(run, err);
    plan.session = run->draft_session;
    return rc < 0 ? -1 : drafter_open(&run->gen.drafter, &plan, run->gen.session, err);
}

/* --tree auto: times forward passes, chooses chain, tree or no drafting, and prints the reason. */
static int autotune(struct spec_run *run, struct err *err)
{
    struct session *session = run->gen.session;
    struct spec_options *o = &run->gen.drafting;
    struct row_times target, draft = {0};
    struct draft_choice c;
    const size_t window = run->draft ? session_options(run->draft_session)->context : SIZE_MAX;
    const size_t space = size_min(session_options(session)->context, batch_space(session));
    const size_t most =
        size_min(size_min(AUTO_TREE, space - 1), window - size_min(window, DRAFT_WINDOW_REST));
    if (most == 0) {
        run->gen.drafting_off = "--tree auto";
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
                       size_min(o->ranks, run->gen.drafter->ranks), o->length.limit, most, err) < 0)
        return -1;
    run->gen.drafting_off = c.draft_tokens == 0 ? "--tree auto" : NULL;
    o->tree = c.tree ? c.draft_tokens : 0;
    o->tree_levels = c.levels;
    if (!c.tree)
        o->length.limit = o->length.now = c.draft_tokens;
    if (!run->gen.options->quiet)
        fprintf(stderr,
                "bmc-spec: --tree auto: %s%.0zu: %.2f tokens in %.2f ms expected, 1 in %.2f ms "
                "without; the best chain, of %zu, gains %.2fx, the best tree, of %zu, %.2fx\n",
                run->gen.drafting_off ? "no drafting"
                : c.tree              ? "a tree of "
                                      : "a chain of ",
                c.draft_tokens, c.tokens, c.ms, c.plain_ms, c.chain, c.chain_gain, c.nodes,
                c.tree_gain);
    return 0;
}

static int check_dynamic(const struct spec_run *run, struct err *err)
{
    if (!run->gen.drafting.dynamic || run->gen.drafter->dynamic)
        return 0;
    return err_set(err, "--dynamic needs a draft head (EAGLE), not the drafter \"%s\": leave it out",
                   run->gen.drafter->name);
}

static int opened(struct gen *gen, struct err *err)
{
    struct spec_run *run = (struct spec_run *)gen;
    return open_drafter(run, err) < 0 || check_dynamic(run, err) < 0 ||
                   (run->cli->tree_auto && !run->cli->record && autotune(run, err) < 0)
               ? -1
               : 0;
}

/* ---- statistics, in addition to those of bmc-gen ---- */

static double all_ptl_ms(const struct spec_stats *s)
{
    return s->ended ? s->sum_ptl_ms / (double)s->ended : 0;
}

static void print_stats(const struct gen *gen)
{
    const struct spec_stats *s = spec_stats(gen->spec);
    fprintf(stderr,
            "                   draft %.2f ms, verify %.2f ms (attention %.2f ms), compact %.2f ms; "
            "per token: first sequence %.3f ms, last %.3f ms, all %.3f ms\n",
            s->draft_ms, s->verify_ms, s->attention_ms, s->compact_ms, s->first_ptl_ms, s->last_ptl_ms,
            all_ptl_ms(s));
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

static int put_stats(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                     struct err *err)
{
    static const char *const ragged[] = {"one", "pad", "split"};
    const struct spec_run *run = (const struct spec_run *)gen;
    const struct spec_stats *s = spec_stats(run->gen.spec);
    const char *batch_knee_from;
    const size_t batch_knee = find_batch_knee(run, session_options(run->gen.session), &batch_knee_from);
    (void)stats;
    json_t *fields =
        json_pack("{s:I, s:I, s:s, s:s, s:f, s:f, s:f, s:f, s:o, s:o}", "k",
                  (json_int_t)spec_max_draft(&gen->drafting), "batch_knee", (json_int_t)batch_knee,
                  "batch_knee_from", batch_knee_from, "ragged", ragged[run->cli->ragged],
                  "attention_ms", s->attention_ms, "first_ptl_ms", s->first_ptl_ms, "last_ptl_ms",
                  s->last_ptl_ms, "all_ptl_ms", all_ptl_ms(s), "simulated_acceptance",
                  gen->drafting.simulate >= 0 ? json_real(gen->drafting.simulate) : json_null(),
                  "draft_length_history", history(s));
    if (!fields || json_object_update(object, fields) < 0) {
        json_decref(fields);
        return err_no_memory(err, "statistics");
    }
    json_decref(fields);
    return 0;
}

static void close_draft(struct gen *gen)
{
    struct spec_run *run = (struct spec_run *)gen;
    session_close(run->draft_session);
    model_close(run->draft);
}

const struct gen_hooks spec_hooks = {open_draft,  adjust_session, opened,
                                     print_stats, put_stats,      close_draft};
