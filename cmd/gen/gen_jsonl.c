/* bmc-gen --jsonl: serves the input's requests in this process or on all ranks. */
#include "gen/gen.h"
#include "gen/gen_ranks.h"
#include "serve/dispatcher.h"
#include "serve/lines.h"
#include "serve/serve_lines.h"

struct jsonl_run {
    struct gen *gen;
    struct lines in;
    struct results out;
};

static int read_input(void *arg, bool wait, struct serve_input *input, struct err *err)
{
    struct jsonl_run *run = arg;
    const int got = lines_next(&run->in, wait, &input->json, &input->len, err);
    if (got != GEN_REQUEST)
        return got;
    input->number = run->in.number;
    run->gen->n_requests++;
    return results_expect(&run->out, input->number, err) < 0 ? -1 : GEN_REQUEST;
}

static int write_event(void *arg, struct buf *text, struct err *err)
{
    const struct jsonl_run *run = arg;
    const int rc = run->out.write(text, err);
    buf_release(text);
    return rc;
}

static int write_result(void *arg, const struct serve_result *result, struct buf *text, struct err *err)
{
    struct jsonl_run *run = arg;
    run->gen->n_failed += result->failed;
    return results_put(&run->out, result->number, text, err);
}

/* Serves requests in this process. */
static int serve_alone(struct gen *gen, const struct serve_io *io, struct err *err)
{
    struct gen_stats stats;
    return gen_begin_save(gen, err) < 0 || serve_lines(&gen->serve, io, &stats, err) < 0 ||
                   gen_end_save(gen, err) < 0
               ? -1
               : gen_report(gen, &stats, err);
}

/* Serves requests as rank 0 under data parallelism. */
static int serve_by_ranks(struct gen *gen, const struct serve_io *io, struct err *err)
{
    struct dispatch dispatch = {
        .ranks = gen->ranks,
        .slots = session_options(gen->session)->batch / size_max(1, gen->options->beams),
    };
    if (dispatch_lines(&gen->serve, io, &dispatch, err) < 0)
        return -1;
    gen->counts = &dispatch.counts;
    const int rc = gen_report(gen, &dispatch.counts.gen, err);
    gen->counts = NULL;
    return rc;
}

static int serve_as_worker(struct gen *gen, struct err *err)
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
        return serve_as_worker(gen, err);
    if (!data_parallel)
        gen_hint_terminal(gen, "requests, a JSON object per line,");
    if (gen_open_lines(gen, &run.in, &total_bytes, err) < 0)
        return -1;
    const struct serve_io io = {
        .next = read_input, .put = write_result, .event = write_event, .can_cancel = true, .arg = &run};
    struct err ignored;
    const int rc = (data_parallel ? serve_by_ranks : serve_alone)(gen, &io, err);
    if (rc < 0)
        (void)!results_end(&run.out, &ignored); /* the run's error is reported */
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
