/* Recurrent state of sequences: passes, forks and truncation. */
#include "kv/state/state_store.h"

/* ---- opening ---- */

size_t state_distance(const struct state_shape *shape, size_t row_bytes, size_t least, size_t most)
{
    const size_t bytes = state_bytes(shape);
    size_t every = least;
    while (every < most && size_times(every, row_bytes) < bytes)
        every *= 2;
    return every;
}

int state_open(struct state_store **out, const struct state_options *options, size_t n_seqs,
               struct err *err)
{
    const struct state_shape *shape = &options->shape;
    *out = NULL;
    if (!shape->conv)
        return 0;
    if (state_shape_check(shape, err) < 0)
        return -1;
    assert(options->every);
    struct state_store *store = mem_zalloc(1, sizeof *store);
    if (!store)
        return err_no_memory(err, "recurrent state");
    *out = store;
    store->shape = *shape;
    store->options = *options;
    store->n_seqs = n_seqs;
    store->every = options->every;
    store->most_kept =
        state_most_regular(options, SIZE_MAX) + options->recent + 2 * STATE_WANTED + STATE_MARKS + 1;
    store->seq = mem_zalloc(n_seqs, sizeof *store->seq);
    store->zero = state_block_new(store);
    store->resident_bytes = 0; /* zeros are not counted: they are shared by all sequences */
    bool all = store->seq && store->zero;
    for (size_t s = 0; s < n_seqs && all; s++) {
        store->seq[s].kept = mem_zalloc(store->most_kept, sizeof *store->seq[s].kept);
        store->seq[s].every = store->every;
        all = store->seq[s].kept != NULL;
    }
    if (!all) {
        state_close(store);
        *out = NULL;
        return err_no_memory(err, "a recurrent state of %zu bytes", state_bytes(shape));
    }
    return 0;
}

/* Bytes of the recorded inputs of a sequence; 0: too many. */
static size_t inputs_bytes(const struct state_store *store)
{
    size_t bytes;
    return size_mul(store->options.rows * store->shape.layers,
                    state_input_floats(&store->shape) * sizeof(float), &bytes)
               ? size_max(bytes, 1)
               : 0;
}

static void free_inputs(struct state_store *store, struct state_seq *s)
{
    if (addr_is_null(s->inputs))
        return;
    store->resident_bytes -= inputs_bytes(store);
    store->options.memory->free(VM_POOL, s->inputs, inputs_bytes(store));
    s->inputs = (struct device_addr){0};
}

static void drop_pass(struct state_store *store, struct state_seq *s)
{
    state_block_release(store, s->next);
    for (size_t i = 0; i < s->n_marks; i++)
        state_block_release(store, s->mark[i].block);
    s->next = NULL;
    s->n_marks = s->rows = 0;
}

static void clear_states(struct state_store *store, struct state_seq *s)
{
    drop_pass(store, s);
    state_drop_after(store, s, 0);
    state_block_release(store, s->now);
    s->now = NULL;
    s->every = store->every;
    free_inputs(store, s);
}

void state_close(struct state_store *store)
{
    if (!store)
        return;
    for (size_t s = 0; store->seq && s < store->n_seqs; s++) {
        if (store->seq[s].kept)
            clear_states(store, &store->seq[s]);
        free(store->seq[s].kept);
    }
    state_block_free(store, store->spare);
    store->resident_bytes += store->zero ? state_bytes(&store->shape) : 0;
    state_block_free(store, store->zero);
    free(store->seq);
    free(store);
}

/* ---- a forward pass ---- */

static int alloc_inputs(struct state_store *store, struct state_seq *s, struct err *err)
{
    const size_t bytes = inputs_bytes(store);
    if (!addr_is_null(s->inputs))
        return 0;
    if (bytes)
        s->inputs = store->options.memory->alloc(VM_POOL, bytes);
    if (addr_is_null(s->inputs))
        return err_no_memory(err, "the inputs of %zu draft tokens", store->options.rows);
    store->resident_bytes += bytes;
    return 0;
}

int state_begin(struct state_store *store, size_t seq, size_t position, size_t rows, struct err *err)
{
    if (!store)
        return 0;
    struct state_seq *s = &store->seq[seq];
    drop_pass(store, s);
    s->position = position;
    s->rows = rows;
    s->tree = false;
    s->recorded = rows > 1 && rows <= store->options.rows;
    if (s->recorded && alloc_inputs(store, s, err) < 0)
        return -1;
    s->next = state_block_new(store);
    if (!s->next)
        return err_no_memory(err, "a recurrent state of %zu bytes", state_bytes(&store->shape));
    return state_plan_marks(store, s, err);
}

void state_view(struct state_store *store, size_t seq, size_t layer, bool tree, struct state_view *view)
{
    struct state_seq *s = &store->seq[seq];
    const size_t width = state_input_floats(&store->shape) * sizeof(float);
    s->tree = tree;
    *view = (struct state_view){.before = state_part_of(store, s->now ? s->now : store->zero, layer)};
    if (s->recorded)
        view->inputs = addr_add(s->inputs, layer * store->options.rows * width);
    if (tree)
        return;
    view->after = state_part_of(store, s->next, layer);
    view->n_marks = s->n_marks;
    for (size_t i = 0; i < s->n_marks; i++) {
        view->mark[i].rows = s->mark[i].rows;
        view->mark[i].to = state_part_of(store, s->mark[i].block, layer);
    }
}

/* Sets the state after the pass to that after its tokens row[0..n), whose recorded inputs are applied again. */
static void apply_again(struct state_store *store, struct state_seq *s, const size_t *row, size_t n)
{
    const struct state_replay replay = {
        .shape = &store->shape,
        .before = (s->now ? s->now : store->zero)->data,
        .after = s->next->data,
        .inputs = s->inputs,
        .rows = store->options.rows,
        .n = n,
        .row = row,
    };
    store->options.replay(&replay, store->options.own);
}

static bool is_leading(const size_t *row, size_t n)
{
    size_t i = 0;
    while (row && i < n && row[i] == i)
        i++;
    return !row || i == n;
}

void state_accept(struct state_store *store, size_t seq, const size_t *row, size_t n)
{
    if (!store)
        return;
    struct state_seq *s = &store->seq[seq];
    const bool leading = is_leading(row, n);
    if (n && (n < s->rows || s->tree)) {
        assert(s->recorded);
        apply_again(store, s, row, n);
    }
    if (n) {
        state_block_release(store, s->now);
        s->now = s->next;
        s->next = NULL;
        state_keep_pass(store, s, n, leading && !s->tree);
    }
    drop_pass(store, s);
}

/* ---- truncating, copying, reordering ---- */

size_t state_rewind(const struct state_store *store, size_t seq, size_t position, size_t end)
{
    const struct state_seq *s = &store->seq[seq];
    if (end >= position)
        return position;
    size_t best = 0;
    for (size_t i = 0; i < s->n_kept && s->kept[i].position <= end; i++)
        best = s->kept[i].position;
    return best;
}

bool state_is_at(const struct state_store *store, size_t seq, size_t position, size_t at)
{
    return at == position || state_find(&store->seq[seq], at);
}

void state_truncate(struct state_store *store, size_t seq, size_t position, size_t end)
{
    if (!store)
        return;
    struct state_seq *s = &store->seq[seq];
    drop_pass(store, s);
    s->n_wanted = 0;
    if (!end) {
        clear_states(store, s);
        return;
    }
    if (end == position)
        return;
    struct state_block *block = state_block_share(state_find(s, end));
    assert(block);
    state_block_release(store, s->now);
    s->now = block;
    state_drop_after(store, s, end);
}

void state_fork(struct state_store *store, size_t to, size_t from, size_t position, size_t end)
{
    if (!store)
        return;
    struct state_seq *a = &store->seq[from], *b = &store->seq[to];
    clear_states(store, b);
    if (!end)
        return;
    b->now = state_block_share(end == position ? a->now : state_find(a, end));
    assert(b->now);
    b->every = a->every;
    for (size_t i = 0; i < a->n_kept && a->kept[i].position <= end; i++) {
        b->kept[b->n_kept] = a->kept[i];
        state_block_share(b->kept[b->n_kept++].block);
    }
}

int state_reorder(struct state_store *store, const size_t *seq, const size_t *parent, const size_t *to,
                  size_t n, struct err *err)
{
    if (!store)
        return 0;
    struct state_block **block = mem_alloc(n, sizeof(struct state_block *));
    size_t *n_kept = mem_alloc(n, sizeof *n_kept);
    struct kept *kept = mem_alloc(n, store->most_kept * sizeof *kept);
    if (!block || !n_kept || !kept) {
        free(block);
        free(n_kept);
        free(kept);
        return err_no_memory(err, "the states of %zu beams", n);
    }
    for (size_t i = 0; i < n; i++) {
        const struct state_seq *from = &store->seq[seq[parent[i]]];
        block[i] = state_block_share(from->now);
        n_kept[i] = from->n_kept;
        memcpy(kept + i * store->most_kept, from->kept, from->n_kept * sizeof *kept);
        for (size_t k = 0; k < from->n_kept; k++)
            state_block_share(from->kept[k].block);
    }
    for (size_t i = 0; i < n; i++) {
        struct state_seq *s = &store->seq[to[i]];
        drop_pass(store, s);
        state_drop_after(store, s, 0);
        state_block_release(store, s->now);
        s->now = block[i];
        s->n_kept = n_kept[i];
        memcpy(s->kept, kept + i * store->most_kept, n_kept[i] * sizeof *kept);
    }
    free(block);
    free(n_kept);
    free(kept);
    return 0;
}

/* ---- saving and loading ---- */

void state_read(const struct state_store *store, size_t seq, size_t position, size_t at, void *to)
{
    const struct state_seq *s = &store->seq[seq];
    const struct state_block *block = at == position ? s->now : state_find(s, at);
    assert(block);
    store->options.memory->read(to, block->data, state_bytes(&store->shape));
}

int state_load(struct state_store *store, size_t seq, size_t position, const void *state,
               struct err *err)
{
    struct state_seq *s = &store->seq[seq];
    drop_pass(store, s);
    state_block_release(store, s->now);
    s->now = state_block_new(store);
    if (!s->now)
        return err_no_memory(err, "a recurrent state of %zu bytes", state_bytes(&store->shape));
    store->options.memory->write(s->now->data, state, state_bytes(&store->shape));
    s->position = position;
    state_keep_loaded(store, s);
    return 0;
}

/* ---- memory ---- */

size_t state_resident_bytes(const struct state_store *store)
{
    return store ? store->resident_bytes : 0;
}

size_t state_held_bytes(const struct state_store *store, size_t seq)
{
    if (!store)
        return 0;
    const struct state_seq *s = &store->seq[seq];
    size_t blocks = s->now != NULL;
    for (size_t i = 0; i < s->n_kept; i++)
        blocks += s->kept[i].block != s->now;
    return size_times(blocks, state_bytes(&store->shape));
}

size_t state_footprint(const struct state_store *store, size_t rows)
{
    if (!store)
        return 0;
    const struct state_options *o = &store->options;
    const struct state_shape *shape = o->largest.conv ? &o->largest : &store->shape;
    const size_t kept = size_min(state_most_regular(o, rows), rows / store->every),
                 marked = o->kept || o->stored ? STATE_WANTED : 0,
                 stored = o->stored ? 1 + o->pass / o->stored : 0;
    const size_t blocks = 2 + kept + o->recent + marked + stored;
    const size_t inputs =
        o->rows > 1 ? size_times(o->rows * shape->layers, state_input_floats(shape) * sizeof(float))
                    : 0;
    return size_plus(size_times(blocks, state_bytes(shape)), inputs);
}
