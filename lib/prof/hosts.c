/* Predicts the step time of several hosts: this host's arithmetic divided among them, plus network
 * transfers. */
#include "base/mem.h"
#include "decode/comm_model.h"
#include "base/number.h"
#include "model/parallel/shard_weights.h"
#include "prof/report.h"
#include "report/stat.h"

enum ranks_parallelism {
    RANKS_NONE,
    RANKS_TENSOR,
    RANKS_PIPELINE,
    RANKS_DATA,
    RANKS_EXPERT,
    RANKS_PARALLELISMS
};

/* A batch that `ranks` hosts like this one (up to RANKS_MOST) decode together, divided by
 * `split`. */
struct ranks_way {
    enum ranks_parallelism parallelism;
    size_t ranks, batch;
};

struct ranks_step {
    double compute_ms, network_ms; /* time of a step that adds one token to every sequence */
    size_t sent_bytes, sent_calls; /* per step, summed over all ranks */
};

/* ---- the network ---- */

/* Messages above EAGER_BYTES, Open MPI's eager limit over TCP, wait for the receiver (rendezvous
 * protocol), which takes EXCHANGES latencies instead of one. */
enum { EAGER_BYTES = 64 << 10, EXCHANGES = 3 };

struct network_unit {
    const char *name;
    double size;
};

static const struct network_unit rates[] = {
    {"Kb", 1e3}, {"Mb", 1e6}, {"Gb", 1e9}, {"Tb", 1e12}, {NULL, 0}};
static const struct network_unit times_ms[] = {
    {"ns", 1e-6}, {"us", 1e-3}, {"ms", 1}, {"s", 1e3}, {NULL, 0}};

/* Parses a number with a unit, as "2.5us"; false: malformed. */
static bool parse_quantity(const char *text, size_t len, const struct network_unit *unit, double *value)
{
    char number[24] = "";
    const size_t digits = strspn(text, "0123456789.");
    if (digits >= sizeof number || digits > len)
        return false;
    memcpy(number, text, digits);
    while (unit->name &&
           (strlen(unit->name) != len - digits || memcmp(unit->name, text + digits, len - digits) != 0))
        unit++;
    if (!unit->name || !parse_double(number, value))
        return false;
    *value *= unit->size;
    return true;
}

int network_parse(struct network *network, const char *text, struct err *err)
{
    const size_t len = strcspn(text, ",");
    double bits_s;
    if (!parse_quantity(text, len, rates, &bits_s) || bits_s <= 0 || !text[len] ||
        !parse_quantity(text + len + 1, strlen(text + len + 1), times_ms, &network->latency_ms))
        return err_set(err,
                       "\"%s\" is not RATE,LATENCY, as 100Gb,2us: bits per second (Kb, Mb, Gb or Tb), "
                       "and ns, us, ms or s",
                       text);
    network->byte_ms = 8e3 / bits_s;
    return 0;
}

/* Rounds of messages in an all-gather by recursive doubling: ceil(log2(ranks)). */
static size_t rounds(size_t ranks)
{
    size_t n = 0;
    while ((size_t)1 << n < ranks)
        n++;
    return n;
}

static double transfer_ms(const struct network *network, const struct transfer *t, size_t ranks)
{
    const bool whole = t->kind == TRANSFER_HOP || t->kind == TRANSFER_COMMAND;
    const double piece = (double)t->bytes / (whole ? 1 : (double)ranks);
    const size_t pieces = t->kind == TRANSFER_HOP ? 1 : ranks - 1;
    const size_t messages = (t->kind == TRANSFER_GATHER ? rounds(ranks) : 1) *
                            (piece > EAGER_BYTES ? EXCHANGES : 1) * t->waits;
    return (double)messages * network->latency_ms +
           piece * (double)(pieces * t->times) * network->byte_ms;
}

/* Predicts the milliseconds that the transfers of a decode step between `ranks` ranks take. */
static double network_ms(const struct network *network, const struct transfers *transfers, size_t ranks)
{
    double ms = 0;
    for (size_t i = 0; i < transfers->n; i++)
        ms += transfer_ms(network, &transfers->list[i], ranks);
    return ms;
}

/* ---- the hosts ---- */

/* Number of sequences in each forward pass of a rank; 0: the model cannot be divided that way. */
static size_t ranks_rows(const struct model *model, const struct ranks_way *way)
{
    switch (way->parallelism) {
    case RANKS_EXPERT:
        return model->config.moe->experts && way->ranks <= shard_most_ranks(&model->config) ? way->batch
                                                                                            : 0;
    case RANKS_TENSOR: return way->ranks <= shard_most_ranks(&model->config) ? way->batch : 0;
    case RANKS_PIPELINE: return way->ranks <= model->config.layers ? div_up(way->batch, way->ranks) : 0;
    case RANKS_DATA: return div_up(way->batch, way->ranks);
    case RANKS_NONE:
    case RANKS_PARALLELISMS: break;
    }
    return way->batch;
}

static double step_cost_ms(const struct step_cost *cost)
{
    return cost->attention_ms + cost->mlp_ms + cost->head_ms + cost->serial_ms;
}

/* Measures steps that decode run->batch sequences at depth `depth`; medians over n_gen steps. */
static int run_step_cost(const struct run *run, const struct model *model, const struct kv_spec *spec,
                         size_t depth, size_t n_gen, struct step_cost *cost, struct err *err)
{
    struct steps_result result;
    if (run_steps(run, model, spec, depth, 0, n_gen, &result, err) < 0)
        return -1;
    const double step_ms = stat_quantile(result.step_ms, n_gen, 0.5);
    const double scale = result.decode_ms > 0 ? step_ms / result.decode_ms : 0;
    *cost = (struct step_cost){
        .attention_ms =
            (result.decode.times.ms[PHASE_ATTENTION] + result.decode.times.ms[PHASE_PROJECTION]) *
            scale,
        .mlp_ms = result.decode.times.ms[PHASE_MLP] * scale,
        .head_ms = result.decode.times.ms[PHASE_HEAD] * scale,
        .experts = result.expert_runs / (double)size_max(1, model_expert_layers(model)),
    };
    cost->serial_ms = step_ms - step_cost_ms(cost);
    free(result.step_ms);
    return 0;
}

/* The largest fraction of dimension `dim` that a rank computes under tensor parallelism. */
static double share(const struct config *c, enum dim dim, size_t ranks)
{
    size_t most = 0;
    for (size_t r = 0; r < ranks; r++)
        most = size_max(most, shard_range(c, dim, r, ranks).n);
    return (double)most / (double)config_dim(c, dim);
}

/* Choices of `used` experts of which no rank has more than `most`: a coefficient of the product of the
 * ranks' polynomials, sum over j <= most of (own experts choose j) x^j. ways[used + 1] is scratch. */
static long double choices(size_t experts, size_t ranks, size_t used, size_t most, long double *ways)
{
    long double binomial[MAX_EXPERTS + 1] = {1};
    for (size_t i = 0; i <= used; i++)
        ways[i] = i == 0;
    for (size_t r = 0; r < ranks; r++) {
        const size_t own = experts * (r + 1) / ranks - experts * r / ranks, up_to = size_min(most, own);
        for (size_t j = 0; j < up_to; j++)
            binomial[j + 1] = binomial[j] * (long double)(own - j) / (long double)(j + 1);
        /* Descending: ways[n - j] is still that of the ranks before, 0 where they would need more than `most`. */
        for (size_t n = used + 1; n-- > (r + 1 < ranks ? 0 : used);) {
            long double sum = 0;
            for (size_t j = n > r * most ? n - r * most : 0; j <= size_min(up_to, n); j++)
                sum += binomial[j] * ways[n - j];
            ways[n] = sum;
        }
    }
    return ways[used];
}

double ranks_most_experts(size_t experts, size_t ranks, size_t used)
{
    long double ways[MAX_EXPERTS + 1];
    const long double all = choices(experts, ranks, used, used, ways);
    long double sum = 0; /* of the probabilities that a rank has more than `most` */
    for (size_t most = 0; most < used; most++)
        sum += 1 - choices(experts, ranks, used, most, ways) / all;
    return (double)sum;
}

/* The share of the MLPs' time that the slowest rank needs if whole experts are distributed: that of the experts
 * it runs, and of other MLPs its shard. Their times are as the weights that they read. */
static double share_of_experts(const struct config *c, size_t ranks, double used)
{
    double experts = 0, shared = 0, plain = 0;
    for (size_t l = 0; l < c->layers; l++) {
        struct config own;
        if (c->plan[l].has_experts) {
            experts += used * (double)c->moe->ffn;
            shared += (double)c->moe->shared_ffn;
        }
        if (c->plan[l].has_mlp)
            plain += (double)config_of_layer(c, l, &own)->ffn;
    }
    const size_t n = size_min(c->moe->experts, size_max(1, (size_t)(used + 0.5)));
    const double busiest = ranks_most_experts(c->moe->experts, ranks, n) / (double)n;
    return (experts * busiest + (c->moe->shared_ffn ? shared * share(c, DIM_SHARED_FFN, ranks) : 0) +
            plain * share(c, DIM_FFN, ranks)) /
           (experts + shared + plain);
}

static int expect_tensor(struct ranks_step *step, const struct config *c, const struct ranks_way *way,
                         const struct step_cost *cost, const struct network *network, struct err *err)
{
    const bool deal = way->parallelism == RANKS_EXPERT;
    struct transfers sent;
    if (comm_by_tensor(&sent, c, way->ranks, way->batch, deal, err) < 0)
        return -1;
    const double mlp = deal ? share_of_experts(c, way->ranks, cost->experts)
                            : share(c, c->moe->experts ? DIM_EXPERT_FFN : DIM_FFN, way->ranks);
    *step = (struct ranks_step){
        .compute_ms = cost->serial_ms + cost->attention_ms * share(c, DIM_Q, way->ranks) +
                      cost->mlp_ms * mlp + cost->head_ms * share(c, DIM_VOCAB, way->ranks),
        .network_ms = network_ms(network, &sent, way->ranks),
        .sent_bytes = transfers_bytes(&sent, way->ranks),
        .sent_calls = transfers_calls(&sent, way->ranks),
    };
    return 0;
}

/* Time in milliseconds of the slowest pipeline stage for `rows` sequences: its layers, and sending
 * their activations. */
static double slowest_ms(const struct model *model, size_t ranks, size_t rows,
                         const struct step_cost *cost, double byte_ms)
{
    const struct config *c = &model->config;
    const double layer_ms = (step_cost_ms(cost) - cost->head_ms) / (double)c->layers;
    const double row_ms = (double)(rows * sizeof(float)) * byte_ms;
    double most = 0;
    size_t count[RANKS_MOST] = {0};
    shard_assign_layers(model, ranks, count);
    for (size_t r = 0; r < ranks; r++) {
        const bool last = r + 1 == ranks;
        const double ms = layer_ms * (double)count[r] + (last ? cost->head_ms : 0) +
                          (double)(last ? c->vocab : config_stream_width(c)) * row_ms;
        most = ms > most ? ms : most;
    }
    return most;
}

/* Predicts a step under pipeline parallelism. With one micro-batch per rank in flight, it takes a
 * micro-batch's round trip through all ranks, or all micro-batches on the slowest rank if
 * longer. */
static struct ranks_step expect_layers(const struct model *model, const struct ranks_way *way,
                                       const struct step_cost *cost, const struct network *network)
{
    const size_t rows = ranks_rows(model, way), groups = div_up(way->batch, rows);
    size_t count[RANKS_MOST] = {0};
    shard_assign_layers(model, way->ranks, count);
    const struct transfers sent = comm_by_layers(&model->config, count, way->ranks, rows);
    const double all_ms = step_cost_ms(cost), n = (double)groups;
    const double compute_ms = fmax(all_ms, n * slowest_ms(model, way->ranks, rows, cost, 0));
    const double round_ms = all_ms + network_ms(network, &sent, way->ranks);
    const double busy_ms = n * slowest_ms(model, way->ranks, rows, cost, network->byte_ms);
    return (struct ranks_step){
        .compute_ms = compute_ms,
        .network_ms = fmax(round_ms, busy_ms) - compute_ms,
        .sent_bytes = transfers_bytes(&sent, way->ranks) * groups,
        .sent_calls = transfers_calls(&sent, way->ranks) * groups,
    };
}

/* Predicts a decode step; `cost` is the cost measured on one host for ranks_rows() sequences. */
static int ranks_expect(struct ranks_step *step, const struct model *model, const struct ranks_way *way,
                        const struct step_cost *cost, const struct network *network, struct err *err)
{
    if (way->parallelism == RANKS_TENSOR || way->parallelism == RANKS_EXPERT)
        return expect_tensor(step, &model->config, way, cost, network, err);
    *step = way->parallelism == RANKS_PIPELINE ? expect_layers(model, way, cost, network)
                                               : (struct ranks_step){.compute_ms = step_cost_ms(cost)};
    return 0;
}

/* ---- rows ---- */

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

/* Predicts the step time from each round's measured cost; computation is the median less the network. */
static int add_way(struct ranks_job *job, const struct ranks_way *way, struct err *err)
{
    const struct measurement *size = &job->sizes.list[find_size(job, ranks_rows(job->model, way))];
    const size_t n = (size_t)job->report->repeat;
    struct figures round[MAX_REPEAT];
    const struct measurement m = {.contender = job->contender, .N = size->N, .round = round};
    double network[MAX_REPEAT], step_ms[MAX_REPEAT];
    for (size_t i = 0; i < n; i++) {
        struct ranks_step step;
        if (ranks_expect(&step, job->model, way, &size->round[i].cost, &job->what->network, err) < 0)
            return -1;
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
