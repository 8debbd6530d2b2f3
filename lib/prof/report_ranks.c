/* Builds result rows with predicted decode step times on several hosts. */
#include <stdlib.h>

#include "base/mem.h"
#include "prof/report.h"
#include "report/stat.h"

static const char *const parallelism_names[RANKS_PARALLELISMS] = {"none", "tensor", "pipeline", "data",
                                                                  "expert"};

struct ranks_job {
    const struct report *report;
    const struct model *model;
    const struct contender *contender;
    const struct ranks_case *what;
    const struct row_kind *kind;
    struct test *test; /* [n_tests] batch sizes that ranks compute */
    size_t n_tests;
    struct measurements sizes; /* of these, with the costs of a step */
    json_t *rows;
    double one_ms; /* step time of one process with this batch */
};

typedef int way_use(struct ranks_job *job, const struct ranks_way *way, struct err *err);

static int each_way(struct ranks_job *job, way_use *use, struct err *err)
{
    const struct ranks_case *what = job->what;
    int rc = 0;
    for (size_t b = 0; b < what->n_batches && rc == 0; b++) {
        const struct ranks_way one = {RANKS_NONE, 1, what->batch[b]};
        rc = use(job, &one, err);
        for (size_t i = 0; i < what->n_ranks * (RANKS_PARALLELISMS - 1) && rc == 0; i++) {
            const struct ranks_way way = {(enum ranks_parallelism)(1 + i % (RANKS_PARALLELISMS - 1)),
                                          what->ranks[i / (RANKS_PARALLELISMS - 1)], what->batch[b]};
            if (ranks_rows(job->model, &way))
                rc = use(job, &way, err);
        }
    }
    return rc;
}

static size_t find_size(const struct ranks_job *job, size_t rows)
{
    size_t i = 0;
    while (i < job->n_tests && job->test[i].batch != rows)
        i++;
    return i;
}

/* Adds the number of sequences that each rank computes to the list of batch sizes to measure. */
static int want_size(struct ranks_job *job, const struct ranks_way *way, struct err *err)
{
    const size_t rows = ranks_rows(job->model, way);
    (void)err;
    if (find_size(job, rows) == job->n_tests)
        job->test[job->n_tests++] =
            (struct test){.batch = rows, .depth = job->what->depth, .n_gen = job->what->n_gen};
    return 0;
}

static int measure_size(void *arg, const struct measurement *m, struct figures *f, struct err *err)
{
    const struct ranks_job *job = arg;
    struct run run = job->report->run;
    run.batch = m->test.batch;
    return run_step_cost(&run, job->model, &m->contender->spec, m->test.depth, m->test.n_gen, &f->cost,
                         err);
}

static int measure_sizes(struct ranks_job *job, struct err *err)
{
    if (measurements_open(&job->sizes, job->report, job->contender, 1, job->test, job->n_tests, err) <
            0 ||
        measure_all(&job->sizes, job->report, measure_size, job, err) < 0)
        return -1;
    for (size_t i = 0; i < job->sizes.n; i++)
        if (*job->sizes.list[i].why.text) {
            *err = job->sizes.list[i].why;
            return -1;
        }
    return 0;
}

/* Predicts the step time from each round's measured cost; computation is what the median leaves beside the network. */
static int add_way(struct ranks_job *job, const struct ranks_way *way, struct err *err)
{
    const struct measurement *size = &job->sizes.list[find_size(job, ranks_rows(job->model, way))];
    const size_t n = (size_t)job->report->repeat;
    struct figures round[MAX_REPEAT];
    const struct measurement m = {.contender = job->contender, .N = size->N, .round = round};
    double network[MAX_REPEAT], step_ms[MAX_REPEAT];
    for (size_t i = 0; i < n; i++) {
        const struct ranks_step step =
            ranks_expect(job->model, way, &size->round[i].cost, &job->what->network);
        network[i] = step.network_ms;
        step_ms[i] = step.compute_ms + step.network_ms;
        round[i] = (struct figures){.test = {.batch = way->batch,
                                             .ranks = way->ranks,
                                             .depth = job->what->depth,
                                             .n_gen = job->what->n_gen},
                                    .parallelism = parallelism_names[way->parallelism],
                                    .network = job->what->network_text,
                                    .step_ms = step_ms[i],
                                    .sent_bytes = step.sent_bytes,
                                    .sent_calls = step.sent_calls};
    }
    struct figures *last = &round[n - 1];
    const double ms = stat_quantile(step_ms, n, 0.5);
    last->network_ms = stat_quantile(network, n, 0.5);
    last->compute_ms = ms - last->network_ms;
    if (way->parallelism == RANKS_NONE)
        job->one_ms = ms;
    last->tok_s = ms > 0 ? (double)way->batch / ms * 1e3 : 0;
    last->relative = ms > 0 ? job->one_ms / ms : 0;
    return report_measurement(job->report, job->kind, &m, job->rows, err);
}

int report_ranks(const struct report *report, const struct row_kind *kind, const struct model *model,
                 const struct contender *contender, const struct ranks_case *what, json_t *rows,
                 struct err *err)
{
    struct ranks_job job = {.report = report,
                            .model = model,
                            .contender = contender,
                            .what = what,
                            .kind = kind,
                            .rows = rows};
    job.test = mem_alloc(what->n_batches * (1 + what->n_ranks * RANKS_PARALLELISMS), sizeof *job.test);
    int rc = job.test ? each_way(&job, want_size, err) : err_no_memory(err, "times");
    if (rc == 0 && (rc = measure_sizes(&job, err)) == 0)
        rc = each_way(&job, add_way, err);
    measurements_release(&job.sizes, report);
    free(job.test);
    return rc;
}
