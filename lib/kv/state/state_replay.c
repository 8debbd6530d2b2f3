/* Applies the recorded inputs of accepted draft tokens to the committed state. */
#include <string.h>

#include "base/threads.h"
#include "kernel/kernel.h"
#include "kv/state/state_store.h"

struct replay {
    const struct state_store *store;
    struct state_seq *seq;
    const size_t *row; /* NULL: the leading ones */
    size_t n;
};

static struct state_inputs inputs_of(const struct replay *r, size_t layer, size_t i)
{
    const struct state_shape *shape = &r->store->shape;
    const size_t row = r->row ? r->row[i] : i;
    return state_inputs_at(shape, r->seq->inputs + (layer * r->store->options.rows + row) *
                                                       state_input_floats(shape));
}

/* The convolution's last inputs: those of the accepted tokens, after as many as are still needed of
 * the state before. */
static void replay_conv(const struct replay *r, size_t layer, const struct state_part *before,
                        const struct state_part *after)
{
    const struct state_shape *shape = &r->store->shape;
    for (size_t t = 0; t < shape->taps; t++) {
        const size_t at = t + r->n; /* among the earlier inputs, then the new ones */
        const float *from = at < shape->taps ? before->conv + at * shape->conv
                                             : inputs_of(r, layer, at - shape->taps).conv;
        memcpy(after->conv + t * shape->conv, from, shape->conv * sizeof *from);
    }
}

/* Body of a parallel loop over layers and heads. */
static void replay_head(void *arg, size_t index)
{
    const struct replay *r = arg;
    const struct state_shape *shape = &r->store->shape;
    const size_t layer = index / size_max(shape->heads, 1), head = index % size_max(shape->heads, 1);
    const struct state_part after = state_part_of(r->store, r->seq->next, layer);
    const struct state_part before =
        state_part_of(r->store, r->seq->now ? r->seq->now : r->store->zero, layer);
    const size_t slabs = state_slabs(shape), slab_floats = shape->key_dim * STATE_SLAB;
    if (head == 0)
        replay_conv(r, layer, &before, &after);
    for (size_t b = head * slabs; shape->heads && b < (head + 1) * slabs; b++)
        for (size_t i = 0; i < r->n; i++) {
            const struct state_inputs in = inputs_of(r, layer, i);
            const struct recur step = {
                .state = after.matrix + b * slab_floats,
                .before = (i ? after.matrix : before.matrix) + b * slab_floats,
                .key_dim = shape->key_dim,
                .k = in.k + state_key_head(shape, head) * shape->key_dim,
                .v = in.v + b * STATE_SLAB,
                .decay = in.decay[head],
                .beta = in.beta[head],
                .delta = shape->delta,
            };
            r->store->options.kernels->recur(&step);
        }
}

void state_replay(struct state_store *store, struct state_seq *seq, const size_t *row, size_t n)
{
    struct replay r = {store, seq, row, n};
    parallel_for(store->shape.layers * size_max(store->shape.heads, 1),
                 n * store->shape.layers * state_matrix_floats(&store->shape), replay_head, &r);
}
