/* The recurrence of layers with state, over the tokens of all sequences of a step. */
#include <stdlib.h>

#include "base/threads.h"
#include "model/recurrent/forward_state_parts.h"

static size_t slab_floats(const struct forward_state *s) { return s->shape.key_dim * STATE_SLAB; }

/* One slab of one head of a query. */
struct slab {
    const struct forward_state *s;
    const struct attn_query *q;
    const struct state_view *view;
    size_t slab, head; /* index among the slabs of all heads */
};

static struct recur step_of(const struct slab *b, size_t row, const float *before, float *after)
{
    const struct state_shape *shape = &b->s->shape;
    const size_t at = b->q->first + row, group = state_key_head(shape, b->head);
    const struct state_inputs in = state_inputs_at(shape, b->s->inputs + at * b->s->width);
    const size_t keys = shape->key_heads * shape->key_dim;
    const size_t q = conv_parts_of(b->s->kind, keys, shape->conv - 2 * keys).q;
    return (struct recur){
        .state = after,
        .before = before,
        .key_dim = shape->key_dim,
        .k = in.k + group * shape->key_dim,
        .q = b->s->convolved + at * shape->conv + q + group * shape->key_dim,
        .v = in.v + b->slab * STATE_SLAB,
        .decay = in.decay[b->head],
        .beta = in.beta[b->head],
        .delta = shape->delta,
        .y = b->s->y + at * b->s->padded + b->slab * STATE_SLAB,
    };
}

/* Tokens in a row: the state stays in the block after the pass, a slab of which fits in the cache. */
static void run_chain(const struct slab *b, const struct kernels *kernels)
{
    const size_t floats = slab_floats(b->s), at = b->slab * floats;
    float *after = b->view->after.matrix + at;
    const float *before = b->view->before.matrix + at;
    size_t mark = 0;
    for (size_t row = 0; row < b->q->rows; row++, before = after) {
        const struct recur step = step_of(b, row, before, after);
        kernels->recur(&step);
        if (mark < b->view->n_marks && b->view->mark[mark].rows == row + 1)
            memcpy(b->view->mark[mark++].to.matrix + at, after, floats * sizeof *after);
    }
}

/* Tokens of a tree: `nodes` has the state of each. */
static void run_tree(const struct slab *b, const struct kernels *kernels, float *nodes)
{
    const size_t floats = slab_floats(b->s);
    for (size_t row = 0; row < b->q->rows; row++) {
        const float *before = path_length(b->q, row) > 1 ? nodes + path_row(b->q, row, 1) * floats
                                                         : b->view->before.matrix + b->slab * floats;
        const struct recur step = step_of(b, row, before, nodes + row * floats);
        kernels->recur(&step);
    }
}

/* Body of a parallel loop over queries and slabs. */
static void recur_slab(void *arg, size_t index)
{
    const struct state_job *job = arg;
    const struct forward_state *s = job->f->state;
    const size_t slabs = state_slabs(&s->shape), all = s->shape.heads * slabs;
    const size_t query = index / all;
    const struct slab b = {s, &job->step->query[query], &s->view[query], index % all,
                           index % all / slabs};
    if (is_tree(b.q))
        run_tree(&b, job->f->kernels, s->nodes + (size_t)threads_self() * s->n_nodes * slab_floats(s));
    else
        run_chain(&b, job->f->kernels);
}

static int alloc_nodes(struct forward_state *s, const struct step *step, struct err *err)
{
    size_t most = 0, floats;
    for (size_t i = 0; i < step->n_queries; i++)
        most = is_tree(&step->query[i]) ? size_max(most, step->query[i].rows) : most;
    if (most <= s->n_nodes)
        return 0;
    free(s->nodes);
    s->n_nodes = 0;
    s->nodes = size_mul((size_t)threads_max() * slab_floats(s), most, &floats)
                   ? mem_alloc(floats, sizeof *s->nodes)
                   : NULL;
    if (!s->nodes)
        return err_no_memory(err, "the states of a draft tree of %zu tokens", most);
    s->n_nodes = most;
    return 0;
}

int state_recur(struct state_job *job, struct err *err)
{
    struct forward_state *s = job->f->state;
    const size_t slabs = s->shape.heads * state_slabs(&s->shape);
    if (alloc_nodes(s, job->step, err) < 0)
        return -1;
    parallel_for(job->step->n_queries * slabs, 3 * job->step->rows * slabs * slab_floats(s), recur_slab,
                 job);
    return 0;
}
