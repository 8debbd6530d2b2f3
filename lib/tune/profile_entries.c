/* Entries of a tuned profile: adding, finding, merging. */
#include <stdio.h>
#include <stdlib.h>

#include "tune/profile.h"

void profile_release(struct profile *p)
{
    free(p->curve);
    free(p->tuned);
    free(p->model);
    free(p->spec);
    *p = (struct profile){0};
}

int profile_put_curve(struct profile *p, const struct rate_curve *curve, struct err *err)
{
    size_t i = 0;
    while (i < p->n_curves && !rate_curve_same(&p->curve[i], curve))
        i++;
    if (i == p->n_curves && mem_grow(&p->curve, &p->curves_cap, i, sizeof *curve, err) < 0)
        return -1;
    p->curve[i] = *curve;
    p->n_curves += i == p->n_curves;
    return 0;
}

static bool same_config(const struct tuned_T *a, const struct tuned_T *b)
{
    return strcmp(a->attn, b->attn) == 0 && a->type == b->type && a->width == b->width &&
           a->group == b->group && a->layers == b->layers && a->batch == b->batch && a->N == b->N;
}

int profile_put_T(struct profile *p, const struct tuned_T *tuned, struct err *err)
{
    size_t i = 0;
    while (i < p->n_tuned && !same_config(&p->tuned[i], tuned))
        i++;
    if (i == p->n_tuned && mem_grow(&p->tuned, &p->tuned_cap, i, sizeof *tuned, err) < 0)
        return -1;
    p->tuned[i] = *tuned;
    p->n_tuned += i == p->n_tuned;
    return 0;
}

static bool same_pair(const struct tuned_spec *a, const struct tuned_spec *b)
{
    return strcmp(a->target, b->target) == 0 && strcmp(a->draft, b->draft) == 0 &&
           strcmp(a->attn, b->attn) == 0 && a->type == b->type && a->batch == b->batch;
}

int profile_put_spec(struct profile *p, const struct tuned_spec *spec, struct err *err)
{
    size_t i = 0;
    while (i < p->n_specs && !(same_pair(&p->spec[i], spec) && p->spec[i].N == spec->N))
        i++;
    if (i == p->n_specs && mem_grow(&p->spec, &p->specs_cap, i, sizeof *spec, err) < 0)
        return -1;
    p->spec[i] = *spec;
    p->n_specs += i == p->n_specs;
    return 0;
}

static size_t distance(size_t a, size_t b) { return a > b ? a - b : b - a; }

const struct tuned_spec *profile_spec(const struct profile *p, const struct tuned_spec *like)
{
    const struct tuned_spec *best = NULL;
    for (size_t i = 0; i < p->n_specs; i++)
        if (same_pair(&p->spec[i], like) &&
            (!best || distance(p->spec[i].N, like->N) < distance(best->N, like->N)))
            best = &p->spec[i];
    return best;
}

void profile_put_rates(struct profile *p, const struct kernel_rates *rates, size_t n)
{
    p->n_rates = 0;
    for (size_t i = 0; i < n && i < RATES_MOST; i++) {
        struct tuned_rate *rate = &p->rate[p->n_rates++];
        snprintf(rate->isa, sizeof rate->isa, "%s", rates[i].kernels->isa);
        memcpy(rate->gop_s, rates[i].gop_s, sizeof rate->gop_s);
    }
}

/* Collects a kernel set's peak rates; false if the profile lacks one. */
static bool rates_of(const struct profile *p, const struct kernels *kernels, struct kernel_rates *rates)
{
    bool all = true;
    size_t i = 0;
    while (i < p->n_rates && strcmp(p->rate[i].isa, kernels->isa) != 0)
        i++;
    *rates = (struct kernel_rates){.kernels = kernels};
    if (i < p->n_rates)
        memcpy(rates->gop_s, p->rate[i].gop_s, sizeof rates->gop_s);
    for (int kind = 0; kind < PEAK_KINDS; kind++)
        all &= !kernels->peak[kind] || rates->gop_s[kind] > 0;
    return all;
}

const struct kernels *profile_kernels(const struct profile *p)
{
    struct kernel_rates rates[RATES_MOST];
    size_t n = 0;
    for (size_t i = 0; p->n_rates && kernel_sets[i] && n < RATES_MOST; i++)
        if (kernel_sets[i]->usable() && !rates_of(p, kernel_sets[i], &rates[n++]))
            return NULL;
    return n ? rates_fastest(rates, n) : NULL;
}

const struct tuned_model *profile_model(const struct profile *p, const char *key)
{
    for (size_t i = 0; i < p->n_models; i++)
        if (strcmp(p->model[i].key, key) == 0)
            return &p->model[i];
    return NULL;
}

struct tuned_model *profile_put_model(struct profile *p, const char *key, struct err *err)
{
    const struct tuned_model *there = profile_model(p, key);
    if (there)
        return &p->model[there - p->model];
    if (p->n_models == PROFILE_MODELS)
        err_set(err, "a profile has no more than %d models", PROFILE_MODELS);
    if (p->n_models == PROFILE_MODELS ||
        mem_grow(&p->model, &p->models_cap, p->n_models, sizeof *p->model, err) < 0)
        return NULL;
    struct tuned_model *model = &p->model[p->n_models++];
    *model = (struct tuned_model){.policy_ratio = {1, 1, 1}};
    snprintf(model->key, sizeof model->key, "%s", key);
    return model;
}

void profile_shape_key(char *key, size_t size, const char *shape)
{
    const char *slash = strrchr(shape, '/'), *name = slash ? slash + 1 : shape,
               *end = strstr(name, ".shape");
    const bool ends = end && end > name && !end[strlen(".shape")];
    snprintf(key, size, "%.*s", (int)size_min(ends ? (size_t)(end - name) : strlen(name), size - 1),
             name);
    for (char *at = key; *at; at++)
        if (*at > 0 && (*at <= ' ' || *at == 127))
            *at = '_';
}

/* Adds or updates a model: copies the results that `newer` has measured; others stay. */
static int merge_model(struct profile *p, const struct tuned_model *newer, struct err *err)
{
    struct tuned_model *model = profile_put_model(p, newer->key, err);
    if (!model)
        return -1;
    if (newer->knee.n || !model->knee.n) /* named by the run that measured the knee */
        memcpy(model->name, newer->name, sizeof model->name);
    if (newer->policy[0]) {
        memcpy(model->policy, newer->policy, sizeof model->policy);
        model->policy_ratio = newer->policy_ratio;
    }
    if (newer->knee.n)
        model->knee = newer->knee;
    return 0;
}

int profile_merge(struct profile *p, const struct profile *newer, struct err *err)
{
    int rc = 0;
    if (newer->n_rates) {
        memcpy(p->rate, newer->rate, sizeof p->rate);
        p->n_rates = newer->n_rates;
    }
    for (size_t i = 0; rc == 0 && i < newer->n_curves; i++)
        rc = profile_put_curve(p, &newer->curve[i], err);
    for (size_t i = 0; rc == 0 && i < newer->n_tuned; i++)
        rc = profile_put_T(p, &newer->tuned[i], err);
    for (size_t i = 0; rc == 0 && i < newer->n_specs; i++)
        rc = profile_put_spec(p, &newer->spec[i], err);
    for (size_t i = 0; rc == 0 && i < newer->n_models; i++)
        rc = merge_model(p, &newer->model[i], err);
    return rc;
}
