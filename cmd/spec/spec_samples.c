/* bmc-spec --samples: generates several completions of one prompt, best mean log-probability first;
 * with --budget, those that finish in time. */
#include "base/clock.h"
#include "cli.h"
#include "spec/speccmd.h"

struct answer {
    double mean_logprob;
    size_t sample;
    json_t *object;
};

struct spec_sample {
    struct gen_request request;
    struct ids ids;
};

struct samples_job {
    struct spec_run *run;
    struct ids prompt;
    struct buf text;
    struct gen_request request; /* common to all completions */
    struct spec_sample *sample;
    size_t next;
    double end_ms; /* 0: no budget */
    struct answer *answer;
    size_t n_answers, unfinished;
    volatile sig_atomic_t over; /* the budget is used up, or a signal arrived */
};

static int next_sample(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct samples_job *job = arg;
    struct spec_sample *sample = &job->sample[job->next];
    (void)wait;
    if (job->next == job->run->cli->samples)
        return GEN_END;
    sample->request = job->request;
    sample->request.stream += job->next;
    sample->request.line = job->next++;
    sample->request.ids = &sample->ids;
    sample->request.logprobs = 1;
    *request = &sample->request;
    for (size_t i = 0; i < job->prompt.len; i++)
        if (ids_add(&sample->ids, job->prompt.id[i], err) < 0)
            return -1;
    return GEN_REQUEST;
}

static void check_budget(struct samples_job *job)
{
    if (cli_interrupted || (job->end_ms > 0 && clock_ms() >= job->end_ms))
        job->over = 1;
}

static int progress(void *arg, const struct gen_result *more, struct err *err)
{
    (void)more, (void)err;
    check_budget(arg);
    return 0;
}

static void prefill(void *arg, size_t rows, size_t total)
{
    (void)rows, (void)total;
    check_budget(arg);
}

static int sample_done(void *arg, const struct gen_result *result, struct err *err)
{
    struct samples_job *job = arg;
    double sum = 0;
    int rc = 0;
    if (result->finish == FINISHED_ERROR) {
        if (!job->over)
            return gen_request_failure(result, err);
        job->unfinished++;
        return 0;
    }
    json_t *ids = json_array();
    for (size_t i = 0; rc == 0 && i < result->n_ids; i++) {
        rc = json_push(ids, json_integer(result->ids[i]), err);
        sum += result->logprobs[i * (result->n_best + 1)].logprob;
    }
    const double mean = result->n_ids ? sum / (double)result->n_ids : 0;
    json_t *object =
        rc < 0 ? NULL
               : json_pack("{s:I, s:f, s:o, s:O, s:s}", "sample", (json_int_t)result->request->line,
                           "mean_logprob", mean, "text", json_text(result->text, result->text_len),
                           "ids", ids, "finish", gen_finish_name(result->finish));
    json_decref(ids);
    if (!object)
        return err_no_memory(err, "an answer");
    job->answer[job->n_answers++] = (struct answer){mean, result->request->line, object};
    return 0;
}

static int by_logprob(const void *a, const void *b)
{
    const struct answer *x = a, *y = b;
    if (x->mean_logprob != y->mean_logprob)
        return x->mean_logprob > y->mean_logprob ? -1 : 1;
    return x->sample < y->sample ? -1 : 1;
}

static int print_answers(struct samples_job *job, struct err *err)
{
    struct buf text = {0};
    int rc = 0;
    qsort(job->answer, job->n_answers, sizeof *job->answer, by_logprob);
    for (size_t i = 0; i < job->n_answers && rc == 0; i++) {
        json_t *line = json_pack("{s:I}", "rank", (json_int_t)i + 1);
        if (!line || json_object_update(line, job->answer[i].object) < 0)
            rc = err_no_memory(err, "an answer");
        else
            rc = json_write_line(line, &text, err);
        json_decref(line);
    }
    if (rc == 0)
        rc = gen_put_line(&text, err);
    buf_release(&text);
    if (rc == 0 && job->n_answers == 0 && job->unfinished && !cli_interrupted)
        rc = err_set(err, "none of %zu answers was finished in time: increase --budget or decrease -n",
                     job->run->cli->samples);
    return rc;
}

int spec_samples(struct spec_run *run, struct err *err)
{
    const struct spec_cli *o = run->cli;
    struct gen *gen = &run->gen;
    struct samples_job job = {.run = run};
    const struct gen_callbacks callbacks = {next_sample, progress, sample_done, prefill,
                                            NULL,        &job,     NULL};
    struct gen_stats stats;
    int rc = -1;
    gen_hint_batch(gen, o->samples);
    job.end_ms = o->budget_ms > 0 ? clock_ms() + o->budget_ms : 0;
    job.answer = calloc(o->samples, sizeof *job.answer);
    job.sample = calloc(o->samples, sizeof *job.sample);
    if (!job.answer || !job.sample) {
        err_no_memory(err, "%zu answers", o->samples);
        goto out;
    }
    if (gen_read_prompt(gen, &job.prompt, &job.text, &job.request, err) < 0 ||
        gen_open_session(gen, gen->options->batch ? gen->options->batch : o->samples, job.prompt.len,
                         err) < 0 ||
        generate(gen->session, &gen->serve.options.sampling, gen->strategy, &callbacks, &job.over,
                 &stats, err) < 0 ||
        print_answers(&job, err) < 0)
        goto out;
    rc = gen_report(gen, &stats, err);
out:
    for (size_t i = 0; i < job.n_answers; i++)
        json_decref(job.answer[i].object);
    for (size_t i = 0; i < job.next; i++)
        ids_release(&job.sample[i].ids);
    free(job.answer);
    free(job.sample);
    ids_release(&job.prompt);
    buf_release(&job.text);
    return rc;
}
