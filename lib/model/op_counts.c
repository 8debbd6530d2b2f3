/* Adding up the operations of a forward pass: sizes are those of the weights, so shards count what they have. */
#include "model/op_counts.h"

#include "model/weight_kinds.h"

struct count_walk {
    const struct model *model;
    const struct kv_shape *shape;
    bool head, output; /* products of the head, and of outputs, are counted apart */
    struct op_counts sum;
};

/* Adds `times` vectors of weights of n elements, if there are any. */
static void count_vector(struct count_walk *walk, struct device_addr vector, size_t n, size_t times)
{
    walk->sum.weight_bytes += addr_is_null(vector) ? 0 : times * n * sizeof(float);
}

/* Adds `times` matrices with their biases; `f32`: activations are f32 whatever the precision. */
static void count_matrix(struct count_walk *walk, const struct op_weight *w, bool f32, size_t times)
{
    const struct op_matrix *m = &w->matrix;
    const enum weights_class class = f32 ? WEIGHTS_F32 : weights_class_of(m->dtype);
    const size_t macs = times * m->out * m->in;
    walk->sum.weight_bytes += times * m->out * pack_row_bytes(m->dtype, m->in);
    count_vector(walk, w->bias, m->out, times);
    (walk->head ? walk->sum.head_macs : walk->sum.row_macs)[class] += macs;
    walk->sum.output_macs[class] += walk->output ? macs : 0;
}

static void count_products(struct count_walk *walk, const struct op_product *product, size_t n,
                           size_t times)
{
    for (const struct op_product *p = product; p < product + n; p++) {
        count_matrix(walk, &p->w, p->f32, times);
        count_matrix(walk, &p->gate, p->f32, times);
    }
}

static void count_experts(struct count_walk *walk, const struct op_experts *experts)
{
    const size_t used = model_own_experts(walk->model, walk->model->config.moe->used),
                 before = walk->sum.weight_bytes;
    count_products(walk, experts->up, 1, used);
    count_products(walk, experts->down, 1, used);
    walk->sum.expert_layers++;
    walk->sum.experts_used = used;
    walk->sum.expert_bytes += used ? (walk->sum.weight_bytes - before) / used : 0;
}

static void count_recurrence(struct count_walk *walk, const struct op_recur *r)
{
    const struct recurrent_plan *plan = walk->model->config.recurrent;
    count_vector(walk, r->conv, r->channels, plan->conv_kernel);
    count_vector(walk, r->conv_bias, r->channels, 1);
    count_vector(walk, r->decay, plan->heads, 1);
    count_vector(walk, r->step, config_dim(&walk->model->config, DIM_STATE_DECAYS), 1);
    count_vector(walk, r->skip, plan->heads, 1);
    count_vector(walk, r->norm, r->kind == RECUR_DELTA ? plan->value_dim : r->all_values, 1);
}

static size_t entry_bytes(const struct count_walk *walk, size_t layer)
{
    return kv_sizes_bytes(kv_sizes_of(walk->shape, layer));
}

static void count_attention(struct count_walk *walk, const struct op *op)
{
    struct op_counts *sum = &walk->sum;
    size_t i = 0;
    while (i < sum->n_attend &&
           (sum->attend[i].window != op->attend.window || sum->attend[i].chunk != op->attend.chunk))
        i++;
    if (i == sum->n_attend && i < ARRAY_LEN(sum->attend))
        sum->attend[sum->n_attend++] =
            (struct attend_counts){op->attend.window, op->attend.chunk, 0, 0};
    struct attend_counts *same = &sum->attend[size_min(i, ARRAY_LEN(sum->attend) - 1)];
    same->entry_bytes += entry_bytes(walk, op->attend.layer);
    same->macs += op->in.stride + op->out.stride;
    count_vector(walk, op->attend.sinks, walk->model->config.heads, 1);
}

/* An indexer reads the keys of all positions. */
static void count_choice(struct count_walk *walk, const struct op *op)
{
    struct op_counts *sum = &walk->sum;
    size_t i = 0;
    while (i < sum->n_attend && (sum->attend[i].window || sum->attend[i].chunk))
        i++;
    if (i == sum->n_attend && i < ARRAY_LEN(sum->attend))
        sum->attend[sum->n_attend++] = (struct attend_counts){0};
    struct attend_counts *all = &sum->attend[size_min(i, ARRAY_LEN(sum->attend) - 1)];
    all->entry_bytes += entry_bytes(walk, op->choose.layer);
    all->macs += op->choose.heads * op->choose.dim;
}

static void count_operation(struct count_walk *walk, const struct op *op)
{
    const struct config *c = &walk->model->config;
    switch (op->kind) {
    case OP_LINEAR: count_products(walk, op->linear.product, op->linear.n, 1); break;
    case OP_HEADS: count_matrix(walk, &op->heads.w, false, 1); break;
    case OP_EXPERTS: count_experts(walk, &op->experts); break;
    case OP_NORM:
        count_vector(walk, op->norm.gain, op->width, op->norm.gains);
        count_vector(walk, op->norm.bias, op->width, op->norm.gains);
        break;
    case OP_SCALE: count_vector(walk, op->scale.by, op->scale.columns ? op->width : 1, 1); break;
    case OP_ROUTE:
        count_vector(walk, op->route.select_bias, op->route.experts, 1);
        count_vector(walk, op->route.gain, op->route.experts, 1);
        break;
    case OP_MIX:
        count_vector(walk, op->mix.shared_router, c->hidden, 1);
        count_vector(walk, op->mix.bias, c->hidden, 1);
        break;
    case OP_RECUR: count_recurrence(walk, &op->recur); break;
    case OP_APPEND: walk->sum.append_bytes += entry_bytes(walk, op->append.layer); break;
    case OP_ATTEND: count_attention(walk, op); break;
    case OP_CHOOSE: count_choice(walk, op); break;
    default: break; /* no weights but single rows of tables, no products */
    }
}

struct op_counts op_list_counts(const struct op_list *list, const struct model *model,
                                const struct kv_shape *shape, const struct state_shape *state)
{
    const struct op_range part[] = {list->embed, list->layers, list->head};
    struct count_walk walk = {.model = model, .shape = shape, .sum.state_bytes = state_bytes(state)};
    for (size_t p = 0; p < ARRAY_LEN(part); p++) {
        const size_t before = walk.sum.weight_bytes;
        walk.head = part[p].first == list->head.first;
        for (size_t i = part[p].first; i < part[p].first + part[p].n; i++) {
            walk.output = !walk.head && i >= list->outputs_from;
            count_operation(&walk, &list->op[i]);
        }
        walk.sum.head_bytes = walk.sum.weight_bytes - before;
    }
    return walk.sum;
}

/* ---- passes ---- */

void work_add_pass(struct pass_work *work, const struct op_counts *counts, size_t expert_runs)
{
    const size_t common =
        counts->weight_bytes - counts->head_bytes - counts->experts_used * counts->expert_bytes;
    work->passes++;
    work->weight_bytes +=
        common + expert_runs * counts->expert_bytes / size_max(counts->expert_layers, 1);
}

/* Positions that a token at `position` attends to. */
static size_t attended(const struct attend_counts *attend, size_t position, size_t kept)
{
    size_t n = position + 1;
    if (attend->chunk)
        n = position % attend->chunk + 1;
    if (attend->window)
        n = size_min(n, attend->window);
    return kept ? size_min(n, kept) : n;
}

void work_add_rows(struct pass_work *work, const struct op_counts *counts, size_t position, size_t rows,
                   size_t kept)
{
    for (const struct attend_counts *a = counts->attend; a < counts->attend + counts->n_attend; a++) {
        size_t pairs = 0;
        for (size_t i = 0; i < rows; i++)
            pairs += attended(a, position + i, kept);
        work->attention_macs += pairs * a->macs;
        work->kv_read_bytes += (attended(a, position, kept) + rows - 1) * a->entry_bytes;
    }
    for (size_t class = 0; class < WEIGHTS_CLASSES; class ++)
        work->macs[class] += rows * counts->row_macs[class];
    work->kv_read_bytes += counts->state_bytes;
    work->kv_write_bytes += rows * counts->append_bytes + counts->state_bytes;
}

void work_skip_outputs(struct pass_work *work, const struct op_counts *counts, size_t rows)
{
    for (size_t class = 0; class < WEIGHTS_CLASSES; class ++)
        work->macs[class] -= rows * counts->output_macs[class];
}

void work_add_logits(struct pass_work *work, const struct op_counts *counts, size_t rows)
{
    work->weight_bytes += counts->head_bytes;
    for (size_t class = 0; class < WEIGHTS_CLASSES; class ++)
        work->macs[class] += rows * counts->head_macs[class];
}
