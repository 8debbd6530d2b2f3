/* bmc-prof instances: compares one process on all cores with several processes that divide the
 * cores (BMC paper, section VIII: BMC_MI). Every configuration is a run of bmc-gen over the same
 * requests, measured by its statistics. */
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "model/model.h"
#include "prof/prof.h"
#include "prof/prof_launch.h"

#define LAUNCHER "mpirun --bind-to core --map-by slot:PE=%t"

struct instances {
    struct prof *prof;
    int requests; /* memory file with the requests */
};

/* Writes the requests that all configurations run. Their first token ids differ, so that no prefix
 * is shared. */
static int write_requests(const struct instances *in, const struct test *test, struct err *err)
{
    const size_t ids = size_min(in->prof->report.run.config.vocab, 300);
    struct buf text = {0};
    int rc = 0;
    for (size_t i = 0; i < test->batch && rc == 0; i++) {
        if (cli_interrupted) {
            rc = err_code(err, ERR_INTERRUPTED, "interrupted");
            break;
        }
        rc = buf_addf(&text, err, "{\"n\":%zu,\"ids\":[%zu", test->n_gen, i * 7 % ids);
        for (size_t k = 1; k < test->n_prompt && rc == 0; k++)
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

static int spell_command(const struct instances *in, const struct measurement *m, struct command *c,
                         struct err *err)
{
    const struct prof_options *o = &in->prof->options;
    const struct test *way = &m->test;
    const size_t threads = (size_t)in->prof->report.run.threads / way->ranks;
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
        command_add(c, err, "%s", in->prof->report.shape) < 0 ||
        command_add_text(c, "-b %t", div_up(way->batch, way->ranks), err) < 0 ||
        command_add_text(c, "-t %t", threads, err) < 0 ||
        command_add_text(c, "-c %t --kv", m->N, err) < 0)
        return -1;
    return command_add(c, err, "%s", m->contender->text);
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
    f->tok_s_end_to_end = ms > 0 ? number(stats, "sampled_tokens") / ms * 1e3 : 0;
    f->step_ms = steps > 0 ? number(stats, "decode_ms") / steps : 0;
    f->pss_bytes = number(stats, "pss_bytes");
    json_decref(stats);
    return 0;
}

static int measure_instances(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct instances *in = arg;
    struct command command = {0};
    struct buf output = {0};
    int rc = write_requests(in, &m->test, err);
    if (rc == 0 && (rc = spell_command(in, m, &command, err)) == 0 &&
        (rc = command_run(&command, in->requests, &output, err)) == 0)
        rc = read_figures(&output, f, err);
    if (rc < 0 && m->test.ranks > 1)
        err_prefix(
            err, "%zu processes (--launcher says what starts them, \"make deps-mpi mpi\" installs it)",
            m->test.ranks);
    buf_release(&output);
    command_release(&command);
    return rc;
}

/* Lists every number of ranks that divides the threads, for every batch size. */
static int list_tests(struct prof *prof, struct test test, size_t *group, struct err *err)
{
    const size_t threads = (size_t)prof->report.run.threads;
    size_t batch[PROF_MAX_LIST], n;
    prof_list(prof->options.batch, "--parallel", 1, MOST_SEQUENCES, batch, &n);
    prof->test = mem_alloc(n * threads, sizeof *prof->test);
    if (!prof->test)
        return err_no_memory(err, "figures");
    for (size_t b = 0; b < n; b++)
        for (test.ranks = 1; test.ranks <= threads; test.ranks++) {
            test.batch = batch[b];
            if (threads % test.ranks == 0)
                prof->test[prof->n_tests++] = test;
        }
    *group = prof->n_tests / n * prof->n_contenders;
    return measurements_open(&prof->all, &prof->report, prof->contender, prof->n_contenders, prof->test,
                             prof->n_tests, err);
}

int prof_measure_instances(struct prof *prof, struct err *err)
{
    const struct test test = {.n_prompt = prof_one(prof->options.prompt, "--prompt", 1),
                              .n_gen = prof_one(prof->options.gen, "--gen", 1)};
    struct run *run = &prof->report.run;
    struct instances in = {prof, -1};
    size_t group;
    run->N = test.n_prompt + test.n_gen;
    if (run->N > run->config.context)
        return err_set(err, "%zu tokens and %zu more are beyond the model's context of %zu",
                       test.n_prompt, test.n_gen, run->config.context);
    if (list_tests(prof, test, &group, err) < 0)
        return -1;
    if ((in.requests = memfd_create("requests", MFD_CLOEXEC)) < 0)
        return err_errno(err, "cannot hold the requests");
    const int rc = measure_all(&prof->all, &prof->report, measure_instances, &in, err);
    close(in.requests);
    if (rc < 0)
        return -1;
    measurements_relate(&prof->all, &prof->report, group, "");
    return report_measurements(&prof->report, &prof_rows[PROF_INSTANCES], &prof->all, prof->rows, err);
}
