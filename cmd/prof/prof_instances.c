/* bmc-prof instances: compares one process on all cores with several processes that divide the
 * cores (BMC paper, section VIII: BMC_MI). Every configuration is a run of bmc-gen over the same
 * requests, measured by its statistics. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "report/stat.h"
#include "cli.h"
#include "model/model.h"
#include "prof/prof.h"
#include "prof/rows.h"
#include "prof/prof_launch.h"

#define LAUNCHER "mpirun --bind-to core --map-by slot:PE=%t"

struct way {
    size_t batch, ranks;
    const char *policy;
    struct err why; /* why it could not be measured; "" if it could */
};

struct figures {
    double tok_s, step_ms, pss_bytes;
};

struct instances {
    struct prof prof;
    size_t n_prompt, n_gen;
    int requests; /* memory file with the requests */
    struct way *way;
    size_t n_ways;
    struct figures *figures; /* [ways][repeat] */
};

/* Writes the requests that all configurations run. Their first token ids differ, so that no prefix
 * is shared. */
static int write_requests(const struct instances *in, size_t batch, struct err *err)
{
    const size_t ids = size_min(in->prof.report.run.config.vocab, 300);
    struct buf text = {0};
    int rc = 0;
    for (size_t i = 0; i < batch && rc == 0; i++) {
        if (cli_interrupted) {
            rc = err_code(err, ERR_INTERRUPTED, "interrupted");
            break;
        }
        rc = buf_addf(&text, err, "{\"n\":%zu,\"ids\":[%zu", in->n_gen, i * 7 % ids);
        for (size_t k = 1; k < in->n_prompt && rc == 0; k++)
            rc = buf_addf(&text, err, ",%zu", (k * 11 + i) % ids);
        if (rc == 0)
            rc = buf_addf(&text, err, "]}\n");
    }
    if (rc == 0 && (ftruncate(in->requests, 0) < 0 || lseek(in->requests, 0, SEEK_SET) < 0 ||
                    write(in->requests, text.data, text.len) != (ssize_t)text.len))
        rc = err_errno(err, "cannot hold the requests");
    buf_release(&text);
    return rc;
}

static int spell_command(const struct instances *in, const struct way *way, struct command *c,
                         struct err *err)
{
    const struct prof_options *o = in->prof.options;
    const size_t threads = (size_t)in->prof.report.run.threads / way->ranks;
    char program[8192];
    if (cli_beside("bmc-gen", program, sizeof program, err) < 0)
        return -1;
    if (way->ranks > 1 &&
        (command_add_text(c, o->launcher ? o->launcher : LAUNCHER, threads, err) < 0 ||
         command_add(c, err, "-n") < 0 || command_add(c, err, "%zu", way->ranks) < 0))
        return -1;
    if (command_add(c, err, "%s", program) < 0 ||
        command_add_text(c, "-q --jsonl --ignore-eos --prefix-cache-mb 0 --profile none --stats - -m",
                         0, err) < 0 ||
        command_add(c, err, "%s", in->prof.report.shape) < 0 ||
        command_add_text(c, "-b %t", div_up(way->batch, way->ranks), err) < 0 ||
        command_add_text(c, "-t %t", threads, err) < 0 ||
        command_add_text(c, "-c %t --kv", in->n_prompt + in->n_gen, err) < 0)
        return -1;
    return command_add(c, err, "%s", way->policy);
}

/* A number in the statistics; 0: absent. */
static double number(const json_t *stats, const char *key)
{
    return json_number_value(json_object_get(stats, key));
}

/* Reads the statistics, the last line of the output. */
static int read_figures(const struct buf *output, struct figures *f, struct err *err)
{
    json_t *stats;
    size_t end = output->len, begin;
    while (end && output->data[end - 1] == '\n')
        end--;
    for (begin = end; begin && output->data[begin - 1] != '\n'; begin--)
        ;
    if (json_parse(output->data + begin, end - begin, "bmc-gen's statistics", &stats, err) < 0)
        return -1;
    const double ms =
        number(stats, "prefill_ms") + number(stats, "decode_ms") + number(stats, "sample_ms");
    const double steps = number(stats, "decode_steps") / number(stats, "ranks");
    f->tok_s = ms > 0 ? number(stats, "sampled_tokens") / ms * 1e3 : 0;
    f->step_ms = steps > 0 ? number(stats, "decode_ms") / steps : 0;
    f->pss_bytes = number(stats, "pss_bytes");
    json_decref(stats);
    return 0;
}

static int run_way(const struct instances *in, const struct way *way, struct figures *f,
                   struct err *err)
{
    struct command command = {0};
    struct buf output = {0};
    int rc = write_requests(in, way->batch, err);
    if (rc == 0 && (rc = spell_command(in, way, &command, err)) == 0 &&
        (rc = command_run(&command, in->requests, &output, err)) == 0)
        rc = read_figures(&output, f, err);
    if (rc < 0 && way->ranks > 1)
        err_prefix(
            err, "%zu processes (--launcher says what starts them, \"make deps-mpi mpi\" installs it)",
            way->ranks);
    buf_release(&output);
    command_release(&command);
    return rc;
}

/* Runs all configurations in each round. */
static int run_all(struct instances *in, struct err *err)
{
    const size_t repeat = in->prof.options->repeat;
    for (size_t i = 0; i < repeat * in->n_ways; i++) {
        const size_t way = i % in->n_ways, round = i / in->n_ways;
        if (*in->way[way].why.text)
            continue;
        if (run_way(in, &in->way[way], &in->figures[way * repeat + round], &in->way[way].why) < 0 &&
            cli_interrupted) {
            *err = in->way[way].why;
            return -1;
        }
        in->prof.report.progress(in->prof.report.arg, i + 1, repeat * in->n_ways);
    }
    return 0;
}

static double median(const double *first, size_t n)
{
    enum { FIGURES = sizeof(struct figures) / sizeof(double) };
    double x[MAX_REPEAT];
    for (size_t i = 0; i < n; i++)
        x[i] = first[i * FIGURES];
    return stat_quantile(x, n, 0.5);
}

/* Tokens/s relative to the first configuration with the same batch size; 0: not measured. */
static double against_first(const struct instances *in, size_t way)
{
    const size_t repeat = in->prof.options->repeat;
    size_t first = way;
    while (first && in->way[first - 1].batch == in->way[way].batch)
        first--;
    const double base =
        *in->way[first].why.text ? 0 : median(&in->figures[first * repeat].tok_s, repeat);
    return base > 0 ? median(&in->figures[way * repeat].tok_s, repeat) / base : 0;
}

static int add_row(const struct instances *in, size_t i, struct err *err)
{
    const struct report *report = &in->prof.report;
    const size_t threads = (size_t)report->run.threads;
    const size_t repeat = in->prof.options->repeat;
    const struct way *way = &in->way[i];
    const struct figures *f = &in->figures[i * repeat];
    if (*way->why.text)
        return rows_add_failure(report, way->policy, NULL, report->run.N,
                                json_pack("{s:I, s:I, s:I, s:I, s:I}", "batch", (json_int_t)way->batch,
                                          "ranks", (json_int_t)way->ranks, "rank_threads",
                                          (json_int_t)(threads / way->ranks), "n_prompt",
                                          (json_int_t)in->n_prompt, "n_gen", (json_int_t)in->n_gen),
                                &way->why, in->prof.rows, err);
    json_t *row = json_pack(
        "{s:I, s:I, s:I, s:s, s:I, s:I, s:f, s:f, s:o, s:I}", "batch", (json_int_t)way->batch, "ranks",
        (json_int_t)way->ranks, "rank_threads", (json_int_t)(threads / way->ranks), "policy",
        way->policy, "n_prompt", (json_int_t)in->n_prompt, "n_gen", (json_int_t)in->n_gen,
        "tok_s_end_to_end", median(&f->tok_s, repeat), "step_ms", median(&f->step_ms, repeat),
        "against_first", rows_real_if(against_first(in, i) > 0, against_first(in, i)), "pss_bytes",
        (json_int_t)median(&f->pss_bytes, repeat));
    int rc = rows_add_setup(report, NULL, row, err);
    if (rc == 0)
        rc = rows_add_samples(row, "tok_s_end_to_end", &f->tok_s, repeat, sizeof *f, err);
    if (rc == 0)
        rc = rows_add_samples(row, "step_ms", &f->step_ms, repeat, sizeof *f, err);
    return rows_end(rc, row, in->prof.rows, err);
}

static int print(const struct instances *in, struct err *err)
{
    for (size_t i = 0; i < in->n_ways; i++)
        if (add_row(in, i, err) < 0)
            return -1;
    return prof_print(
        &in->prof, "batch ranks rank_threads policy tok_s_end_to_end step_ms pss_bytes against_first",
        err);
}

/* Lists every number of ranks that divides the threads, for every policy and batch size. */
static int list_ways(struct instances *in, struct err *err)
{
    const struct prof *prof = &in->prof;
    const size_t threads = (size_t)prof->report.run.threads;
    size_t batch[PROF_MAX_LIST], n_batches;
    opt_sizes(&prof_program, &(struct opt_sizes){"--parallel", 1, MOST_SEQUENCES, PROF_MAX_LIST},
              prof->options->batch, batch, &n_batches);
    in->way = mem_alloc(n_batches * threads * prof->n_contenders, sizeof *in->way);
    in->figures = mem_zalloc(n_batches * threads * prof->n_contenders * prof->options->repeat,
                             sizeof *in->figures);
    if (!in->way || !in->figures)
        return err_no_memory(err, "figures");
    for (size_t b = 0; b < n_batches; b++)
        for (size_t ranks = 1; ranks <= threads; ranks++)
            for (size_t c = 0; threads % ranks == 0 && c < prof->n_contenders; c++)
                in->way[in->n_ways++] =
                    (struct way){.batch = batch[b], .ranks = ranks, .policy = prof->contender[c].text};
    return 0;
}

static int open_instances(struct instances *in, const struct prof_options *options, struct err *err)
{
    in->n_prompt = prof_one(options->prompt, "--prompt", 1);
    in->n_gen = prof_one(options->gen, "--gen", 1);
    if (prof_open(&in->prof, options, false, err) < 0)
        return -1;
    struct run *run = &in->prof.report.run;
    if (in->n_prompt + in->n_gen > run->config.context)
        return err_set(err, "%zu tokens and %zu more are beyond the model's context of %zu",
                       in->n_prompt, in->n_gen, run->config.context);
    run->N = in->n_prompt + in->n_gen;
    if ((in->requests = memfd_create("requests", MFD_CLOEXEC)) < 0)
        return err_errno(err, "cannot hold the requests");
    return list_ways(in, err);
}

int prof_instances(const struct prof_options *options, struct err *err)
{
    struct instances in = {.requests = -1};
    int rc = open_instances(&in, options, err);
    if (rc == 0 && (rc = run_all(&in, err)) == 0)
        rc = print(&in, err);
    if (in.requests >= 0)
        close(in.requests);
    free(in.way);
    free(in.figures);
    prof_close(&in.prof);
    return rc;
}
