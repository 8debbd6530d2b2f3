/* The speed of a model that is not there: the times of its first layers, extrapolated part by part. */
#include "prof/predict.h"

/* ---- the layers that are measured ---- */

static int counts_of(struct op_counts *counts, const struct config *config, const struct report *report,
                     struct err *err)
{
    struct model shape = {.config = *config};
    if (weights_shape(&shape.weights, &shape.config, &report->types, err) < 0)
        return -1;
    const int rc = model_counts(counts, &shape, &report->run.kv_types, err);
    weights_release(&shape.weights);
    return rc;
}

static bool has_all_kinds(const struct op_counts *some, const struct op_counts *all)
{
    return some->n_attend == all->n_attend && !some->expert_layers == !all->expert_layers &&
           !some->state_bytes == !all->state_bytes;
}

/* Sets *part to the first layers, with a plan of its own, and counts them. */
static int choose_layers(struct predict_job *job, struct config *part, size_t bytes, struct err *err)
{
    const struct run *run = &job->report->run;
    for (size_t n = 1;; n++) {
        *part = run->config;
        part->layers = n;
        if (config_plan(part, err) < 0)
            return -1;
        if (counts_of(&job->own, part, job->report, err) < 0) {
            config_close(part);
            return -1;
        }
        if (n == run->config.layers || (has_all_kinds(&job->own, &job->all) &&
                                        job->own.weight_bytes - job->own.head_bytes >= bytes))
            return 0;
        config_close(part);
    }
}

int predict_open(struct predict_job *job, const struct report *report, size_t bytes, struct err *err)
{
    struct config part;
    *job = (struct predict_job){.report = report};
    if (counts_of(&job->all, &report->run.config, report, err) < 0 ||
        choose_layers(job, &part, bytes, err) < 0)
        return -1;
    const int rc = model_synthesize_types(&job->part, &part, report->shape, &report->types, true,
                                          report->run.seed, err);
    config_close(&part);
    return rc;
}

void predict_close(struct predict_job *job) { model_close(job->part); }

/* ---- from their times to those of all layers ---- */

/* What a sequence's prompt, or a step in the middle of its answer, takes without the LM head. */
static struct pass_work work_of(const struct op_counts *counts, const struct test *test)
{
    struct pass_work work = {0};
    const size_t rows = test->n_gen ? 1 : test->n_prompt;
    work_add_pass(&work, counts, counts->experts_used * counts->expert_layers);
    work_add_rows(&work, counts, test->depth + test->n_gen / 2, rows, 0);
    work_skip_outputs(&work, counts, rows - 1);
    return work;
}

static double all_macs(const struct pass_work *work)
{
    double sum = 0;
    for (size_t class = 0; class < WEIGHTS_CLASSES; class ++)
        sum += (double)work->macs[class];
    return sum;
}

void predict_scale(const struct predict_job *job, const struct test *test, double ms[FORWARD_PHASES])
{
    const struct pass_work all = work_of(&job->all, test), own = work_of(&job->own, test);
    const double layers = (double)job->report->run.config.layers / (double)job->part->config.layers;
    const double products = test->n_gen ? (double)all.weight_bytes / (double)own.weight_bytes
                                        : all_macs(&all) / all_macs(&own);
    const double attention = job->all.state_bytes || !own.attention_macs
                                 ? layers
                                 : (double)all.attention_macs / (double)own.attention_macs;
    ms[PHASE_ATTENTION] *= attention;
    ms[PHASE_PROJECTION] *= products;
    ms[PHASE_MLP] *= products;
    ms[PHASE_OTHER] *= layers;
}

int measure_prediction(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    struct predict_job *job = arg;
    const struct test *test = &m->test;
    const bool decode = test->n_gen;
    const double steps = decode ? (double)test->n_gen : 1;
    struct run run = job->report->run;
    struct steps_result result;
    run.batch = test->batch;
    run.N = m->N;
    if (run_steps(&run, job->part, &m->contender->spec, test->depth, test->n_prompt, test->n_gen,
                  &result, err) < 0)
        return -1;
    struct pass_times *times = decode ? &result.decode.times : &result.prefill.times;
    const double apart = decode ? result.growth_ms + result.sample_ms : result.prefill_growth_ms;
    double ms = (decode ? result.decode_ms : result.prefill_ms) - apart;
    for (size_t i = 0; i < FORWARD_PHASES; i++)
        ms -= times->ms[i];
    predict_scale(job, test, times->ms);
    for (size_t i = 0; i < FORWARD_PHASES; i++) {
        ms += times->ms[i];
        f->part_ms[i] = times->ms[i] / steps;
    }
    f->tok_s = (double)(test->batch * (test->n_prompt + test->n_gen)) * 1e3 / ms;
    f->step_ms = (ms + apart) / steps;
    f->first_token_ms = decode ? NAN : f->step_ms;
    f->memory.run_layers = job->part->config.layers;
    free(result.step_ms);
    return 0;
}
