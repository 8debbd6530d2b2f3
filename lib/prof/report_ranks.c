/* Builds result rows with predicted decode step times on several hosts. */
#include <stdlib.h>

#include "base/mem.h"
#include "report/stat.h"
#include "prof/rows.h"

static const char *const parallelism_names[RANKS_PARALLELISMS] = {"none", "tensor", "pipeline", "data",
                                                                  "expert"};

/* Measured cost of a decode step with `rows` sequences, one entry per round. */
struct size_cost {
    size_t rows;
    struct step_cost *round;
};

struct costs {
    struct size_cost *size;
    size_t n;
};

typedef int way_use(void *arg, const struct ranks_way *way, struct err *err);

static int each_way(const struct model *model, const struct ranks_case *what, way_use *use, void *arg,
                    struct err *err)
{
    int rc = 0;
    for (size_t b = 0; b < what->n_batches && rc == 0; b++) {
        const struct ranks_way one = {RANKS_NONE, 1, what->batch[b]};
        rc = use(arg, &one, err);
        for (size_t i = 0; i < what->n_ranks * (RANKS_PARALLELISMS - 1) && rc == 0; i++) {
            const struct ranks_way way = {(enum ranks_parallelism)(1 + i % (RANKS_PARALLELISMS - 1)),
                                          what->ranks[i / (RANKS_PARALLELISMS - 1)], what->batch[b]};
            if (ranks_rows(model, &way))
                rc = use(arg, &way, err);
        }
    }
    return rc;
}

struct finder {
    const struct report *report;
    const struct model *model;
    struct costs *costs;
};

static struct size_cost *find_size(const struct costs *costs, size_t rows)
{
    for (size_t i = 0; i < costs->n; i++)
        if (costs->size[i].rows == rows)
            return &costs->size[i];
    return NULL;
}

/* Adds the number of sequences that each rank computes to the list of batch sizes to measure. */
static int want_size(void *arg, const struct ranks_way *way, struct err *err)
{
    const struct finder *finder = arg;
    struct costs *costs = finder->costs;
    const size_t rows = ranks_rows(finder->model, way);
    if (find_size(costs, rows))
        return 0;
    struct step_cost *round = mem_zalloc((size_t)finder->report->repeat, sizeof *round);
    if (!round)
        return err_no_memory(err, "times");
    costs->size[costs->n++] = (struct size_cost){rows, round};
    return 0;
}

/* Measures decode steps of all listed batch sizes, alternating between them. */
static int measure(const struct report *report, const struct model *model, const struct kv_spec *spec,
                   const struct ranks_case *what, const struct costs *costs, struct err *err)
{
    const int all = report->warmup + report->repeat;
    for (int round = 0; round < all; round++)
        for (size_t i = 0; i < costs->n; i++) {
            struct run run = report->run;
            struct step_cost cost;
            run.batch = costs->size[i].rows;
            if (run_step_cost(&run, model, spec, what->depth, what->n_gen, &cost, err) < 0)
                return -1;
            if (round >= report->warmup)
                costs->size[i].round[round - report->warmup] = cost;
            report_progress(report, (size_t)round * costs->n + i + 1, (size_t)all * costs->n);
        }
    return 0;
}

struct ranks_writer {
    const struct report *report;
    const struct model *model;
    const struct ranks_case *what;
    const struct kv_spec *spec;
    const struct costs *costs;
    json_t *rows;
    double one_ms; /* step time of one process with this batch */
};

/* Predicts the step time from each round's measured cost (step_ms[round]); returns computation and
 * network time of the median. */
static struct ranks_step expect(const struct ranks_writer *w, const struct ranks_way *way,
                                double *step_ms)
{
    const struct size_cost *size = find_size(w->costs, ranks_rows(w->model, way));
    const size_t n = (size_t)w->report->repeat;
    struct ranks_step step = {0};
    double network[MAX_REPEAT], sorted[MAX_REPEAT];
    for (size_t i = 0; i < n; i++) {
        step = ranks_expect(w->model, way, &size->round[i], &w->what->network);
        network[i] = step.network_ms;
        sorted[i] = step_ms[i] = step.compute_ms + step.network_ms;
    }
    step.network_ms = stat_quantile(network, n, 0.5);
    step.compute_ms = stat_quantile(sorted, n, 0.5) - step.network_ms;
    return step;
}

static json_t *members(const struct ranks_writer *w, const struct ranks_way *way,
                       const struct ranks_step *step)
{
    const double ms = step->compute_ms + step->network_ms;
    return json_pack("{s:I, s:I, s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "batch",
                     (json_int_t)way->batch, "ranks", (json_int_t)way->ranks, "parallelism",
                     parallelism_names[way->parallelism], "network", w->what->network_text, "depth",
                     (json_int_t)w->what->depth, "n_gen", (json_int_t)w->what->n_gen, "compute_ms",
                     step->compute_ms, "network_ms", step->network_ms, "step_ms", ms, "tok_s",
                     ms > 0 ? (double)way->batch / ms * 1e3 : 0, "against_one",
                     ms > 0 ? w->one_ms / ms : 0, "sent_bytes", (json_int_t)step->sent_bytes,
                     "sent_calls", (json_int_t)step->sent_calls);
}

static int add_row(void *arg, const struct ranks_way *way, struct err *err)
{
    struct ranks_writer *w = arg;
    double step_ms[MAX_REPEAT];
    const struct ranks_step step = expect(w, way, step_ms);
    if (way->parallelism == RANKS_NONE)
        w->one_ms = step.compute_ms;
    json_t *row = members(w, way, &step);
    int rc = rows_add_setup(w->report, w->spec, row, err);
    if (rc == 0)
        rc = rows_add_samples(row, "step_ms", step_ms, (size_t)w->report->repeat, sizeof *step_ms, err);
    return rows_end(rc, row, w->rows, err);
}

int report_ranks(const struct report *report, const struct model *model, const struct kv_spec *spec,
                 const struct ranks_case *what, json_t *rows, struct err *err)
{
    struct costs costs = {.size = mem_zalloc(what->n_batches * (1 + what->n_ranks * RANKS_PARALLELISMS),
                                             sizeof *costs.size)};
    struct finder finder = {report, model, &costs};
    struct ranks_writer writer = {report, model, what, spec, &costs, rows, 0};
    int rc = costs.size ? each_way(model, what, want_size, &finder, err) : err_no_memory(err, "times");
    if (rc == 0 && (rc = measure(report, model, spec, what, &costs, err)) == 0)
        rc = each_way(model, what, add_row, &writer, err);
    for (size_t i = 0; i < costs.n; i++)
        free(costs.size[i].round);
    free(costs.size);
    return rc;
}
