/* bmc-gen --jsonl: requests from an input to standard output, by this process alone or by all ranks. */
#include "cli.h"
#include "gen_jsonl.h"
#include "gen_lines.h"
#include "gen_results.h"

struct alone {
    struct gen *gen;
    struct lines in;
    struct results out;
};

static int alone_next(void *arg, bool wait, struct jsonl_line *line, struct err *err)
{
    struct alone *alone = arg;
    const int got = lines_next(&alone->in, wait, &line->text, &line->len, err);
    if (got != GEN_REQUEST)
        return got;
    line->number = alone->gen->n_requests++;
    return results_expect(&alone->out, err) < 0 ? -1 : GEN_REQUEST;
}

static int alone_put(void *arg, const struct jsonl_result *result, struct buf *text, struct err *err)
{
    struct alone *alone = arg;
    alone->gen->n_failed += result->failed;
    return results_put(&alone->out, result->number, text, err);
}

static int run_alone(struct gen *gen, struct err *err)
{
    struct alone alone = {.gen = gen, .out.unordered = gen->options->unordered};
    const struct jsonl_ends ends = {alone_next, alone_put, &alone};
    struct gen_stats stats;
    struct err none;
    int rc = -1;
    gen_hint_terminal(gen, "requests, a JSON object per line,");
    if (lines_open(&alone.in, gen->options->file, err) == 0 && gen_begin_save(gen, err) == 0 &&
        jsonl_run(gen, &ends, &stats, err) == 0 && gen_end_save(gen, err) == 0)
        rc = gen_report(gen, &stats, err);
    if (rc < 0 && results_end(&alone.out, &none) < 0)
        rc = -1; /* the run's error is told, not this one */
    results_release(&alone.out);
    lines_close(&alone.in);
    return rc;
}

int gen_jsonl(struct gen *gen, struct err *err)
{
    const struct gen_options *o = gen->options;
    const size_t by_memory = o->memory_bytes ? GEN_AS_FIT : JSONL_BATCH;
    const size_t batch = o->batch ? o->batch : by_memory;
    gen_hint_batch(gen, 0);
    if (gen_open_session(gen, batch, gen->model->config.context, err) < 0)
        return -1;
    return gen->ranks && gen->split == SPLIT_REQUESTS ? gen_jsonl_ranks(gen, err) : run_alone(gen, err);
}

int gen_jsonl_verdict(struct gen *gen, struct err *err)
{
    gen->over = true;
    return lines_verdict(gen->n_failed, gen->n_requests, "requests", err);
}
