/* A configuration point: one context length and batch size, with predicted and measured decode
 * times for several T (numbers of KV cache allocations). */
#pragma once

#include "tune/profile.h"
#include "tune/sweep.h"

/* Cache policies that are compared with policy bmc. */
enum point_policy {
    POINT_ITERATIVE,
    POINT_UPFRONT,
    POINT_PAGED,
    POINT_RESERVE,
    POINT_SEGMENT,
    POINT_POLICIES
};

struct config_point_plan {
    size_t N, batch;
    bool sweep;  /* false: predict only */
    bool others; /* measure the policies of enum point_policy, too */
    bool exact;  /* time every step instead of a sample */
    size_t rounds;
    /* at most, while fit and measurement contradict each other, each with twice the rounds */
    size_t attempts;
    double budget_s; /* approximate time limit of an attempt; 0: none */
    void (*progress)(void *arg, size_t done, size_t total);
    void *arg;
};

/* Median and quartiles of the decode time over rounds. */
struct config_point_time {
    double ms, lo_ms, hi_ms;
};

struct config_point {
    size_t N, batch, k, m;
    bool cold;
    struct cost_answer answer; /* best T, from rates at the cache's type and G */
    /* best T from f32 rates at GQA group size G = 1, scaled by G * Q (BMC paper, eq. 8); 0: the
     * profile has no such rates */
    double closed_gq;
    size_t n; /* number of values of T measured or predicted */
    double T[SWEEP_MAX], predicted_ms[SWEEP_MAX];
    struct config_point_time time[SWEEP_MAX];
    size_t used;         /* index into T of the T that bmc uses, answer.pow2 */
    const char *refusal; /* why nothing was measured, or NULL */
    bool measured;
    size_t rounds, batch_run;
    size_t attempts;        /* measurements; the last one counts */
    bool in_fit[SWEEP_MAX]; /* T is within a factor of 8 of the one used */
    struct regret regret;   /* slowdown by the T used against the best T in in_fit */
    struct config_point_time other[POINT_POLICIES];
    struct ratio over_bmc[POINT_POLICIES]; /* decode time relative to bmc at the T used */
};

extern const char *const point_policy_names[POINT_POLICIES];

/* Predicts decode times with the profile's rates (with evicted CPU caches if run->evictor is set),
 * and measures them if plan->sweep is set. */
int config_point_make(const struct tune_run *run, const struct profile *profile,
                      const struct config_point_plan *plan, struct config_point *point,
                      struct err *err) MUST_USE;

/* True if the fitted and the measured regret (slowdown by the T used) contradict each other: their
 * intervals are more than 5 % apart, so the fit is unreliable. */
bool config_point_contradicts(const struct config_point *point);

/* The fastest measured policy; *ratio is its decode time relative to bmc, 1 for bmc itself. */
const char *config_point_fastest(const struct config_point *point, struct ratio *ratio);

/* The policy recommended for a model after measuring n points. Considers the points with evicted
 * CPU caches and no speculation: of the policies clearly faster than bmc at all of them (interval
 * below 1), the one with the smallest worst-case ratio, which *ratio is set to; else "bmc". NULL:
 * no such points. */
const char *config_points_policy(const struct config_point *point, size_t n, struct ratio *ratio);
