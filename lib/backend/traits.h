/* Traits of models that operations have as parameters and configurations as values of keys. */
#pragma once

/* Norms of activations; cpu_rows.c computes them. */
enum norm { NORM_LAYER, NORM_RMS };

/* Scores of experts: softmax over all logits, over those of the chosen experts, or a sigmoid of each, by which
 * experts are chosen, or by their logits; or, for each chosen expert, softmax over the logits near its own;
 * cpu_experts.c. */
enum router {
    ROUTER_SOFTMAX,
    ROUTER_TOPK_SOFTMAX,
    ROUTER_SIGMOID,
    ROUTER_TOPK_SIGMOID,
    ROUTER_SPARSEMIXER
};
/* Score of a group of experts: that of its best expert, or the sum of its best two. */
enum router_group { ROUTER_GROUP_MAX, ROUTER_GROUP_TOP2 };

enum { MAX_EXPERTS = 1024 };
