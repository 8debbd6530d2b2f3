/* bmc-gen --jsonl: serves the input's requests in this process or on all ranks. */
#include "gen/gen.h"
#include "gen/gen_ranks.h"
#include "serve/dispatcher.h"
#include "serve/serve_lines.h"
#include "serve/worker.h"

struct jsonl_run {
    struct gen *gen;
    struct lines in;
    struct results out;
};

static int next(void *arg, bool wait, struct jsonl_line *line, struct err *err)
{
    struct jsonl_run *run = arg;
    const int got = lines_next(&run->in, wait, &line->text, &line->len, err);
    if (got != GEN_REQUEST)
        return got;
    line->number = run->in.number;
    run->gen->n_requests++;
    return results_expect(&run->out, line->number, err) < 0 ? -1 : GEN_REQUEST;
}

static int event(void *arg, struct buf *text, struct err *err)
{
    const struct jsonl_run *run = arg;
    const int rc = run->out.write(text, err);
    buf_release(text);
    return rc;
}

static int put(void *arg, const struct jsonl_result *result, struct buf *text, struct err *err)
{
    struct jsonl_run *run = arg;
    run->gen->n_failed += result->failed;
    return results_put(&run->out, result->number, text, err);
}

static int serve_alone(struct jsonl_run *run, struct err *err)
{
    struct gen *gen = run->gen;
    const struct jsonl_io io = {
        .next = next, .put = put, .event = event, .can_cancel = true, .arg = run};
    struct gen_stats stats;
    struct err ignored;
    int rc = -1;
    if (gen_begin_save(gen, err) == 0 && serve_lines(&gen->serve, &io, &stats, err) == 0 &&
        gen_end_save(gen, err) == 0)
        rc = gen_report(gen, &stats, err);
    if (rc < 0 && results_end(&run->out, &ignored) < 0)
        rc = -1; /* the run's error is reported rather than the write error */
    return rc;
}

/* Serves requests as rank 0 under data parallelism. */
static int serve_by_ranks(struct jsonl_run *run, struct err *err)
{
    struct gen *gen = run->gen;
    gen->serve.ignored = NULL; /* the dispatcher sees all requests */
    struct dispatch dispatch = {
        .ranks = gen->ranks,
        .slots = session_options(gen->session)->batch / size_max(1, gen->options->beams),
        .lines = &run->in,
        .results = &run->out,
    };
    int rc = dispatch_lines(&gen->serve, &dispatch, err);
    gen->n_requests = dispatch.n_requests;
    gen->n_failed = dispatch.n_failed;
    gen->ignored = dispatch.ignored;
    if (rc == 0) {
        gen->counts = &dispatch.counts;
        rc = gen_report(gen, &dispatch.counts.gen, err);
        gen->counts = NULL;
    }
    return rc;
}

static int work(struct gen *gen, struct err *err)
{
    struct mailbox mailbox;
    mailbox_open(&mailbox, gen->ranks);
    const int rc = worker_run(&gen->serve, &mailbox, rank_name().text, err);
    mailbox_close(&mailbox);
    return rc;
}

int gen_jsonl(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const bool data_parallel = gen->ranks && gen->parallelism == DATA_PARALLEL;
    const size_t by_memory = o->memory_bytes ? GEN_AS_FIT : JSONL_BATCH;
    struct jsonl_run run = {.gen = gen, .out = {.write = gen_put_line, .unordered = o->unordered}};
    size_t total_bytes;
    gen_hint_batch(gen, 0);
    if (gen_open_session(gen, o->batch ? o->batch : by_memory, gen->model->config.context, err) < 0)
        return -1;
    if (data_parallel && gen->ranks->rank > 0)
        return work(gen, err);
    if (!data_parallel)
        gen_hint_terminal(gen, "requests, a JSON object per line,");
    if (gen_open_lines(gen, &run.in, &total_bytes, err) < 0)
        return -1;
    const int rc = data_parallel ? serve_by_ranks(&run, err) : serve_alone(&run, err);
    results_release(&run.out);
    gen_close_lines(&run.in);
    return rc;
}

int gen_jsonl_verdict(struct gen *gen, struct err *err)
{
    gen->over = true;
    gen_note_ignored(gen, gen->ignored);
    return cli_interrupted ? 0 : lines_failed(gen->n_failed, gen->n_requests, "requests", err);
}
