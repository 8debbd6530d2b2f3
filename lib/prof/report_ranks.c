/* Builds result rows with predicted decode step times on several hosts. */
#include <stdlib.h>

#include "base/mem.h"
#include "prof/report.h"
#include "report/stat.h"

static const char *const parallelism_names[RANKS_PARALLELISMS] = {"none", "tensor", "pipeline", "data",
                                                                  "expert"};

/* Measured costs of a decode step with `rows` sequences, one entry per round. */
struct size_cost {
    size_t rows;
    struct step_cost *round;
};

struct ranks_job {
    const struct report *report;
    const struct model *model;
    const struct contender *contender;
    const struct ranks_case *what;
    const struct row_kind *kind;
    struct size_cost *size; /* [n_sizes] */
    size_t n_sizes;
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

static struct size_cost *find_size(const struct ranks_job *job, size_t rows)
{
    for (size_t i = 0; i < job->n_sizes; i++)
        if (job->size[i].rows == rows)
            return &job->size[i];
    return NULL;
}

/* Adds the number of sequences that each rank computes to the list of batch sizes to measure. */
static int want_size(struct ranks_job *job, const struct ranks_way *way, struct err *err)
{
    const size_t rows = ranks_rows(job->model, way);
    if (find_size(job, rows))
        return 0;
    struct step_cost *round = mem_zalloc((size_t)job->report->repeat, sizeof *round);
    if (!round)
        return err_no_memory(err, "times");
    job->size[job->n_sizes++] = (struct size_cost){rows, round};
    return 0;
}

/* Measures decode steps of all listed batch sizes, alternating between them. */
static int measure_sizes(const struct ranks_job *job, struct err *err)
{
    const struct report *report = job->report;
    const size_t warmup = (size_t)report->warmup,
                 all = (warmup + (size_t)report->repeat) * job->n_sizes;
    for (size_t i = 0; i < all; i++) {
        const struct size_cost *size = &job->size[i % job->n_sizes];
        const size_t round = i / job->n_sizes;
        struct run run = report->run;
        struct step_cost cost;
        run.batch = size->rows;
        if (run_step_cost(&run, job->model, &job->contender->spec, job->what->depth, job->what->n_gen,
                          &cost, err) < 0)
            return -1;
        if (round >= warmup)
            size->round[round - warmup] = cost;
        report->progress(report->arg, i + 1, all);
    }
    return 0;
}

/* Predicts the step time from each round's measured cost; computation is what the median leaves beside the network. */
static int add_way(struct ranks_job *job, const struct ranks_way *way, struct err *err)
{
    const struct size_cost *size = find_size(job, ranks_rows(job->model, way));
    const size_t n = (size_t)job->report->repeat;
    struct figures round[MAX_REPEAT];
    struct measurement m = {.contender = job->contender, .N = job->report->run.N, .round = round};
    double network[MAX_REPEAT], step_ms[MAX_REPEAT];
    for (size_t i = 0; i < n; i++) {
        const struct ranks_step step =
            ranks_expect(job->model, way, &size->round[i], &job->what->network);
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
    job.size = mem_zalloc(what->n_batches * (1 + what->n_ranks * RANKS_PARALLELISMS), sizeof *job.size);
    int rc = job.size ? each_way(&job, want_size, err) : err_no_memory(err, "times");
    if (rc == 0 && (rc = measure_sizes(&job, err)) == 0)
        rc = each_way(&job, add_way, err);
    for (size_t i = 0; i < job.n_sizes; i++)
        free(job.size[i].round);
    free(job.size);
    return rc;
}
