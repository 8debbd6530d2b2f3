/* Plain generation: one prompt, whose text or ids are printed as they are generated. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli.h"
#include "serve/result.h"
#include "gen/gen.h"

struct text_job {
    struct gen *gen;
    struct ids ids; /* prompt ids, then generated ids */
    struct gen_request request;
    size_t n_prompt;
    struct buf prompt_text;
    bool taken;
    bool echoed;
    bool begun; /* --ids: print a blank before the next id */
    struct cli_progress progress;
    char label[48];    /* text of `progress` */
    double prefill_ms; /* clock when prefill began, or 0 */
};

static void put_ids(struct text_job *job, const uint32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("%s%u", job->begun ? " " : "", ids[i]);
        job->begun = true;
    }
}

static int flush(struct err *err)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? 0
                                                  : err_errno(err, "cannot write to standard output");
}

static int echo(struct text_job *job, struct err *err)
{
    if (!job->gen->options->ids)
        return gen_put(&job->prompt_text, err);
    put_ids(job, job->ids.id, job->n_prompt);
    return 0;
}

static int next(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    (void)wait;
    (void)err;
    struct text_job *job = arg;
    if (job->taken)
        return GEN_END;
    job->taken = true;
    *request = &job->request;
    return GEN_REQUEST;
}

static int show(void *arg, const struct gen_request *request, const char *text, size_t len,
                const uint32_t *ids, size_t n_ids, struct err *err)
{
    struct text_job *job = arg;
    (void)request;
    cli_progress_end(&job->progress);
    if (job->gen->options->echo && !job->echoed && echo(job, err) < 0)
        return -1;
    job->echoed = true;
    if (job->gen->options->ids)
        put_ids(job, ids, n_ids);
    else if (cli_put(text, len, err) < 0)
        return -1;
    return flush(err);
}

/* Warns that the context is full, so that truncated text does not look complete. */
static void warn_full(const struct gen *gen)
{
    const size_t context = session_options(gen->session)->context, most = gen->model->config.context;
    fprintf(stderr, "%s: the text was cut: the context of %zu tokens is full; ", gen->program->name,
            context);
    if (context < most)
        fprintf(stderr, "-c takes up to %zu\n", most);
    else
        fprintf(stderr, "the model takes no more\n");
}

/* Says that a rolling window has left BOS behind, without which many models lose the thread. */
static void note_lost_bos(const struct gen *gen, const struct gen_result *result)
{
    const size_t n = result->n_prompt + result->n_ids,
                 window = kv_setup(session_kv(gen->session))->window;
    if (gen->options->quiet || !window || session_options(gen->session)->recompute || n <= window ||
        !tokenizer_leading(gen->model->tok, result->ids - result->n_prompt, n))
        return;
    fprintf(stderr,
            "%s: the text has %zu tokens, so that the window of %zu left the BOS token behind; "
            "--context-shift recompute keeps it\n",
            gen->program->name, n, window);
}

/* Prints the other results of a beam search, one per line. */
static int put_beams(struct text_job *job, const struct gen_result *result, struct err *err)
{
    int rc = 0;
    for (size_t i = 1; i < result->n_beams && rc == 0; i++) {
        struct buf text = {0};
        job->begun = false;
        if (job->gen->options->ids)
            put_ids(job, result->beams[i].ids.id, result->beams[i].ids.len);
        else if ((rc = result_beam_text(job->gen->model->tok, result, i, &text, err)) == 0)
            rc = gen_put(&text, err);
        putchar('\n');
        buf_release(&text);
    }
    return rc;
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    struct text_job *job = arg;
    if (result->finish == FINISHED_ERROR && !cli_interrupted)
        return *err = *result->error, -1;
    putchar('\n');
    if (put_beams(job, result, err) < 0)
        return -1;
    if (flush(err) < 0)
        return -1;
    if (result->full)
        warn_full(job->gen);
    note_lost_bos(job->gen, result);
    return 0;
}

/* Called during prefill: updates the progress bar. A prompt of one chunk gets a bar only if prefill
 * takes noticeable time. */
static void prefill(void *arg, size_t rows, size_t total)
{
    enum { NOTICED_MS = 100 };
    struct text_job *job = arg;
    const double now = clock_ms();
    if (job->prefill_ms == 0)
        job->prefill_ms = now;
    if (total <= session_options(job->gen->session)->chunk && now - job->prefill_ms < NOTICED_MS)
        return;
    if (rows < total)
        cli_progress(&job->progress, rows, total);
    else
        cli_progress_end(&job->progress);
}

static int keep(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    struct text_job *job = arg;
    return gen_save(job->gen, seq, result, NULL, err);
}

int gen_text(struct gen *gen, struct err *err)
{
    struct text_job job = {.gen = gen};
    const struct gen_callbacks callbacks = {next, show, done, prefill, keep, &job};
    struct gen_stats stats;
    int rc = -1;
    gen_hint_batch(gen, 1);
    cli_progress_begin(&job.progress, job.label);
    job.progress.hidden |= gen->options->quiet;
    if (gen_read_prompt(gen, &job.ids, &job.prompt_text, &job.request, err) < 0 ||
        gen_open_session(gen, gen->options->batch ? gen->options->batch : 1, job.ids.len, err) < 0)
        goto out;
    job.n_prompt = job.ids.len;
    snprintf(job.label, sizeof job.label, "prompt of %zu tokens", job.n_prompt);
    if (gen->options->prompt_cache)
        gen_reuse(gen, &job.request);
    if (gen_begin_save(gen, err) < 0 ||
        generate(gen->session, &gen->sampling, gen->strategy, &callbacks, &cli_interrupted, &stats,
                 err) < 0 ||
        gen_end_save(gen, err) < 0)
        goto out;
    rc = gen_report(gen, &stats, err);
out:
    cli_progress_end(&job.progress);
    ids_release(&job.ids);
    buf_release(&job.prompt_text);
    return rc;
}
