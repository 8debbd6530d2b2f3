/* Divergence that types of KV entries cause, layer by layer. */
#include "prof/text_measure.h"

#include "prof/quality.h"
#include "quant/kv_entries.h"

/* The most bytes of the reference's logits that are kept for all passes; those of longer texts are computed in each. */
#define MOST_KEPT ((size_t)1 << 30)

struct cost_measuring {
    struct quality_side side[QUALITY_SIDES];
    struct kv_types *types; /* [layers]: of the tested side */
    struct quality_token *token;
    float *kept;          /* [n - 1][vocab] logits of the reference; NULL: too many */
    struct report report; /* of a pass, whose progress is a part of all passes' */
    const struct report *all;
    size_t pass, passes;
    const uint32_t *id;
    size_t n, layers;
};

static void pass_progress(void *arg, size_t done, size_t total)
{
    const struct cost_measuring *m = arg;
    m->all->progress(m->all->arg, m->pass * total + done, m->passes * total);
}

/* Sets *kld to the mean divergence that the types cause. */
static int measure(struct cost_measuring *m, double *kld, struct err *err)
{
    const struct quality_run what = {.tested = m->side[QUALITY_TESTED],
                                     .reference = &m->side[QUALITY_REFERENCE],
                                     .logits = m->kept,
                                     .logits_set = m->kept && m->pass > 0};
    struct quality q;
    size_t n;
    if (quality_measure(m->token, &n, &what, m->id, m->n, &m->report, err) < 0 ||
        quality_summarize(&q, m->token, n, 0, SIZE_MAX, err) < 0)
        return -1;
    m->pass++;
    *kld = q.tokens ? q.kld_mean : NAN;
    return q.tokens ? 0
                    : err_set(err, "the text has no tokens that others precede: give a longer text");
}

/* The same with K, or V, of layers [first, end) of a type, and all else f32. */
static int measure_matrix(struct cost_measuring *m, size_t first, size_t end, bool v, enum dtype type,
                          double *kld, struct err *err)
{
    for (size_t l = 0; l < m->layers; l++) {
        m->types[l] = (struct kv_types){DTYPE_F32, DTYPE_F32};
        if (l >= first && l < end)
            *(v ? &m->types[l].v : &m->types[l].k) = type;
    }
    return measure(m, kld, err);
}

/* bf16 is as large as f16, and entries of earlier versions as new ones. */
static bool is_measured(enum dtype type)
{
    return type != DTYPE_F32 && type != DTYPE_BF16 && type != DTYPE_Q8_CHANNEL && type != DTYPE_Q4_1 &&
           type != DTYPE_Q4_1_ROTATED;
}

static int measure_types(struct kv_sensitivity *s, struct cost_measuring *m,
                         const struct kv_shape *shape, struct err *err)
{
    const size_t matrices = kv_matrices(&shape->sizes[0]);
    m->passes = m->layers * matrices;
    for (size_t i = 0; cache_types[i].name; i++)
        m->passes += is_measured(cache_types[i].type) ? matrices : 0;
    for (size_t i = 0; cache_types[i].name; i++) {
        const enum dtype type = cache_types[i].type;
        if (!is_measured(type))
            continue;
        s->type[s->n_types].type = type;
        for (size_t v = 0; v < matrices; v++)
            if (measure_matrix(m, 0, m->layers, v, type, &s->type[s->n_types].kld[v], err) < 0)
                return -1;
        s->n_types++;
    }
    for (size_t l = 0; l < m->layers; l++)
        for (size_t v = 0; v < matrices; v++)
            if (measure_matrix(m, l, l + 1, v, s->probe, &s->part[l][v], err) < 0)
                return -1;
    return 0;
}

int cache_costs_measure(struct kv_sensitivity *s, const struct report *report,
                        const struct model *model, const uint32_t *id, size_t n, struct err *err)
{
    const struct cache_types f32 = cache_types_alike(DTYPE_F32);
    const struct kv_shape shape = config_kv_shape(&model->config, 1, &f32);
    struct cost_measuring m = {
        .token = mem_alloc(n, sizeof *m.token),
        .types = mem_alloc(shape.layers, sizeof *m.types),
        .report = *report,
        .all = report,
        .id = id,
        .n = n,
        .layers = shape.layers,
    };
    const size_t kept = size_times(size_times(n, model->config.vocab), sizeof *m.kept);
    if (kept <= MOST_KEPT)
        m.kept = malloc(kept);
    *s = (struct kv_sensitivity){.tokens = n,
                                 .probe = DTYPE_KV4,
                                 .layers = shape.layers,
                                 .part = mem_zalloc(shape.layers, sizeof *s->part)};
    m.report.progress = pass_progress;
    m.report.arg = &m;
    int rc = m.token && m.types && s->part ? 0 : err_no_memory(err, "%zu tokens", n);
    for (size_t i = 0; rc == 0 && i < QUALITY_SIDES; i++) {
        m.side[i] = (struct quality_side){model, run_session_options(&report->run, n, 1)};
        rc = kv_spec_parse(&m.side[i].options.kv, "upfront", err);
        m.side[i].options.kv_types = f32;
    }
    m.side[QUALITY_TESTED].options.kv_types.n = shape.layers;
    m.side[QUALITY_TESTED].options.kv_types.layer = m.types;
    if (rc == 0)
        rc = measure_types(s, &m, &shape, err);
    free(m.token);
    free(m.kept);
    free(m.types);
    return rc;
}
