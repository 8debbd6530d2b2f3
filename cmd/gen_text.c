/* bmc-gen's main job: one prompt, text (or ids) as they come. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "gen.h"

struct text_job {
    struct gen *gen;
    struct ids prompt;
    struct gen_request request;
    struct buf prompt_text;
    bool taken;
    bool echoed;
    bool begun; /* with --ids: something was printed, so a blank comes first */
    char failure[256];
    struct cli_progress progress;
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
    return fflush(stdout) == 0 ? 0 : err_errno(err, "cannot write to standard output");
}

static void echo(struct text_job *job)
{
    if (job->gen->options->ids)
        put_ids(job, job->prompt.id, job->prompt.len);
    else if (job->prompt_text.len)
        fwrite(job->prompt_text.data, 1, job->prompt_text.len, stdout);
}

static int next(void *arg, bool wait, struct gen_request *request, struct err *err)
{
    (void)wait;
    (void)err;
    struct text_job *job = arg;
    if (job->taken)
        return GEN_END;
    job->taken = true;
    *request = job->request;
    request->prompt = job->prompt.id;
    request->n_prompt = job->prompt.len;
    return GEN_REQUEST;
}

static int show(void *arg, const struct gen_request *request, const char *text, size_t len,
                const uint32_t *ids, size_t n_ids, struct err *err)
{
    struct text_job *job = arg;
    (void)request;
    cli_progress_end(&job->progress);
    if (job->gen->options->echo && !job->echoed)
        echo(job);
    job->echoed = true;
    if (job->gen->options->ids)
        put_ids(job, ids, n_ids);
    else
        fwrite(text, 1, len, stdout);
    return flush(err);
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    (void)arg;
    if (result->finish == FINISHED_ERROR && !cli_interrupted)
        return err_set(err, "%s", result->error);
    putchar('\n');
    return flush(err);
}

static void prefill(void *arg, size_t rows, size_t total)
{
    struct text_job *job = arg;
    if (rows < total)
        cli_progress(&job->progress, rows, total);
    else
        cli_progress_end(&job->progress);
}

/* The text of the prompt's ids so far; the character that they end within comes with the text that is generated. */
static int spell_prompt(struct text_job *job, struct err *err)
{
    struct detok detok;
    detok_init(&detok, job->gen->model->tok, false);
    for (size_t i = 0; i < job->prompt.len; i++)
        if (detok_add(&detok, job->prompt.id[i], &job->prompt_text, err) < 0)
            return -1;
    return 0;
}

/* The snapshot's one sequence comes before the prompt. */
static int read_snapshot(struct text_job *job, struct err *err)
{
    const struct snapshot *snapshot = job->gen->snapshot;
    if (snapshot->file.n_seqs > 1)
        return err_set(err, "%s: has %zu sequences; --jsonl continues them by their ids",
                       snapshot->path, snapshot->file.n_seqs);
    if (gen_continue(job->gen, 0, &job->prompt, &job->request, err) < 0)
        return -1;
    return spell_prompt(job, err);
}

/* The prompt as ids, from a snapshot and then from --prompt-ids or from text. */
static int read_prompt(struct text_job *job, struct err *err)
{
    const struct gen_options *o = job->gen->options;
    const struct tokenizer *tok = job->gen->model->tok;
    const bool goes_on = o->load_kv != NULL;
    job->request = gen_request_of(job->gen);
    if (goes_on && read_snapshot(job, err) < 0)
        return -1;
    if (o->prompt_ids) {
        if (gen_parse_ids(o->prompt_ids, &job->prompt, err) < 0)
            return err_prefix(err, "--prompt-ids");
        buf_clear(&job->prompt_text);
        return spell_prompt(job, err);
    }
    if (goes_on && !o->prompt && !o->file)
        return 0;
    const size_t at = job->prompt_text.len;
    if (gen_read_text(o, false, &job->prompt_text, err) < 0)
        return -1;
    /* What goes on is tokenized by itself, without a start token. */
    if (tokenizer_encode(tok, job->prompt_text.data ? job->prompt_text.data + at : "",
                         job->prompt_text.len - at, !goes_on, &job->prompt, err) < 0)
        return err_prefix(err, "prompt");
    return 0;
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
    cli_progress_begin(&job.progress, "prompt");
    if (read_prompt(&job, err) < 0 ||
        gen_open_session(gen, gen->options->batch ? gen->options->batch : 1, job.prompt.len, err) < 0)
        goto out;
    if (gen->options->prompt_cache)
        gen_reuse(gen, &job.prompt, &job.request);
    if (gen_begin_save(gen, err) < 0 ||
        generate(&gen->session, &gen->sampling, &callbacks, &cli_interrupted, &stats, err) < 0 ||
        gen_end_save(gen, err) < 0)
        goto out;
    rc = gen_report(gen, &stats, err);
out:
    cli_progress_end(&job.progress);
    ids_release(&job.prompt);
    buf_release(&job.prompt_text);
    return rc;
}
