/* Writes the tuned profile, and answers queries from it. */
#include <math.h>
#include <stdio.h>

#include "quant/cache_types.h"
#include "base/file.h"
#include "tune/profile.h"

static int write_curve(const struct rate_curve *c, struct buf *text, struct err *err)
{
    for (size_t i = 0; i < c->n; i++)
        if (buf_addf(text, err, "constant %s %s %s %zu %zu %zu %zu %s %.12g %.9g %.4g %zu\n",
                     rate_curve_name(c->what), c->attn, cache_type_name(c->type), c->width, c->group,
                     c->rows, c->batch, c->cold ? "cold" : "hot", c->at[i].bytes, c->at[i].value,
                     c->at[i].spread, c->at[i].samples) < 0)
            return -1;
    return 0;
}

static int write_rows(const struct tuned_model *m, struct buf *text, struct err *err)
{
    if (!m->knee.n)
        return 0;
    for (size_t i = 0; i < m->knee.n; i++)
        if (buf_addf(text, err, "step_ms %s %zu %.6g\n", m->key, knee_counts[i], m->knee.step_ms[i]) <
            0)
            return -1;
    if (buf_addf(text, err, "batch_knee %s %zu\n", m->key, m->knee.tokens) < 0)
        return -1;
    for (size_t i = 0; i < KNEE_ACCEPTANCES; i++) {
        double speedup;
        const size_t k = batch_knee_k(&m->knee, knee_acceptance[i], &speedup);
        if (buf_addf(text, err, "k_for %s %g %zu\n", m->key, knee_acceptance[i], k) < 0)
            return -1;
    }
    return 0;
}

static int write_model(const struct tuned_model *m, struct buf *text, struct err *err)
{
    if (buf_addf(text, err, "model %s%s%s\n", m->key, m->name[0] ? " " : "", m->name) < 0 ||
        (m->policy[0] && buf_addf(text, err, "policy %s %s %.4g %.4g %.4g\n", m->key, m->policy,
                                  m->policy_ratio.value, m->policy_ratio.lo, m->policy_ratio.hi) < 0))
        return -1;
    return write_rows(m, text, err);
}

static int write_rates(const struct profile *p, struct buf *text, struct err *err)
{
    int rc = p->n_rates ? buf_addf(text, err,
                                   "# rate SET F32 BF16 INT8: 10^9 operations a second on one core; "
                                   "the default kernel set follows from them\n")
                        : 0;
    for (size_t i = 0; rc == 0 && i < p->n_rates; i++)
        rc = buf_addf(text, err, "rate %s %.4g %.4g %.4g\n", p->rate[i].isa, p->rate[i].gop_s[PEAK_F32],
                      p->rate[i].gop_s[PEAK_BF16], p->rate[i].gop_s[PEAK_INT8]);
    return rc;
}

static int write_T(const struct tuned_T *t, struct buf *text, struct err *err)
{
    return buf_addf(text, err, "T %s %s %zu %zu %zu %zu %zu %zu\n", t->attn, cache_type_name(t->type),
                    t->width, t->group, t->layers, t->batch, t->N, t->T);
}

static int write_spec(const struct tuned_spec *s, struct buf *text, struct err *err)
{
    return buf_addf(text, err, "spec %s %s %s %s %zu %zu %zu %s %zu %zu %.4g\n", s->target, s->draft,
                    s->attn, cache_type_name(s->type), s->batch, s->N, s->T,
                    s->shape.tree ? "tree" : "chain", s->shape.draft_tokens, s->shape.levels,
                    s->tokens);
}

int profile_write(const struct profile *p, struct buf *text, struct err *err)
{
    const struct machine *m = &p->machine;
    int rc = buf_addf(
        text, err,
        "# What bmc-tune found out about this machine; see bmc-tune(1). Written anew by every run.\n"
        "bmc_profile %d\ncpu %s\ncores %zu\nthreads %zu\nisa %s\npage_size %zu\nalloc %s\n"
        "# model MODEL NAME, policy MODEL POLICY RATIO LOWEST HIGHEST, step_ms MODEL ROWS MS, "
        "batch_knee MODEL ROWS, k_for MODEL PROBABILITY CANDIDATES\n",
        PROFILE_VERSION, m->cpu, m->cores, m->threads, m->isa, m->page_size, m->alloc);
    if (rc == 0)
        rc = write_rates(p, text, err);
    for (size_t i = 0; rc == 0 && i < p->n_models; i++)
        rc = write_model(&p->model[i], text, err);
    if (rc == 0)
        rc = buf_addf(
            text, err,
            "# constant NAME ATTENTION TYPE WIDTH GROUP ROWS BATCH STATE BYTES VALUE SPREAD SAMPLES\n");
    for (size_t i = 0; rc == 0 && i < p->n_curves; i++)
        rc = write_curve(&p->curve[i], text, err);
    if (rc == 0)
        rc = buf_addf(text, err, "# T ATTENTION TYPE WIDTH GROUP LAYERS BATCH N T\n");
    for (size_t i = 0; rc == 0 && i < p->n_tuned; i++)
        rc = write_T(&p->tuned[i], text, err);
    if (rc == 0 && p->n_specs)
        rc = buf_addf(
            text, err,
            "# spec TARGET DRAFT ATTENTION TYPE BATCH N T SHAPE DRAFT_TOKENS LEVELS EXPECTED\n");
    for (size_t i = 0; rc == 0 && i < p->n_specs; i++)
        rc = write_spec(&p->spec[i], text, err);
    return rc;
}

int profile_save(const struct profile *p, const char *path, struct err *err)
{
    struct buf text = {0};
    int rc = profile_write(p, &text, err);
    if (rc == 0 && text.len > PROFILE_BYTES)
        rc = err_set(err, "%s: would have %zu bytes, a profile has no more than %d: give another name",
                     path, text.len, PROFILE_BYTES);
    if (rc == 0)
        rc = outfile_save(path, text.data, text.len, err);
    buf_release(&text);
    return rc;
}

struct tune_query tune_query_of(const struct tune_run *run, size_t batch, size_t N)
{
    return (struct tune_query){.attn = run->attn->name,
                               .type = run->type,
                               .heads = run->heads,
                               .kv_heads = run->kv_heads,
                               .head_dim = run->head_dim,
                               .v_dim = run->v_dim,
                               .layers = 1,
                               .batch = batch,
                               .N = N,
                               .k = run->k,
                               .m = run->m,
                               .hot = run->evictor == NULL};
}

static const struct rate_curve *find(const struct profile *p, enum curve_what what, const char *attn,
                                     const struct tune_query *q)
{
    struct rate_curve like = {
        .what = what,
        .type = q->type,
        .width = q->heads * q->head_dim,
        .group = q->heads / q->kv_heads,
        .rows = what == CURVE_SDPA ? q->k : 1,
        .batch = what == CURVE_SDPA ? q->batch : 1,
        .cold = !q->hot,
    };
    snprintf(like.attn, sizeof like.attn, "%s", attn);
    return rate_curve_find(p->curve, p->n_curves, &like);
}

bool profile_cost_config(const struct profile *p, const struct tune_query *q, struct cost_config *cell)
{
    *cell = (struct cost_config){
        .N = q->N,
        .layers = q->layers,
        .batch = q->batch,
        .width = q->heads * q->head_dim,
        .row_bytes = (q->v_dim ? 1.0 : 2.0) * (double)q->kv_heads *
                     (double)dtype_row_bytes(q->type, q->head_dim),
        .gq = (double)(q->heads / q->kv_heads), /* Q = 1: copying was measured at this type */
        .k = (double)q->k,
        .m = (double)q->m,
        .copy = find(p, CURVE_COPY, "-", q),
        .sdpa = find(p, CURVE_SDPA, q->attn, q),
        .alloc = find(p, CURVE_ALLOC, "-", q),
    };
    return cell->copy && cell->sdpa;
}

size_t profile_T(const struct profile *p, const struct tune_query *q, enum kv_T_from *from)
{
    const struct tuned_T *t = p->tuned;
    struct cost_config cell;
    struct cost_answer answer;
    struct err ignored;
    *from = KV_T_PROFILE;
    for (size_t i = 0; i < p->n_tuned && q->k == 1; i++, t++)
        if (strcmp(t->attn, q->attn) == 0 && t->type == q->type && t->width == q->heads * q->head_dim &&
            t->group == q->heads / q->kv_heads && t->layers == q->layers && t->batch == q->batch &&
            t->N == q->N)
            return t->T;
    *from = KV_T_FORMULA;
    if (!profile_cost_config(p, q, &cell) || cost_answer(&cell, &answer, &ignored) < 0)
        return 0;
    return answer.pow2;
}

/* T with speculation; in other contexts than the measured one as the square root of N (BMC paper,
 * VI-B), to the next lower power of two. */
static size_t spec_T(const struct tuned_spec *spec, size_t N, enum kv_T_from *from)
{
    const double T = (double)spec->T * sqrt((double)N / (double)spec->N);
    size_t power = 1;
    *from = spec->N == N ? KV_T_PROFILE : KV_T_FORMULA;
    while (2 * (double)power <= T && 2 * power <= N)
        power *= 2;
    return spec->N == N ? spec->T : power;
}

static size_t pick(const struct kv_tuner *tuner, const struct kv_shape *shape, size_t n_seqs,
                   enum kv_T_from *from)
{
    const struct profile_tuner *own = (const void *)tuner;
    if (own->spec)
        return spec_T(own->spec, shape->max_rows, from);
    const struct tune_query query = {
        .attn = own->attn,
        .type = shape->type,
        .heads = own->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .v_dim = shape->v_dim,
        .layers = shape->layers,
        .batch = n_seqs,
        .N = shape->max_rows,
        .k = 1,
        .m = 1,
    };
    return profile_T(own->profile, &query, from);
}

struct profile_tuner profile_tuner(const struct profile *profile, const char *attn, size_t heads)
{
    return (struct profile_tuner){{pick}, NULL, profile, attn, heads};
}
