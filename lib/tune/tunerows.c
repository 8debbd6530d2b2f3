/* What bmc-tune prints, as JSON. */
#include "tune/tunerows.h"

#include <stdio.h>

static json_t *whole(size_t value) { return json_integer((json_int_t)value); }

static json_t *real_if(bool there, double value) { return there ? json_real(value) : json_null(); }

/* Adds all members of `more`, which is given away. */
static void merge(json_t *row, json_t *more)
{
    if (row && more)
        json_object_update(row, more);
    json_decref(more);
}

static json_t *measured_members(const struct cell *c)
{
    const struct regret *r = &c->regret;
    const bool m = c->measured;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "T_fit",
                     real_if(m, r->fit.T), "T_fit_lo", real_if(m, r->T_lo), "T_fit_hi",
                     real_if(m, r->T_hi), "T_measured", m ? whole((size_t)c->T[r->best]) : json_null(),
                     "predicted_ms", json_real(c->predicted_ms[c->used]), "measured_ms",
                     real_if(m, c->time[c->used].ms), "regret", real_if(m, r->ratio), "regret_lo",
                     real_if(m, r->lo), "regret_hi", real_if(m, r->hi), "regret_raw",
                     real_if(m, r->raw.value), "regret_raw_lo", real_if(m, r->raw.lo), "regret_raw_hi",
                     real_if(m, r->raw.hi), "note", c->refusal ? json_string(c->refusal) : json_null());
}

json_t *cell_row(const struct cell *c, const struct tune_run *run, const char *shape)
{
    double ratio;
    json_t *row = json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:o, s:I, s:I}",
                            "shape", shape, "attn", run->attn->name, "kv_type", dtype_name(run->type),
                            "G", (json_int_t)(run->heads / run->kv_heads), "N", (json_int_t)c->N,
                            "batch", (json_int_t)c->batch, "k", (json_int_t)c->k, "m", (json_int_t)c->m,
                            "state", c->cold ? "cold" : "hot", "T_closed", c->answer.closed,
                            "T_closed_gq", real_if(c->closed_gq > 0, c->closed_gq), "T_pow2",
                            (json_int_t)c->answer.pow2, "T_model", (json_int_t)c->answer.least);
    merge(row, measured_members(c));
    for (size_t i = 0; row && i < CELL_OTHERS; i++) {
        static const char *const ms[] = {"iterative_ms", "upfront_ms", "paged_ms", "reserve_ms"};
        static const char *const over[] = {"iterative_over_bmc", "upfront_over_bmc", "paged_over_bmc",
                                           "reserve_over_bmc"};
        const bool there = c->measured && c->other[i].ms > 0;
        json_object_set_new(row, ms[i], real_if(there, c->other[i].ms));
        json_object_set_new(row, over[i], real_if(there, c->over_bmc[i].value));
    }
    merge(row, json_pack("{s:o, s:I, s:I}", "fastest",
                         c->measured ? json_string(cell_fastest(c, &ratio)) : json_null(), "rounds",
                         (json_int_t)c->rounds, "batch_run", (json_int_t)c->batch_run));
    return row;
}

json_t *cell_curve(const struct cell *c)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < c->n; i++) {
        const bool m = c->measured;
        json_array_append_new(
            rows,
            json_pack("{s:s, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:o, s:b}", "state",
                      c->cold ? "cold" : "hot", "N", (json_int_t)c->N, "batch", (json_int_t)c->batch,
                      "T", (json_int_t)c->T[i], "predicted_ms", c->predicted_ms[i], "measured_ms",
                      real_if(m, c->time[i].ms), "measured_ms_q1", real_if(m, c->time[i].lo_ms),
                      "measured_ms_q3", real_if(m, c->time[i].hi_ms), "fit_ms",
                      real_if(m, m ? fit_at(&c->regret.fit, c->T[i]) : 0), "used", i == c->used));
    }
    return rows;
}

static json_t *point_json(const struct curve_point *p)
{
    return json_pack("{s:f, s:f, s:f, s:I}", "bytes", p->bytes, "value", p->value, "spread", p->spread,
                     "samples", (json_int_t)p->samples);
}

static json_t *constant_json(const struct curve *c)
{
    json_t *constant, *at = json_array();
    size_t samples = 0;
    if (!c) {
        json_decref(at);
        return json_null();
    }
    for (size_t i = 0; i < c->n; i++) {
        json_array_append_new(at, point_json(&c->at[i]));
        samples += c->at[i].samples;
    }
    const struct curve_point *last = &c->at[c->n - 1];
    constant = json_pack("{s:f, s:f, s:I, s:I, s:s, s:o}", "value", last->value, "spread", last->spread,
                         "samples", (json_int_t)samples, "G", (json_int_t)c->group, "kv_type",
                         dtype_name(c->type), "at", at);
    return constant;
}

json_t *constants_json(const struct profile *profile, const struct tune_run *run)
{
    json_t *constants = json_object();
    struct tune_question q = {
        .attn = run->attn->name,
        .type = run->type,
        .heads = run->heads,
        .kv_heads = run->kv_heads,
        .head_dim = run->head_dim,
        .layers = 1,
        .batch = run->batch,
        .N = 2,
        .k = 1,
        .m = 1,
        .hot = run->sweeper == NULL,
    };
    struct cost_cell cell;
    if (!profile_cell(profile, &q, &cell))
        return constants;
    json_object_set_new(constants, "copy_elem_s", constant_json(cell.copy));
    json_object_set_new(constants, "sdpa_mac_s", constant_json(cell.sdpa));
    json_object_set_new(constants, "alloc_s", constant_json(cell.alloc));
    q.k = run->k;
    if (run->k > 1 && profile_cell(profile, &q, &cell))
        json_object_set_new(constants, "sdpa_mac_s_k", constant_json(cell.sdpa));
    return constants;
}

json_t *constants_rows(const struct profile *profile)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < profile->n_curves; i++) {
        const struct curve *c = &profile->curve[i];
        for (size_t p = 0; p < c->n; p++) {
            json_t *row =
                json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "constant", curve_name(c->what),
                          "attn", c->attn, "kv_type", dtype_name(c->type), "D", (json_int_t)c->width,
                          "G", (json_int_t)c->group, "query_rows", (json_int_t)c->rows, "batch",
                          (json_int_t)c->batch, "state", c->cold ? "cold" : "hot");
            merge(row, point_json(&c->at[p]));
            json_array_append_new(rows, row);
        }
    }
    return rows;
}

json_t *free_rows_json(const struct profile *profile)
{
    static const double acceptance[] = {0.5, 0.6, 0.7, 0.8, 0.9};
    const struct free_rows *rows = &profile->rows;
    json_t *steps = json_object(), *k_for = json_object();
    char key[32];
    if (!rows->n) {
        json_decref(steps);
        json_decref(k_for);
        return json_null();
    }
    for (size_t i = 0; i < rows->n; i++) {
        snprintf(key, sizeof key, "%zu", free_row_counts[i]);
        json_object_set_new(steps, key, json_real(rows->step_ms[i]));
    }
    for (size_t i = 0; i < ARRAY_LEN(acceptance); i++) {
        double speedup;
        const size_t k = free_rows_k(rows, acceptance[i], &speedup);
        snprintf(key, sizeof key, "%g", acceptance[i]);
        json_object_set_new(k_for, key,
                            json_pack("{s:I, s:f}", "k", (json_int_t)k, "speedup", speedup));
    }
    return json_pack("{s:s, s:o, s:I, s:I, s:o}", "model", profile->step_model, "step_ms", steps,
                     "free_rows", (json_int_t)rows->free, "samples", (json_int_t)rows->samples, "k_for",
                     k_for);
}
