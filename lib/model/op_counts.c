/* Adding up the operations of a forward pass: sizes are those of the weights, so shards count what they have. */
#include "model/op_counts.h"

struct count_walk {
    const struct model *model;
    const struct cache_types *kv_types;
    bool head; /* products of the head are counted apart */
    struct op_counts sum;
};

/* Adds `times` vectors of weights of n elements, if there are any. */
static void count_vector(struct count_walk *walk, struct device_addr vector, size_t n, size_t times)
{
    walk->sum.weight_bytes += addr_is_null(vector) ? 0 : times * n * sizeof(float);
}

/* Adds `times` matrices with their biases. */
static void count_matrix(struct count_walk *walk, const struct op_weight *w, size_t times)
{
    const struct op_matrix *m = &w->matrix;
    walk->sum.weight_bytes += times * m->out * pack_row_bytes(m->dtype, m->in);
    count_vector(walk, w->bias, m->out, times);
    *(walk->head ? &walk->sum.head_macs : &walk->sum.row_macs) += times * m->out * m->in;
}

static void count_products(struct count_walk *walk, const struct op_product *product, size_t n,
                           size_t times)
{
    for (const struct op_product *p = product; p < product + n; p++) {
        count_matrix(walk, &p->w, times);
        count_matrix(walk, &p->gate, times);
    }
}

static void count_experts(struct count_walk *walk, const struct op_experts *experts)
{
    const size_t used = model_own_experts(walk->model, walk->model->config.moe->used),
                 before = walk->sum.weight_bytes;
    count_products(walk, experts->up, 1, used);
    count_products(walk, experts->down, 1, used);
    walk->sum.expert_bytes += used ? (walk->sum.weight_bytes - before) / used : 0;
}

static void count_recurrence(struct count_walk *walk, const struct op_recur *r)
{
    const struct recurrent_plan *plan = walk->model->config.recurrent;
    count_vector(walk, r->conv, r->channels, plan->conv_kernel);
    count_vector(walk, r->conv_bias, r->channels, 1);
    count_vector(walk, r->decay, plan->heads, 1);
    count_vector(walk, r->step, plan->heads, 1);
    count_vector(walk, r->skip, plan->heads, 1);
    count_vector(walk, r->norm, r->kind == RECUR_DELTA ? plan->value_dim : r->all_values, 1);
}

static size_t entry_bytes(const struct count_walk *walk, size_t layer)
{
    const struct kv_sizes entry = config_kv_sizes(&walk->model->config, layer, walk->kv_types);
    return kv_sizes_bytes(&entry);
}

static void count_operation(struct count_walk *walk, const struct op *op)
{
    const struct config *c = &walk->model->config;
    switch (op->kind) {
    case OP_LINEAR: count_products(walk, op->linear.product, op->linear.n, 1); break;
    case OP_HEADS: count_matrix(walk, &op->heads.w, 1); break;
    case OP_EXPERTS: count_experts(walk, &op->experts); break;
    case OP_NORM:
        count_vector(walk, op->norm.gain, op->width, op->norm.gains);
        count_vector(walk, op->norm.bias, op->width, op->norm.gains);
        break;
    case OP_SCALE: count_vector(walk, op->scale.by, 1, 1); break;
    case OP_ROUTE:
        count_vector(walk, op->route.select_bias, op->route.experts, 1);
        count_vector(walk, op->route.gain, op->route.experts, 1);
        break;
    case OP_MIX: count_vector(walk, op->mix.shared_router, c->hidden, 1); break;
    case OP_RECUR: count_recurrence(walk, &op->recur); break;
    case OP_APPEND: walk->sum.append_bytes += entry_bytes(walk, op->layer); break;
    case OP_ATTEND:
        count_vector(walk, op->attend.sinks, c->heads, 1);
        walk->sum.context_bytes += entry_bytes(walk, op->layer);
        walk->sum.context_macs += op->in.stride + op->out.stride;
        break;
    default: break; /* no weights but single rows of tables, no products */
    }
}

static struct op_counts op_list_counts(const struct op_list *list, const struct model *model,
                                       const struct cache_types *kv_types)
{
    const struct op_range part[] = {list->embed, list->layers, list->head};
    struct count_walk walk = {.model = model, .kv_types = kv_types};
    for (size_t p = 0; p < ARRAY_LEN(part); p++) {
        walk.head = part[p].first == list->head.first;
        for (size_t i = 0; i < part[p].n; i++)
            count_operation(&walk, &list->op[part[p].first + i]);
    }
    return walk.sum;
}

int model_counts(struct op_counts *counts, const struct model *model,
                 const struct cache_types *kv_types, struct err *err)
{
    struct op_list list;
    *counts = (struct op_counts){0};
    if (forward_list(&list, model, err) < 0)
        return -1;
    *counts = op_list_counts(&list, model, kv_types);
    forward_list_close(&list);
    return 0;
}
