/* Output of bmc-tune as JSON. */
#include "quant/cache_types.h"
#include "report/fields.h"
#include "tune/tunerows.h"

static json_t *whole(size_t value) { return json_integer((json_int_t)value); }

static json_t *real_if(bool there, double value) { return there ? json_real(value) : json_null(); }

/* Sets fields NAME, NAME_lo and NAME_hi; null unless `there`. */
static int put_ratio(json_t *row, const char *name, bool there, const struct ratio *r, struct err *err)
{
    static const char *const end[] = {"", "_lo", "_hi"};
    const double value[] = {r->value, r->lo, r->hi};
    char key[64];
    for (size_t i = 0; i < ARRAY_LEN(end); i++) {
        snprintf(key, sizeof key, "%s%s", name, end[i]);
        if (json_put(row, key, real_if(there, value[i]), err) < 0)
            return -1;
    }
    return 0;
}

static int put_others(json_t *row, const struct config_point *c, struct err *err)
{
    static const char *const names[] = {"iterative", "upfront", "paged", "reserve", "segment"};
    char key[32];
    for (size_t i = 0; i < POINT_POLICIES; i++) {
        const bool there = c->measured && c->other[i].ms > 0;
        snprintf(key, sizeof key, "%s_ms", names[i]);
        if (json_put(row, key, real_if(there, c->other[i].ms), err) < 0)
            return -1;
        snprintf(key, sizeof key, "%s_over_bmc", names[i]);
        if (put_ratio(row, key, there, &c->over_bmc[i], err) < 0)
            return -1;
    }
    return 0;
}

static json_t *point_members(const struct config_point *c, const struct tune_run *run,
                             const char *shape)
{
    const struct regret *r = &c->regret;
    const bool m = c->measured;
    return json_pack(
        "{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:f, "
        "s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o, s:s?}",
        "shape", json_text(shape, strlen(shape)), "attn", tune_attn_name(run->backend, run->attn),
        "kv_type", cache_type_name(run->type), "G", (json_int_t)(run->heads / run->kv_heads), "N",
        (json_int_t)c->N, "batch", (json_int_t)c->batch, "k", (json_int_t)c->k, "m", (json_int_t)c->m,
        "state", c->cold ? "cold" : "hot", "T_closed", c->answer.closed, "T_closed_gq",
        real_if(c->closed_gq > 0, c->closed_gq), "T_pow2", (json_int_t)c->answer.pow2, "T_model",
        (json_int_t)c->answer.least, "T_fit", real_if(m, r->fit.T), "T_fit_lo", real_if(m, r->T_lo),
        "T_fit_hi", real_if(m, r->T_hi), "T_measured", m ? whole((size_t)c->T[r->best]) : json_null(),
        "predicted_ms", c->predicted_ms[c->used], "measured_ms", real_if(m, c->time[c->used].ms),
        "regret", real_if(m, r->ratio), "regret_lo", real_if(m, r->lo), "regret_hi", real_if(m, r->hi),
        "regret_raw", real_if(m, r->raw.value), "regret_raw_lo", real_if(m, r->raw.lo), "regret_raw_hi",
        real_if(m, r->raw.hi), "note", c->refusal);
}

int add_point_row(json_t *rows, const struct config_point *c, const struct tune_run *run,
                  const char *shape, struct err *err)
{
    const bool m = c->measured;
    struct ratio ratio;
    json_t *row = point_members(c, run, shape);
    int rc = row ? put_others(row, c, err) : err_no_memory(err, "a row");
    if (rc == 0 && (json_put(row, "fastest",
                             m ? json_string(config_point_fastest(c, &ratio)) : json_null(), err) < 0 ||
                    json_put(row, "doubtful",
                             m ? json_boolean(config_point_contradicts(c)) : json_null(), err) < 0 ||
                    json_put(row, "rounds", whole(c->rounds), err) < 0))
        rc = -1;
    if (rc == 0)
        rc = json_put(row, "batch_run", whole(c->batch_run), err);
    return fields_end(rc, row, rows, err);
}

int add_point_curve(json_t *rows, const struct config_point *c, struct err *err)
{
    const bool m = c->measured;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n; i++)
        rc = json_push(
            rows,
            json_pack("{s:s, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:b}", "state",
                      c->cold ? "cold" : "hot", "N", (json_int_t)c->N, "batch", (json_int_t)c->batch,
                      "T", (json_int_t)c->T[i], "predicted_ms", c->predicted_ms[i], "measured_ms",
                      real_if(m, c->time[i].ms), "measured_ms_q1", real_if(m, c->time[i].lo_ms),
                      "measured_ms_q3", real_if(m, c->time[i].hi_ms), "fit_ms",
                      real_if(m, m ? fit_at(&c->regret.fit, c->T[i]) : 0), "used", i == c->used),
            err);
    return rc;
}

static int add_policy(json_t *rows, const struct config_point *c, const char *policy,
                      const struct config_point_time *time, const struct ratio *over, struct err *err)
{
    return json_push(rows,
                     json_pack("{s:I, s:I, s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "N",
                               (json_int_t)c->N, "batch", (json_int_t)c->batch, "state",
                               c->cold ? "cold" : "hot", "policy", policy, "ms", time->ms, "ms_q1",
                               time->lo_ms, "ms_q3", time->hi_ms, "over_bmc", over->value,
                               "over_bmc_lo", over->lo, "over_bmc_hi", over->hi),
                     err);
}

int add_point_policies(json_t *rows, const struct config_point *c, struct err *err)
{
    static const struct ratio itself = {1, 1, 1};
    char bmc[32];
    if (!c->measured)
        return 0;
    snprintf(bmc, sizeof bmc, "bmc:T=%zu", c->answer.pow2);
    int rc = add_policy(rows, c, bmc, &c->time[c->used], &itself, err);
    for (size_t i = 0; rc == 0 && i < POINT_POLICIES; i++)
        if (c->other[i].ms > 0)
            rc = add_policy(rows, c, point_policy_names[i], &c->other[i], &c->over_bmc[i], err);
    return rc;
}

static json_t *point_json(const struct curve_point *p)
{
    return json_pack("{s:f, s:f, s:f, s:I}", "bytes", p->bytes, "value", p->value, "spread", p->spread,
                     "samples", (json_int_t)p->samples);
}

static json_t *constant_json(const struct rate_curve *c)
{
    struct err ignored;
    size_t samples = 0;
    if (!c)
        return json_null();
    AUTO(json_auto) json_t *at = json_array();
    int rc = at ? 0 : -1;
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        rc = json_push(at, point_json(&c->at[i]), &ignored);
        samples += c->at[i].samples;
    }
    const struct curve_point *last = &c->at[c->n - 1];
    json_t *constant =
        rc < 0 ? NULL
               : json_pack("{s:f, s:f, s:I, s:I, s:s, s:O}", "value", last->value, "spread",
                           last->spread, "samples", (json_int_t)samples, "G", (json_int_t)c->group,
                           "kv_type", cache_type_name(c->type), "at", at);
    return constant;
}

static int put_constants(json_t *constants, const struct profile *profile, const struct tune_run *run,
                         struct err *err)
{
    struct tune_query q = tune_query_of(run, run->batch, 2);
    struct cost_config cell;
    q.k = q.m = 1;
    if (!profile_cost_config(profile, &q, &cell))
        return 0;
    if (json_put(constants, "copy_elem_s", constant_json(cell.copy), err) < 0 ||
        json_put(constants, "sdpa_mac_s", constant_json(cell.sdpa), err) < 0 ||
        json_put(constants, "alloc_s", constant_json(cell.alloc), err) < 0)
        return -1;
    q.k = run->k;
    return run->k > 1 && profile_cost_config(profile, &q, &cell)
               ? json_put(constants, "sdpa_mac_s_k", constant_json(cell.sdpa), err)
               : 0;
}

json_t *constants_json(const struct profile *profile, const struct tune_run *run)
{
    struct err ignored;
    json_t *constants = json_object();
    return json_or_null(constants, put_constants(constants, profile, run, &ignored), &ignored);
}

static int add_point(json_t *rows, const struct rate_curve *c, const struct curve_point *p,
                     struct err *err)
{
    return json_push(
        rows,
        json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:f, s:I}", "constant",
                  rate_curve_name(c->what), "attn", c->attn, "kv_type", cache_type_name(c->type), "D",
                  (json_int_t)c->width, "G", (json_int_t)c->group, "query_rows", (json_int_t)c->rows,
                  "batch", (json_int_t)c->batch, "state", c->cold ? "cold" : "hot", "bytes", p->bytes,
                  "value", p->value, "spread", p->spread, "samples", (json_int_t)p->samples),
        err);
}

json_t *constants_rows(const struct profile *profile, struct err *err)
{
    json_t *rows = json_array();
    int rc = 0;
    for (size_t i = 0; i < profile->n_curves; i++)
        for (size_t p = 0; rc == 0 && p < profile->curve[i].n; p++)
            rc = add_point(rows, &profile->curve[i], &profile->curve[i].at[p], err);
    return json_or_null(rows, rc, err);
}

static int put_knee(json_t *steps, json_t *k_for, const struct batch_knee *knee, struct err *err)
{
    char key[32];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < knee->n; i++) {
        snprintf(key, sizeof key, "%zu", knee_counts[i]);
        rc = json_put(steps, key, json_real(knee->step_ms[i]), err);
    }
    for (size_t i = 0; rc == 0 && i < KNEE_ACCEPTANCES; i++) {
        double speedup;
        const size_t k = batch_knee_k(knee, knee_acceptance[i], &speedup);
        snprintf(key, sizeof key, "%g", knee_acceptance[i]);
        rc = json_put(k_for, key, json_pack("{s:I, s:f}", "k", (json_int_t)k, "speedup", speedup), err);
    }
    return rc;
}

json_t *batch_knee_json(const struct tuned_model *model)
{
    struct err ignored;
    if (!model || !model->knee.n)
        return json_null();
    AUTO(json_auto) json_t *steps = json_object(), *k_for = json_object();
    const bool full = put_knee(steps, k_for, &model->knee, &ignored) == 0;
    json_t *rows = full ? json_pack("{s:o, s:O, s:I, s:I, s:O}", "model",
                                    json_text(model->name, strlen(model->name)), "step_ms", steps,
                                    "batch_knee", (json_int_t)model->knee.tokens, "samples",
                                    (json_int_t)model->knee.samples, "k_for", k_for)
                        : NULL;
    return rows;
}
