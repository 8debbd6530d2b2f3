/* --spec auto: finds T and the shape of drafts together, from the times of both models' passes, the
 * cost of growth, and acceptance rates. */
#include "acceptance_file.h"
#include "base/file.h"
#include "base/number.h"
#include "cli.h"
#include "decode/spec/drafter.h"
#include "model/draft_head.h"
#include "tune/tune.h"
#include "open_model.h"

/* Largest draft, in tokens of one sequence and of all. Passes are timed in caches of the largest
 * requested context, all of which an upfront cache attends to, and of a part of it. */
enum { MOST_DRAFT = 48, MOST_TOKENS = 128, SMALL_CACHE = 8 };

static int open_draft(struct tune *tune, struct err *err)
{
    const char *given = tune->options->draft;
    size_t layer[MAX_FEATURES];
    if (!given)
        return 0;
    if (cli_open_draft(&tune_program, given, NULL, tune->model, &tune->draft, err) < 0)
        return err_prefix(err, "--draft");
    if (!config_is_draft_head(&tune->draft->config) &&
        draft_model_check(tune->model, tune->draft, err) < 0)
        return err_set(err,
                       "--draft: %s has another vocabulary than the model: its drafts cannot be tuned",
                       tune->draft->name);
    return draft_attach(tune->draft, tune->model, layer, err);
}

/* Acceptance rates: that of --spec auto,p=P, those of a file, or typical ones. */
static int read_acceptance(struct tune *tune, struct err *err)
{
    const char *given = tune->options->acceptance;
    const struct acceptance_pair pair = {
        .target = &tune->model->file.model_id,
        .draft = tune->draft ? &tune->draft->file.model_id : NULL,
        .drafter = "lookup",
        .greedy = true,
    };
    char path[8192];
    struct acceptance a;
    if (tune->rate > 0) {
        tune->accept[0] = tune->rate;
        tune->ranks = 1;
        return 0;
    }
    tune->ranks = acceptance_typical(tune->accept);
    if (!tune->draft)
        tune->ranks = 1; /* not all of these drafters can draft trees */
    if (!given && (!acceptance_path(&pair, path, sizeof path) || !file_exists(path)))
        return 0;
    if (acceptance_read_pair(&a, &pair, given ? given : path, err) < 0)
        return -1;
    tune->ranks = a.ranks;
    memcpy(tune->accept, a.share, a.ranks * sizeof *a.share);
    return 0;
}

int tune_spec_open(struct tune *tune, struct err *err)
{
    return open_draft(tune, err) < 0 ? -1 : read_acceptance(tune, err);
}

/* Times passes of 1 to `most` tokens for each of `batch` sequences in caches of `context` entries. */
static int time_passes(struct row_times *times, const struct tune *tune, const struct model *model,
                       size_t context, size_t batch, size_t most, struct err *err)
{
    struct session *session;
    struct session_options options = tune_session_options(tune, batch, context);
    options.rows = batch * most;
    if (kv_spec_parse(&options.kv, "upfront", err) < 0 ||
        session_open(&session, model, &options, err) < 0)
        return -1;
    const int rc = row_times_measure(times, session, most, true, err);
    times->parallel = model->config.mask_token != 0;
    session_close(session);
    return rc;
}

static size_t largest_context(const struct tune *tune)
{
    size_t N = 0;
    for (size_t i = 0; i < tune->n_N; i++)
        N = size_max(N, tune->N[i]);
    return N;
}

/* Times the passes of both models for a batch size. */
static int measure_passes(struct spec_costs *costs, struct row_times *draft, const struct tune *tune,
                          size_t batch, size_t most, struct err *err)
{
    const size_t N = largest_context(tune);
    *costs = (struct spec_costs){.attended = {size_max(N / SMALL_CACHE, most + 1), N},
                                 .draft = tune->draft ? draft : NULL,
                                 .accept = tune->accept,
                                 .ranks = tune->ranks};
    for (size_t i = 0; i < ARRAY_LEN(costs->target); i++)
        if (time_passes(&costs->target[i], tune, tune->model, costs->attended[i], batch, most + 1,
                        err) < 0)
            return -1;
    return tune->draft ? time_passes(draft, tune, tune->draft, size_min(N, tune->draft->config.context),
                                     batch, most, err)
                       : 0;
}

static int save_plan(struct tune *tune, const struct tune_speculation *s, struct err *err)
{
    struct tuned_spec tuned = {.draft = "-",
                               .type = tune->run.type,
                               .batch = s->batch,
                               .N = s->N,
                               .T = s->plan.T,
                               .shape = s->plan.shape,
                               .tokens = s->plan.tokens};
    hash_hex(&tune->model->file.model_id, HASH_BYTES, tuned.target);
    if (tune->draft)
        hash_hex(&tune->draft->file.model_id, HASH_BYTES, tuned.draft);
    snprintf(tuned.attn, sizeof tuned.attn, "%s", tune_attn_name(tune->run.backend, tune->run.attn));
    return profile_put_spec(&tune->profile, &tuned, err);
}

static int plan_batch(struct tune *tune, size_t batch, struct err *err)
{
    struct spec_costs costs;
    struct row_times draft;
    /* the smaller cache has room for a pass, and is at most half of the larger one */
    size_t most = size_min(size_min(MOST_DRAFT, size_max(MOST_TOKENS / batch, 1)),
                           size_max(largest_context(tune) / 2, 2) - 1);
    if (tune->draft)
        most = size_min(most, tune->draft->config.context / 2);
    if (most < 1)
        return err_set(err, "the draft model's context of %zu has no room for drafts",
                       tune->draft->config.context);
    if (measure_passes(&costs, &draft, tune, batch, most, err) < 0)
        return -1;
    for (size_t i = 0; i < tune->n_N; i++) {
        struct tune_speculation *s = &tune->speculation[tune->n_speculations];
        struct tune_query query = tune_query_of(&tune->run, batch, tune->N[i]);
        query.layers = tune->config.layers;
        query.hot = tune->options->state == TUNE_HOT;
        *s = (struct tune_speculation){.N = tune->N[i], .batch = batch};
        if (!profile_cost_config(&tune->profile, &query, &costs.cache))
            return err_set(err, "--spec auto: no rates of copying and attention to plan with");
        if (spec_plan(&s->plan, &costs, size_min(most, s->N - 1), err) < 0 ||
            save_plan(tune, s, err) < 0)
            return -1;
        tune->n_speculations++;
    }
    return 0;
}

int tune_spec(struct tune *tune, struct err *err)
{
    tune->speculation = calloc(tune->n_N * tune->n_batch, sizeof *tune->speculation);
    int rc = tune->speculation ? 0 : err_no_memory(err, "the plans of speculation");
    for (size_t b = 0; rc == 0 && b < tune->n_batch; b++)
        rc = cli_interrupted ? err_code(err, ERR_INTERRUPTED, "interrupted")
                             : plan_batch(tune, tune->batch[b], err);
    return rc;
}
