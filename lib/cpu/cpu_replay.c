/* Recurrent state after some tokens of a pass: their recorded inputs are applied again to the state before it. */
#include "base/threads.h"
#include "cpu/cpu.h"
#include "cpu/cpu_memory.h"
#include "cpu/cpu_pass.h"
#include "kernel/kernel.h"
#include "kv/state/state.h"

struct replay_job {
    const struct state_replay *replay;
    const struct kernels *kernels;
};

static struct state_inputs inputs_of(const struct state_replay *r, size_t layer, size_t i)
{
    const size_t row = r->row ? r->row[i] : i;
    float *inputs = cpu_at(r->inputs);
    return state_inputs_at(r->shape, inputs + (layer * r->rows + row) * state_input_floats(r->shape));
}

/* The convolution's last inputs: those of the accepted tokens, after as many as are still needed of
 * the state before. */
static void replay_conv(const struct state_replay *r, size_t layer, const float *before, float *after)
{
    const struct state_shape *shape = r->shape;
    for (size_t t = 0; t < shape->taps; t++) {
        const size_t at = t + r->n; /* among the earlier inputs, then the new ones */
        const float *from =
            at < shape->taps ? before + at * shape->conv : inputs_of(r, layer, at - shape->taps).conv;
        memcpy(after + t * shape->conv, from, shape->conv * sizeof *from);
    }
}

/* Body of a parallel loop over layers and heads. */
static void replay_head(void *arg, size_t index)
{
    const struct replay_job *job = arg;
    const struct state_replay *r = job->replay;
    const struct state_shape *shape = r->shape;
    const size_t layer = index / size_max(shape->heads, 1), head = index % size_max(shape->heads, 1);
    float *after = (float *)cpu_at(r->after) + layer * state_layer_floats(shape);
    const float *before = (const float *)cpu_at(r->before) + layer * state_layer_floats(shape);
    const size_t slabs = state_slabs(shape), slab_floats = shape->key_dim * STATE_SLAB;
    if (head == 0)
        replay_conv(r, layer, before, after);
    after += state_conv_floats(shape);
    before += state_conv_floats(shape);
    for (size_t b = head * slabs; shape->heads && b < (head + 1) * slabs; b++)
        for (size_t i = 0; i < r->n; i++) {
            const struct state_inputs in = inputs_of(r, layer, i);
            const struct recur step = {
                .state = after + b * slab_floats,
                .before = (i ? after : before) + b * slab_floats,
                .key_dim = shape->key_dim,
                .k = in.k + state_key_head(shape, head) * shape->key_dim,
                .v = in.v + b * STATE_SLAB,
                .decays = shape->by_row ? in.decay + head * shape->key_dim : NULL,
                .decay = in.decay[head],
                .beta = in.beta[head],
                .delta = shape->delta,
            };
            job->kernels->recur(&step);
        }
}

void cpu_replay(const struct state_replay *r, const void *own)
{
    struct replay_job job = {r, ((const struct cpu_options *)own)->kernels};
    parallel_for(r->shape->layers * size_max(r->shape->heads, 1),
                 r->n * r->shape->layers * state_matrix_floats(r->shape), replay_head, &job);
}
