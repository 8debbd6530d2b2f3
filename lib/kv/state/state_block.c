/* Recurrent state: its shape, and blocks that hold states. */
#include "kv/state/state_store.h"

/* ---- shapes ---- */

enum { LINE = 16 }; /* floats of a cache line */

size_t state_conv_floats(const struct state_shape *s) { return round_up(s->taps * s->conv, LINE); }

size_t state_matrix_floats(const struct state_shape *s)
{
    return s->heads * state_slabs(s) * s->key_dim * STATE_SLAB;
}

size_t state_layer_floats(const struct state_shape *s)
{
    return state_conv_floats(s) + state_matrix_floats(s);
}

size_t state_bytes(const struct state_shape *s)
{
    return s->layers * state_layer_floats(s) * sizeof(float);
}

size_t state_input_floats(const struct state_shape *s)
{
    return state_columns(s).v + s->heads * state_slabs(s) * STATE_SLAB;
}

struct state_columns state_columns(const struct state_shape *s)
{
    struct state_columns at = {.decay = round_up(s->conv, LINE)};
    at.beta = at.decay + round_up(state_decays(s), LINE);
    at.k = at.beta + round_up(s->heads, LINE);
    at.v = at.k + round_up(s->key_heads * s->key_dim, LINE);
    return at;
}

struct state_inputs state_inputs_at(const struct state_shape *s, float *row)
{
    const struct state_columns at = state_columns(s);
    return (struct state_inputs){row, row + at.decay, row + at.beta, row + at.k, row + at.v};
}

int state_shape_check(const struct state_shape *s, struct err *err)
{
    enum { MOST = 1 << 20, MOST_DIM = 4096 };
    const bool small = s->layers <= 65536 && s->taps <= 64 && s->conv <= MOST && s->heads <= MOST &&
                       s->key_heads <= MOST && s->key_dim <= MOST_DIM && s->value_dim <= MOST_DIM;
    const bool whole = !s->heads || (s->key_heads && s->group &&
                                     (s->tiled || (s->heads - 1) / s->group < s->key_heads) &&
                                     s->key_dim && s->value_dim);
    size_t bytes;
    if (!small || !whole || !size_mul(s->heads, state_slabs(s) * s->key_dim * STATE_SLAB, &bytes) ||
        bytes > SIZE_MAX / 1024 ||
        !size_mul(state_layer_floats(s), s->layers * sizeof(float), &bytes) || bytes > SIZE_MAX / 1024)
        return err_set(err, "a recurrent state of %zu layers with %zu heads of %zu x %zu is impossible",
                       s->layers, s->heads, s->key_dim, s->value_dim);
    return 0;
}

/* ---- blocks ---- */

static size_t block_bytes(const struct state_store *store)
{
    return size_max(state_bytes(&store->shape), 1);
}

struct state_block *state_block_new(struct state_store *store)
{
    struct state_block *block = store->spare;
    store->spare = NULL;
    if (!block) {
        const size_t bytes = block_bytes(store);
        block = mem_zalloc(1, sizeof *block);
        if (block)
            block->data = store->options.memory->alloc(VM_POOL, bytes);
        if (block && addr_is_null(block->data)) {
            free(block);
            block = NULL;
        }
        if (block)
            store->options.memory->copy(&(struct memory_copy){.to = block->data, .zeros = bytes}, 1);
        store->resident_bytes += block ? state_bytes(&store->shape) : 0;
    }
    if (block)
        block->refs = 1;
    return block;
}

void state_block_free(struct state_store *store, struct state_block *block)
{
    if (!block)
        return;
    store->resident_bytes -= state_bytes(&store->shape);
    store->options.memory->free(VM_POOL, block->data, block_bytes(store));
    free(block);
}

void state_block_release(struct state_store *store, struct state_block *block)
{
    if (!block || --block->refs)
        return;
    if (!store->spare)
        store->spare = block;
    else
        state_block_free(store, block);
}

struct state_part state_part_of(const struct state_store *store, const struct state_block *block,
                                size_t layer)
{
    const struct device_addr data =
        addr_add(block->data, layer * state_layer_floats(&store->shape) * sizeof(float));
    return (struct state_part){data, addr_add(data, state_conv_floats(&store->shape) * sizeof(float))};
}
