/* The runner, and the settings of rows. */
#include "prof/report.h"
#include "tune/layer_bench.h"

#include "quant/cache_types.h"
#include "base/cores.h"
#include "base/mem.h"
#include "report/stat.h"

int measurements_open(struct measurements *all, const struct report *report,
                      const struct contender *contender, size_t n_contenders, const struct test *test,
                      size_t n_tests, struct err *err)
{
    const size_t n = n_contenders * n_tests;
    *all = (struct measurements){.list = calloc(size_max(n, 1), sizeof *all->list)};
    if (!all->list)
        return err_no_memory(err, "%zu tests", n);
    for (; all->n < n; all->n++) {
        struct measurement *m = &all->list[all->n];
        *m = (struct measurement){.contender = &contender[all->n % n_contenders],
                                  .test = test[all->n / n_contenders]};
        const size_t tokens = m->test.n_prompt + m->test.n_gen;
        m->N = m->tokens = tokens ? m->test.depth + tokens : report->run.N;
        m->round = calloc((size_t)report->repeat, sizeof *m->round);
        if (!m->round)
            return err_no_memory(err, "%zu results", n * (size_t)report->repeat);
    }
    return 0;
}

void measurements_release(struct measurements *all, const struct report *report)
{
    for (size_t i = 0; i < all->n; i++) {
        for (int r = 0; r < report->repeat; r++)
            free(all->list[i].round[r].token_ms);
        free(all->list[i].round);
    }
    free(all->list);
    *all = (struct measurements){0};
}

static struct figures no_figures(const struct measurement *m)
{
    return (struct figures){.policy = m->contender->text,
                            .kind = m->test.n_gen ? "decode" : "prefill",
                            .test = m->test,
                            .relative = NAN};
}

static bool fits_context(const struct measurement *m, struct err *err)
{
    if (!m->contender->longest || m->tokens <= m->contender->longest)
        return true;
    (void)err_set(err, "%zu tokens are beyond the model's context of %zu", m->tokens,
                  m->contender->longest);
    return false;
}

int measure_all(struct measurements *all, const struct report *report, measure_one *one, void *arg,
                struct err *err)
{
    const size_t warmup = (size_t)report->warmup, rounds = warmup + (size_t)report->repeat;
    for (size_t i = 0; i < rounds * all->n; i++) {
        struct measurement *m = &all->list[i % all->n];
        struct figures figures = no_figures(m);
        if (*m->why.text || !fits_context(m, &m->why))
            continue;
        if (one(arg, m, &figures, &m->why) < 0 && *report->run.interrupted) {
            *err = m->why;
            return -1;
        }
        if (*m->why.text)
            continue;
        if (i / all->n >= warmup)
            m->round[i / all->n - warmup] = figures;
        else
            free(figures.token_ms);
        report->progress(report->arg, i + 1, rounds * all->n);
    }
    return 0;
}

/* ---- rows ---- */

/* What all rows state. */
struct setup {
    const char *shape, *model_id, *weight_type, *kv_type, *attn, *isa, *precision, *cpu, *version,
        *commit, *timestamp;
    size_t layers, N;
    uint64_t seed;
    int threads, repeat, warmup;
    const char *attended, *alloc;
    bool lockstep;
};

#define AT(kind, member, flags)                                                                        \
    {                                                                                                  \
#member, FIELD_##kind, offsetof(struct setup, member), flags, FIELD_LAST                       \
    }

const struct row_field setup_fields[] = {
    AT(TEXT, shape, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, model_id, 0),
    AT(SIZE, layers, FIELD_SETUP | FIELD_IDENTITY),
    AT(SIZE, N, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, weight_type, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, kv_type, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, attn, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, isa, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, precision, FIELD_SETUP | FIELD_IDENTITY),
    AT(INT, threads, FIELD_SETUP | FIELD_IDENTITY | FIELD_MACHINE),
    AT(INT, repeat, FIELD_SETUP | FIELD_MACHINE),
    AT(INT, warmup, 0),
    AT(WHOLE, seed, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, cpu, FIELD_SETUP | FIELD_MACHINE),
    AT(TEXT, version, FIELD_SETUP | FIELD_MACHINE),
    AT(TEXT, commit, FIELD_SETUP | FIELD_MACHINE),
    AT(TEXT, timestamp, FIELD_SETUP | FIELD_MACHINE),
    {.name = NULL},
};

const struct row_field cache_fields[] = {
    AT(TEXT, attended, FIELD_SETUP | FIELD_IDENTITY),
    AT(TEXT, alloc, FIELD_SETUP | FIELD_IDENTITY),
    AT(BOOL, lockstep, FIELD_IDENTITY),
    {.name = NULL},
};

int report_setup(const struct report *report, const struct row_kind *kind, const struct kv_spec *spec,
                 const char *attends, size_t N, json_t *row, struct err *err)
{
    const struct run *run = &report->run;
    char cpu[128];
    if (tune_on_device(run->backend))
        run->backend->describe(cpu, sizeof cpu);
    else
        cpu_model_name(cpu, sizeof cpu);
    const struct setup setup = {
        .shape = report->shape,
        .model_id = report->model_id,
        .weight_type =
            report->types.mixture ? report->types.mixture->name : dtype_name(report->types.type),
        .kv_type = run->kv_type.text,
        .attn = tune_attn_name(run->backend, run->attn),
        .isa = tune_on_device(run->backend) ? run->backend->name : run->kernels->isa,
        .precision = precision_name(run->precision),
        .cpu = cpu,
        .version = report->version,
        .commit = report->commit,
        .timestamp = report->timestamp,
        .layers = run->config.layers,
        .N = N,
        .seed = run->seed,
        .threads = run->threads,
        .repeat = report->repeat,
        .warmup = report->warmup,
        .attended = attends,
        .alloc = vm_alloc_name(spec->alloc),
        .lockstep = spec->lockstep,
    };
    if (kind->setup && fields_put(row, setup_fields, kind->setup, &setup, 1, 0, err) < 0)
        return -1;
    return kind->cache ? fields_put(row, cache_fields, FIELD_ALL, &setup, 1, 0, err) : 0;
}

int report_measurement(const struct report *report, const struct row_kind *kind,
                       const struct measurement *m, json_t *rows, struct err *err)
{
    const bool failed = *m->why.text;
    const struct figures none = no_figures(m);
    const struct kv_spec *spec = &m->contender->spec;
    const char *attends = m->contender->equation        ? NULL
                          : kv_spec_attends_valid(spec) ? "valid"
                                                        : "padded";
    const size_t repeat = (size_t)report->repeat;
    json_t *row = json_object();
    int rc = failed ? fields_put(row, kind->fields, FIELD_TEST, &none, 1, 0, err)
                    : fields_put(row, kind->fields, FIELD_ALL, m->round, repeat, sizeof *m->round, err);
    if (rc == 0 && kind->samples && !failed)
        rc = fields_put_samples(row, kind->fields, m->round, repeat, sizeof *m->round, err);
    if (rc == 0)
        rc = report_setup(report, kind, spec, attends, m->N, row, err);
    if (rc == 0 && failed)
        rc = json_put(row, "error", json_text(m->why.text, strlen(m->why.text)), err);
    return fields_end(rc, row, rows, err);
}

int report_measurements(const struct report *report, const struct row_kind *kind,
                        const struct measurements *all, json_t *rows, struct err *err)
{
    for (size_t i = 0; i < all->n; i++)
        if (report_measurement(report, kind, &all->list[i], rows, err) < 0)
            return -1;
    return 0;
}
