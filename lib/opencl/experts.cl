/* The choice of experts (cpu/cpu_experts.c has the order of operations): one work-item a row. */

static void softmax(global float *x, uint n)
{
    float most = x[0], sum = 0;
    for (uint i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (uint i = 0; i < n; i++)
        sum += x[i] = exp(x[i] - most);
    for (uint i = 0; i < n; i++)
        x[i] /= sum;
}

#define TAKEN (-INFINITY)

/* Index of the largest of key[n], the first of equal ones. */
static uint largest(global const float *key, uint n)
{
    uint best = 0;
    for (uint i = 1; i < n; i++)
        if (key[i] > key[best])
            best = i;
    return best;
}

static void drop_groups(const struct cl_route_args *a, global float *key, global float *group)
{
    const uint size = a->experts / a->groups;
    for (uint g = 0; g < a->groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (uint i = g * size; i < (g + 1) * size; i++) {
            second = fmax(second, fmin(first, key[i]));
            first = fmax(first, key[i]);
        }
        group[g] = a->top2 && size > 1 ? first + second : first;
    }
    for (uint i = 0; i < a->groups_used; i++)
        group[largest(group, a->groups)] = TAKEN;
    for (uint e = 0; e < a->experts; e++)
        if (group[e / size] != TAKEN)
            key[e] = TAKEN;
}

/* score: [rows][3][experts], for scores, keys and groups. kind: enum router. */
kernel void route_rows(const struct cl_route_args a)
{
    const uint row = get_global_id(0);
    if (row >= a.rows)
        return;
    global const float *logits = AT(float, a.logits) + (ulong)row * a.logits_stride;
    global float *score = AT(float, a.score) + (ulong)row * 3 * a.experts, *key = score + a.experts;
    global uint *chosen = AT(uint, a.chosen) + (ulong)row * a.chosen_stride;
    global float *weight = AT(float, a.weight) + (ulong)row * a.weight_stride;
    for (uint e = 0; e < a.experts; e++)
        score[e] = a.kind == 2 ? activate(ACT_SIGMOID, logits[e]) : logits[e];
    if (a.kind == 0)
        softmax(score, a.experts);
    for (uint e = 0; e < a.experts; e++)
        key[e] = score[e] + (a.select_bias ? AT(float, a.select_bias)[e] : 0);
    if (a.groups > 1)
        drop_groups(&a, key, key + a.experts);
    for (uint k = 0; k < a.used; k++) {
        const uint best = largest(key, a.experts);
        uint at = k;
        for (; at && chosen[at - 1] > best; at--)
            chosen[at] = chosen[at - 1];
        chosen[at] = best;
        key[best] = TAKEN;
    }
    float sum = 0;
    for (uint k = 0; k < a.used; k++)
        weight[k] = score[chosen[k]];
    if (a.kind == 1)
        softmax(weight, a.used);
    for (uint k = 0; a.kind == 3 && k < a.used; k++)
        weight[k] = activate(ACT_SIGMOID, weight[k]);
    for (uint k = 0; k < a.used; k++)
        sum += weight[k];
    for (uint k = 0; k < a.used; k++) {
        weight[k] = (a.norm ? weight[k] / (sum + 1e-20f) : weight[k]) * a.scale;
        if (a.gain)
            weight[k] *= AT(float, a.gain)[chosen[k]];
    }
}
