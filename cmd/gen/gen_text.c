/* Plain generation: one prompt, whose text or ids are printed as they are generated. */
#include "base/clock.h"
#include "cli.h"
#include "gen/gen.h"
#include "serve/result.h"
#include "text/tokenizer/detok.h"

/* ---- the prompt ---- */

/* Appends the text of the prompt's ids. Bytes of an incomplete UTF-8 character at their end are
 * held back for the generated ids; if more prompt text follows, they are flushed. */
static int spell_prompt(const struct gen *gen, const struct ids *prompt, bool text_follows,
                        struct buf *text, struct err *err)
{
    struct detok detok;
    detok_init(&detok, gen->model->tok, false);
    for (size_t i = 0; i < prompt->len; i++)
        if (detok_add(&detok, prompt->id[i], text, err) < 0)
            return -1;
    return text_follows ? detok_finish(&detok, text, err) : 0;
}

/* Sets up the request to resume the snapshot's only sequence. */
static int resume_prompt(const struct gen *gen, struct gen_request *request, struct err *err)
{
    const struct snapshot *snapshot = gen->snapshot;
    if (snapshot->file.n_seqs > 1 && gen->options->beams)
        return err_set(err,
                       "%s: has %zu sequences, but a search of %zu beams begins with one: --jsonl "
                       "resumes each by its id",
                       snapshot->path, snapshot->file.n_seqs, gen->options->beams);
    if (snapshot->file.n_seqs > 1)
        return err_set(err, "%s: has %zu sequences; --jsonl resumes them by their ids", snapshot->path,
                       snapshot->file.n_seqs);
    return resume_sequence(snapshot, 0, gen->seed, request, err);
}

static int add_chat(const struct gen *gen, const struct buf *message, bool resumes, struct ids *prompt,
                    struct buf *text, struct err *err)
{
    if (strspn(buf_text(message), " \t\r\n") == message->len)
        return err_set(err, "the message is empty: give one with -p, -f or on standard input");
    const struct conversation said = {
        .user = buf_text(message), .user_len = message->len, .tools = gen->tools};
    const unsigned flags =
        (resumes ? CHAT_CONTINUES : 0) | (gen->options->parse_special ? CHAT_PARSES_SPECIAL : 0);
    return chat_prompts_add(&gen->serve.chat, &said, flags, prompt, text, err);
}

int gen_read_prompt(const struct gen *gen, struct ids *prompt, struct buf *text,
                    struct gen_request *request, struct err *err)
{
    const struct gen_options *o = gen->options;
    const bool resumes = o->load_kv && gen->snapshot;
    const bool as_text = !o->prompt_ids && (!resumes || o->prompt || o->file);
    struct buf more = {0};
    int rc = -1;
    *request = serve_request(&gen->serve, prompt);
    if (as_text)
        gen_hint_terminal(gen, "the prompt");
    if ((resumes && resume_prompt(gen, request, err) < 0) ||
        (as_text && gen_read_text(o, false, &more, err) < 0))
        goto out;
    if (o->prompt_ids && ids_parse(prompt, o->prompt_ids, err) < 0) {
        err_prefix(err, "--prompt-ids");
        goto out;
    }
    if (spell_prompt(gen, prompt, more.len > 0, text, err) < 0 ||
        (more.len && !o->chat && buf_add(text, more.data, more.len, err) < 0))
        goto out;
    /* Text that continues a sequence is tokenized separately, without BOS. */
    if (as_text && (o->chat ? add_chat(gen, &more, resumes, prompt, text, err)
                            : serve_encode(gen->model, buf_text(&more), more.len, !resumes,
                                           !o->no_parse_special, prompt, err)) < 0)
        err_prefix(err, "prompt");
    else
        rc = 0;
out:
    buf_release(&more);
    return rc;
}

/* ---- the text ---- */

struct text_job {
    struct gen *gen;
    struct ids ids; /* prompt ids, then generated ids */
    struct gen_request request;
    size_t n_prompt;
    struct buf prompt_text;
    struct gen_answer answer;
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

static int flush_output(struct err *err)
{
    return fflush(stdout) == 0 && !ferror(stdout) ? 0
                                                  : err_errno(err, "cannot write to standard output");
}

static int print_prompt(struct text_job *job, struct err *err)
{
    if (!job->gen->options->ids)
        return gen_put(&job->prompt_text, err);
    put_ids(job, job->ids.id, job->n_prompt);
    return 0;
}

static int next_request(void *arg, bool wait, const struct gen_request **request, struct err *err)
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

static int show(void *arg, const struct gen_result *more, struct err *err)
{
    struct text_job *job = arg;
    AUTO(buf_release) struct buf text = {0};
    cli_progress_end(&job->progress);
    if (job->gen->options->echo && !job->echoed && print_prompt(job, err) < 0)
        return -1;
    job->echoed = true;
    if (job->gen->options->ids)
        put_ids(job, more->ids, more->n_ids);
    else if (gen_answer_add(&job->answer, more->text, more->text_len, &text, err) < 0 ||
             cli_put(buf_text(&text), text.len, err) < 0)
        return -1;
    return flush_output(err);
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
    const struct kv_setup *setup = kv_setup(session_kv(gen->session));
    const size_t n = result->n_prompt + result->n_ids, window = setup->window;
    if (gen->options->quiet || !window || setup->sinks || session_options(gen->session)->recompute ||
        n <= window || !tokenizer_leading(gen->model->tok, result->ids - result->n_prompt, n))
        return;
    fprintf(stderr,
            "%s: the text has %zu tokens, so that the window of %zu left the BOS token behind; "
            "sinks=4 behind --kv shift, or --context-shift recompute, keeps it\n",
            gen->program->name, n, window);
}

/* Prints the other results of a beam search, one per line. */
static int put_beams(struct text_job *job, const struct gen_result *result, struct err *err)
{
    int rc = 0;
    for (size_t i = 1; i < result->n_beams && rc == 0; i++) {
        AUTO(buf_release) struct buf text = {0};
        job->begun = false;
        if (job->gen->options->ids)
            put_ids(job, result->beams[i].ids.id, result->beams[i].ids.len);
        else if ((rc = result_beam_text(job->gen->model->tok, result, i, &text, err)) == 0)
            rc = gen_put(&text, err);
        putchar('\n');
    }
    return rc;
}

static int text_done(void *arg, const struct gen_result *result, struct err *err)
{
    struct text_job *job = arg;
    AUTO(buf_release) struct buf rest = {0};
    if (result->finish == FINISHED_ERROR && !cli_interrupted)
        return gen_request_failure(result, err);
    if (gen_answer_end(&job->answer, result, &rest, err) < 0 ||
        cli_put(buf_text(&rest), rest.len, err) < 0)
        return -1;
    putchar('\n');
    if (put_beams(job, result, err) < 0)
        return -1;
    if (flush_output(err) < 0)
        return -1;
    if (result->full)
        warn_full(job->gen);
    note_lost_bos(job->gen, result);
    return 0;
}

/* Called during prefill: updates the progress bar. A prompt of one chunk gets a bar only if prefill
 * takes noticeable time. */
static void show_prefill(void *arg, size_t rows, size_t total)
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
    struct gen_callbacks callbacks = {next_request, show, text_done, show_prefill, keep, &job, NULL};
    struct gen_stats stats;
    int rc = -1;
    gen_hint_batch(gen, 1);
    cli_progress_begin(&job.progress, job.label);
    if (gen_read_prompt(gen, &job.ids, &job.prompt_text, &job.request, err) < 0 ||
        gen_open_session(gen, gen->options->batch ? gen->options->batch : 1, job.ids.len, err) < 0)
        goto out;
    job.n_prompt = job.ids.len;
    if (gen_answer_begin(gen, &job.answer, &job.request, &job.prompt_text, err) < 0)
        goto out;
    snprintf(job.label, sizeof job.label, "prompt of %zu tokens", job.n_prompt);
    if (gen->options->prompt_cache)
        gen_reuse(gen, &job.request);
    callbacks.watch = gen->serve.watch;
    if (gen_begin_save(gen, err) < 0 ||
        generate(gen->session, &gen->serve.options.sampling, gen->strategy, &callbacks,
                 &cli_interrupted, &stats, err) < 0 ||
        gen_end_save(gen, err) < 0 || gen_end_receipts(gen, err) < 0)
        goto out;
    rc = gen_report(gen, &stats, err);
out:
    cli_progress_end(&job.progress);
    ids_release(&job.ids);
    buf_release(&job.prompt_text);
    gen_answer_release(&job.answer);
    return rc;
}
