/* Measures the rate curves of the cost model. */
#include "tune/calibrate.h"

#include "base/clock.h"
#include "base/vm.h"
#include "report/stat.h"

enum { LEAST_SAMPLES = 3 };

/* Fills rows[] with the context lengths to measure, in tokens, ascending without duplicates;
 * returns their number. */
static size_t choose_rows(const struct calibrate_plan *plan, double row_bytes, size_t *rows)
{
    const double least = fmax(plan->min_bytes, TILE_ROWS * row_bytes);
    const double memory = (double)vm_available() / 4;
    double most = fmax(plan->max_bytes, 8 * least);
    size_t n = 0;
    if (memory > 0 && most > memory)
        most = fmax(memory, least);
    for (size_t i = 0; i < plan->points; i++) {
        const double share = plan->points > 1 ? (double)i / (double)(plan->points - 1) : 0;
        const double bytes = least * pow(most / least, share);
        const size_t tiles = round_up(size_max((size_t)(bytes / row_bytes), 1), TILE_ROWS);
        if (n == 0 || tiles > rows[n - 1])
            rows[n++] = tiles;
    }
    return n;
}

/* Times the last reallocation, by r entries, of a sequence that grows to `rows` tokens. Small
 * sequences are grown from the beginning, because the allocator may hand them used memory; large
 * ones always get fresh pages. */
static int time_growth(struct layer_bench *b, size_t rows, double *ms, struct err *err)
{
    const size_t r = kv_setup(b->kv)->r;
    const bool fresh = layer_bench_entry_bytes(b->run) * (double)(rows - r) > 2.0 * VM_MAPPED_BYTES;
    layer_bench_clear(b);
    for (size_t from = fresh ? rows - r : 0; from < rows; from += r) {
        if (layer_bench_skip_to(b, from, err) < 0 || layer_bench_grow(b, ms, err) < 0)
            return -1;
        kv_commit(b->kv, 0, 0);
    }
    return 0;
}

/* Measures one sample of rate `what` at context length `rows`; *seconds is its time. */
static int time_sample(struct layer_bench *b, enum curve_what what, size_t rows, double *seconds,
                       struct err *err)
{
    double ms = 0;
    if (what == CURVE_ALLOC) {
        const size_t bytes = (size_t)(layer_bench_entry_bytes(b->run) / 2) * rows;
        const struct backend_memory *memory = kv_setup(b->kv)->memory;
        const double start = clock_ms();
        const struct device_addr block = memory->alloc(b->run->alloc, bytes);
        ms = clock_ms() - start;
        if (addr_is_null(block))
            return err_no_memory(err, "%zu bytes to measure an allocation", bytes);
        memory->free(b->run->alloc, block, bytes);
    } else if (what == CURVE_COPY) {
        if (time_growth(b, rows, &ms, err) < 0)
            return -1;
    } else {
        if (b->n == 0 && layer_bench_skip_to(b, rows - b->run->k, err) < 0)
            return -1;
        double growth;
        if (layer_bench_grow(b, &growth, err) < 0 || layer_bench_step(b, &ms, err) < 0)
            return -1;
        for (size_t s = 0; s < b->run->batch; s++)
            kv_truncate(b->kv, s, rows - b->run->k);
        b->n = rows - b->run->k;
    }
    *seconds = ms / 1e3;
    return *b->run->interrupted ? err_code(err, ERR_INTERRUPTED, "interrupted") : 0;
}

/* Work done in a sample: elements copied or multiply-accumulates (BMC paper, eq. 1 and 2). */
static double work_of(const struct tune_run *run, enum curve_what what, size_t rows)
{
    const double kv = (double)(run->kv_heads * run->head_dim), q = (double)(run->heads * run->head_dim);
    return what == CURVE_COPY   ? 4 * kv * (double)rows
           : what == CURVE_SDPA ? 2 * q * (double)rows * (double)(run->k * run->batch)
                                : 1;
}

static int sample_point(struct calibration *c, const struct calibrate_plan *plan, size_t point,
                        struct err *err)
{
    const size_t rows = c->rows[point];
    /* A copying sample is a growth by 1/8 of the context; SDPA steps run without growth. */
    const size_t r = c->what == CURVE_COPY ? size_max(div_up(rows, 8), 1) : rows;
    struct kv_spec spec;
    struct layer_bench b;
    if (kv_spec_parse(&spec, "bmc", err) < 0)
        return -1;
    spec.r = r;
    spec.grow_now = true;
    const double work = work_of(&c->run, c->what, rows), budget_ms = plan->seconds_per_point * 1e3;
    double start = clock_ms(), seconds;
    if (layer_bench_open(&b, &c->run, &spec, rows, err) < 0)
        return -1;
    int rc = time_sample(&b, c->what, rows, &seconds, err); /* warm-up */
    c->slow[point] = clock_ms() - start > 4 * budget_ms;
    const size_t least = c->slow[point] ? LEAST_SAMPLES : plan->samples;
    start = clock_ms();
    for (size_t n = 0; rc == 0 && n < CALIBRATE_MAX_SAMPLES; n++) {
        if (n >= least && clock_ms() - start >= budget_ms)
            break;
        rc = time_sample(&b, c->what, rows, &seconds, err);
        if (rc == 0 && c->samples[point] < ARRAY_LEN(c->sample[point]))
            c->sample[point][c->samples[point]++] =
                c->what == CURVE_ALLOC ? fmax(seconds, 1e-9) : work / fmax(seconds, 1e-9);
    }
    layer_bench_close(&b);
    return rc;
}

void calibration_begin(struct calibration *c, const struct tune_run *run, enum curve_what what,
                       const struct calibrate_plan *plan)
{
    size_t rows[CURVE_POINTS];
    *c = (struct calibration){.run = *run, .what = what};
    if (what != CURVE_SDPA)
        c->run.batch = c->run.k = c->run.m = 1;
    const size_t n = choose_rows(plan, layer_bench_entry_bytes(&c->run) * (double)c->run.batch, rows);
    for (size_t i = 0; i < n; i++)
        if (rows[i] > c->run.k)
            c->rows[c->n++] = rows[i];
}

int calibration_pass(struct calibration *c, const struct calibrate_plan *plan, struct err *err)
{
    for (size_t i = 0; i < c->n; i++)
        if (!(c->slow[i] && c->samples[i]) && sample_point(c, plan, i, err) < 0)
            return -1;
    return 0;
}

int calibration_curve(const struct calibration *c, struct rate_curve *curve, struct err *err)
{
    const struct tune_run *run = &c->run;
    *curve = (struct rate_curve){
        .what = c->what,
        .type = run->type,
        .width = run->heads * run->head_dim,
        .group = run->heads / run->kv_heads,
        .rows = run->k,
        .batch = run->batch,
        .cold = run->evictor != NULL,
        .n = c->n,
    };
    snprintf(curve->attn, sizeof curve->attn, "%s",
             c->what == CURVE_SDPA ? tune_attn_name(run->backend, run->attn) : "-");
    for (size_t i = 0; i < c->n; i++) {
        double x[ARRAY_LEN(c->sample[0])];
        memcpy(x, c->sample[i], sizeof x);
        const double median = stat_quantile(x, c->samples[i], 0.5);
        curve->at[i] = (struct curve_point){
            .bytes = layer_bench_entry_bytes(run) * (double)c->rows[i] * (double)run->batch,
            .value = median,
            .spread = (stat_quantile(x, c->samples[i], 0.75) - stat_quantile(x, c->samples[i], 0.25)) /
                      median,
            .samples = c->samples[i],
        };
    }
    return rate_curve_check(curve, err);
}
