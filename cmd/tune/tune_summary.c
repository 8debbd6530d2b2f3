/* What bmc-tune prints by default, at most 15 lines: what was measured, what was chosen, and how sure that is. tune_print.c has the
 * tables. */
#include "cli.h"
#include "quant/cache_types.h"
#include "tune/tune.h"

/* Batch sizes and plans of speculation that have a line; the others are counted. */
enum { BATCH_LINES = 3, PLAN_LINES = 3 };

/* Whether the T of a point is for the profile. */
static bool is_tuned(const struct config_point *c) { return c->cold && c->k == 1; }

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

int tune_add_machine(struct buf *text, const struct tune *tune, struct err *err)
{
    const struct machine *m = &tune->profile.machine;
    return buf_addf(text, err, "%s, %zu core%s, %zu thread%s, isa %s, alloc %s; %s %s\n", m->cpu,
                    m->cores, plural(m->cores), m->threads, plural(m->threads), m->isa, m->alloc,
                    tune->model ? "model" : "shape", tune->shape);
}

int tune_add_knee(struct buf *text, const struct tuned_model *model, struct err *err)
{
    const size_t n = model ? model->knee.tokens : 0;
    return model && model->knee.n
               ? buf_addf(text, err,
                          "Batch knee of %s: %zu token%s; more take over 1.15 times as long as one.\n",
                          model->name, n, plural(n))
               : 0;
}

/* Adds the rates of the cost model at the largest context. */
static int add_rates(struct buf *text, const struct tune *tune, struct err *err)
{
    const size_t N = tune->N[tune->n_N - 1];
    struct tune_query query = tune_query_of(&tune->run, tune->batch[0], N);
    struct cost_config config;
    query.layers = tune->config.layers;
    query.hot = tune->options->state == TUNE_HOT;
    if (!profile_cost_config(&tune->profile, &query, &config))
        return 0;
    const struct cost cost = cost_constant_rates(&config);
    return buf_addf(text, err,
                    "Rates at N = %zu, %s cache, attention %s: %.3g elements copied and %.3g "
                    "multiply-accumulates per second%s%s.\n",
                    N, cache_type_name(tune->run.type),
                    tune_attn_name(tune->run.backend, tune->run.attn), cost.copy_elem_s,
                    cost.sdpa_mac_s, tune->options->constants ? ", from " : "",
                    tune->options->constants ? tune->options->constants : "");
}

/* Adds the T of consecutive points first to last, which are equal. */
static int add_equal_T(struct buf *text, const struct config_point *first,
                       const struct config_point *last, bool more, struct err *err)
{
    if (buf_addf(text, err, more ? ", %zu at %zu" : "%zu at N = %zu", first->answer.pow2, first->N) < 0)
        return -1;
    return first->N == last->N ? 0 : buf_addf(text, err, " to %zu", last->N);
}

static int add_T_of_batch(struct buf *text, const struct tune *tune, size_t batch, struct err *err)
{
    const struct config_point *first = NULL, *last = NULL;
    bool more = false;
    for (size_t i = 0; i < tune->n_points; i++) {
        const struct config_point *c = &tune->point[i];
        if (!is_tuned(c) || c->batch != batch)
            continue;
        if (!first && buf_addf(text, err, "T for batch %zu: ", batch) < 0)
            return -1;
        if (first && first->answer.pow2 != c->answer.pow2) {
            if (add_equal_T(text, first, last, more, err) < 0)
                return -1;
            more = true;
            first = NULL;
        }
        first = first ? first : c;
        last = c;
    }
    if (!first)
        return 0;
    return add_equal_T(text, first, last, more, err) < 0 ? -1 : buf_addf(text, err, ".\n");
}

static int add_T(struct buf *text, const struct tune *tune, struct err *err)
{
    for (size_t b = 0; b < size_min(tune->n_batch, BATCH_LINES); b++)
        if (add_T_of_batch(text, tune, tune->batch[b], err) < 0)
            return -1;
    return tune->n_batch > BATCH_LINES
               ? buf_addf(text, err, "(%zu more batch sizes: --verbose)\n", tune->n_batch - BATCH_LINES)
               : 0;
}

/* Adds how much longer than the best T the chosen one takes where that is worst, and what was not measured. */
static int add_certainty(struct buf *text, const struct tune *tune, struct err *err)
{
    const struct config_point *worst = NULL;
    size_t measured = 0, refused = 0, again = 0;
    for (size_t i = 0; i < tune->n_points; i++) {
        const struct config_point *c = &tune->point[i];
        refused += c->refusal != NULL;
        measured += c->measured;
        again += c->attempts > 1;
        if (c->measured && (!worst || c->regret.ratio > worst->regret.ratio))
            worst = c;
    }
    if (worst && buf_addf(text, err,
                          "Measured: %zu of %zu configurations%s. The T used takes %s%.3f (90 %%: %.3f "
                          "to %.3f) times as long as the best one%s.\n",
                          measured, tune->n_points,
                          again ? ", some again because fit and measurement disagreed" : "",
                          measured > 1 ? "at most " : "", worst->regret.ratio, worst->regret.lo,
                          worst->regret.hi, config_point_contradicts(worst) ? " by the fit" : "") < 0)
        return -1;
    return refused
               ? buf_addf(text, err, "Not measured: %zu of %zu configurations (--verbose says why).\n",
                          refused, tune->n_points)
               : 0;
}

int tune_add_policy(struct buf *text, const struct tuned_model *model, struct err *err)
{
    if (!model || !model->policy[0])
        return 0;
    if (strcmp(model->policy, "bmc") == 0)
        return buf_addf(
            text, err,
            "Policy for %s: bmc; no other one was clearly faster in every cold measurement.\n",
            model->name);
    return buf_addf(text, err,
                    "Policy for %s: %s, clearly faster than bmc in every cold measurement, at worst "
                    "%.3f (%.3f to %.3f) times as long.\n",
                    model->name, model->policy, model->policy_ratio.value, model->policy_ratio.lo,
                    model->policy_ratio.hi);
}

static int add_plans(struct buf *text, const struct tune *tune, struct err *err)
{
    for (size_t i = 0; i < size_min(tune->n_speculations, PLAN_LINES); i++) {
        const struct tune_speculation *s = &tune->speculation[i];
        if (buf_addf(
                text, err,
                "Speculation at N = %zu, batch %zu: T = %zu, %ss of %zu draft tokens, expected to be "
                "%.2f times as fast.\n",
                s->N, s->batch, s->plan.T, s->plan.shape.tree ? "tree" : "chain",
                s->plan.shape.draft_tokens, s->plan.plain_seconds / s->plan.seconds) < 0)
            return -1;
    }
    return tune->n_speculations > PLAN_LINES
               ? buf_addf(text, err, "(%zu more plans: --verbose)\n", tune->n_speculations - PLAN_LINES)
               : 0;
}

int tune_add_summary(const struct tune *tune, struct buf *text, struct err *err)
{
    const struct tuned_model *knee = profile_model(&tune->profile, tune->knee_key);
    if (tune_add_machine(text, tune, err) < 0 || add_rates(text, tune, err) < 0 ||
        add_T(text, tune, err) < 0 || add_certainty(text, tune, err) < 0 ||
        tune_add_policy(text, profile_model(&tune->profile, tune->key), err) < 0 ||
        add_plans(text, tune, err) < 0)
        return -1;
    return tune_add_knee(text, knee, err);
}

/* Adds what a profile gets from the run: "policy bmc, T 8". */
static int add_results(struct buf *text, const struct tune *tune, struct err *err)
{
    struct ratio ignored;
    const char *policy = config_points_policy(tune->point, tune->n_points, &ignored);
    size_t least = SIZE_MAX, most = 0;
    for (size_t i = 0; i < tune->n_points; i++)
        if (is_tuned(&tune->point[i])) {
            least = size_min(least, tune->point[i].answer.pow2);
            most = size_max(most, tune->point[i].answer.pow2);
        }
    if (!most)
        return buf_addf(text, err, "rates");
    if ((policy && buf_addf(text, err, "policy %s, ", policy) < 0) ||
        buf_addf(text, err, "T %zu", least) < 0)
        return -1;
    return most > least ? buf_addf(text, err, " to %zu", most) : 0;
}

int tune_say_end(const struct tune *tune, const char *path, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    if (tune->options->quiet || tune->options->format > TABLE_TEXT)
        return 0;
    if (add_results(&text, tune, err) < 0)
        return -1;
    if (path)
        cli_say(stdout, "%s: written to %s; nothing else to do\n", buf_text(&text), path);
    else
        cli_say(stdout, "%s: not written (--dry-run)\n", buf_text(&text));
    return 0;
}
