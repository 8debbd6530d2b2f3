/* The choice of experts for a token, in f32 and in one fixed order of operations:
 *
 *   score = softmax(logits) or sigmoid(logits)
 *   key = score + select_bias, or the logit (topk_*)          decides which experts are chosen
 *   groups: only experts of the best groups                   router_groups
 *   chosen = the experts_used largest keys
 *   weight = score of the chosen, or the softmax of their logits alone (topk_softmax), or the sigmoid of each
 *   weight /= sum of weights                                  router_norm
 *   weight *= router_scale, and the expert's gain */
#include "model/experts/router.h"

#include <math.h>

/* x = exp(x - max) / sum */
static void softmax(float *x, size_t n)
{
    float max = x[0], sum = 0;
    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (size_t i = 0; i < n; i++)
        sum += x[i] = expf(x[i] - max);
    for (size_t i = 0; i < n; i++)
        x[i] /= sum;
}

/* Index of the largest of key[0..n), the first of equal ones; used[] are left out. At least one is
 * unused. */
static size_t largest(const float *key, const bool *used, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!used[i] && (best == n || key[i] > key[best]))
            best = i;
    return best;
}

/* Score of a group of n experts. */
static float group_score(const struct config *c, const float *key, size_t n)
{
    float first = -INFINITY, second = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        const float x = key[i];
        if (x > first) {
            second = first;
            first = x;
        } else if (x > second) {
            second = x;
        }
    }
    return c->moe->group_score == ROUTER_GROUP_TOP2 && n > 1 ? first + second : first;
}

/* Marks the experts of all but the best groups as used. */
static void drop_groups(const struct config *c, const float *key, bool *used)
{
    float score[MAX_EXPERTS];
    bool taken[MAX_EXPERTS] = {false};
    const size_t groups = c->moe->groups, size = c->moe->experts / groups;
    for (size_t g = 0; g < groups; g++)
        score[g] = group_score(c, key + g * size, size);
    for (size_t i = 0; i < c->moe->groups_used; i++)
        taken[largest(score, taken, groups)] = true;
    for (size_t e = 0; e < c->moe->experts; e++)
        used[e] = !taken[e / size];
}

static void sort_ascending(uint32_t *x, size_t n)
{
    for (size_t i = 1; i < n; i++)
        for (size_t k = i; k > 0 && x[k - 1] > x[k]; k--) {
            const uint32_t low = x[k];
            x[k] = x[k - 1];
            x[k - 1] = low;
        }
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

static void scores_of(const struct config *c, const float *logits, float *score)
{
    for (size_t e = 0; e < c->moe->experts; e++)
        score[e] = c->moe->router == ROUTER_SIGMOID ? sigmoid(logits[e]) : logits[e];
    if (c->moe->router == ROUTER_SOFTMAX)
        softmax(score, c->moe->experts);
}

void router_choose(const struct config *c, const float *logits, const float *select_bias,
                   const float *gain, float *scratch, uint32_t *chosen, float *weight)
{
    float *score = scratch, *key = scratch + c->moe->experts, sum = 0;
    bool used[MAX_EXPERTS] = {false};
    const size_t n = c->moe->used;
    scores_of(c, logits, score);
    for (size_t e = 0; e < c->moe->experts; e++)
        key[e] = score[e] + (select_bias ? select_bias[e] : 0);
    if (c->moe->groups > 1)
        drop_groups(c, key, used);
    for (size_t i = 0; i < n; i++) {
        chosen[i] = (uint32_t)largest(key, used, c->moe->experts);
        used[chosen[i]] = true;
    }
    sort_ascending(chosen, n);
    for (size_t i = 0; i < n; i++)
        weight[i] = score[chosen[i]];
    if (c->moe->router == ROUTER_TOPK_SOFTMAX)
        softmax(weight, n);
    for (size_t i = 0; c->moe->router == ROUTER_TOPK_SIGMOID && i < n; i++)
        weight[i] = sigmoid(weight[i]);
    for (size_t i = 0; i < n; i++)
        sum += weight[i];
    for (size_t i = 0; i < n; i++)
        weight[i] =
            (c->moe->norm_weights ? weight[i] / (sum + 1e-20f) : weight[i]) * (float)c->moe->scale;
    for (size_t i = 0; gain && i < n; i++)
        weight[i] *= gain[chosen[i]];
}
