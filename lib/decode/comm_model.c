/* Message sizes and counts of a decoding step: activations, logits and commands. */
#include "decode/comm_model.h"

#include <assert.h>

#include "decode/leader.h"
#include "model/parallel/shard.h"

static void add(struct transfers *t, enum transfer_kind kind, size_t bytes, size_t times, size_t waits)
{
    assert(t->n < ARRAY_LEN(t->list));
    if (times)
        t->list[t->n++] = (struct transfer){kind, bytes, times, waits};
}

/* Adds `times` all-gathers of an activation of size `dim` for `rows` tokens. */
static void add_gather(struct transfers *t, const struct config *c, enum dim dim, size_t rows,
                       size_t times)
{
    add(t, TRANSFER_GATHER, config_dim(c, dim) * rows * sizeof(float), times, times);
}

/* Adds `times` all-gathers for each slice of a step's `rows` tokens (shard_slices()). All count as
 * not overlapped by computation. */
static void add_sliced_gather(struct transfers *t, const struct config *c, enum dim dim, size_t rows,
                              size_t times)
{
    const size_t slices = shard_slices_of(c, rows);
    for (size_t i = 0; i < slices; i++)
        add_gather(t, c, dim, shard_rows(rows, slices, i).n, times);
}

/* Adds the gathers of the logits of `rows` tokens. Rank 0 requests logits of up to LEADER_LOGITS
 * tokens at a time and waits once per request. */
static void add_logits(struct transfers *t, const struct config *c, size_t rows)
{
    const size_t most = size_min(LEADER_LOGITS, size_max(1, SHARD_LOGITS_FLOATS / c->vocab));
    const size_t asked = div_up(rows, LEADER_LOGITS);
    const size_t times = div_up(rows, most);
    add(t, TRANSFER_COLLECT, rows * c->vocab * sizeof(float) / times, times, asked);
}

/* Adds the command messages of a step: forward pass and commits (5 words, and 8 per token for id,
 * position, query and commit), then requests for logits; `waits`: rank 0 waits for these. */
static void add_commands(struct transfers *t, size_t rows, bool waits)
{
    const size_t asked = div_up(rows, LEADER_LOGITS);
    add(t, TRANSFER_COMMAND, (5 + 8 * rows) * sizeof(uint64_t), 1, 0);
    add(t, TRANSFER_COMMAND, (3 + size_min(rows, LEADER_LOGITS)) * sizeof(uint64_t), asked,
        waits ? asked : 0);
}

/* True if a layer is the first that has what `has` says and these sizes; *n is then the number of such layers. */
static bool is_first_of(const struct config *c, size_t layer, bool (*has)(const struct layer_plan *),
                        bool (*same)(const struct layer_plan *, const struct layer_plan *), size_t *n)
{
    const struct layer_plan *plan = c->plan;
    *n = 0;
    for (size_t l = 0; l < c->layers && has(&plan[layer]); l++)
        if (has(&plan[l]) && same(&plan[l], &plan[layer])) {
            if (l < layer)
                return false;
            ++*n;
        }
    return *n > 0;
}

static bool attends(const struct layer_plan *plan) { return plan->attends; }
static bool has_mlp(const struct layer_plan *plan) { return plan->has_mlp; }
static bool owns_kv(const struct layer_plan *plan) { return plan->owns_kv; }
static bool same_heads(const struct layer_plan *a, const struct layer_plan *b)
{
    return a->heads == b->heads && a->kv_heads == b->kv_heads && a->head_dim == b->head_dim;
}
static bool same_ffn(const struct layer_plan *a, const struct layer_plan *b)
{
    return a->ffn == b->ffn;
}

/* Adds the gathers of heads and MLPs, whose sizes may differ between layers. Returns the number of
 * layers that attend. */
static size_t add_layers(struct transfers *t, const struct config *c, size_t rows)
{
    struct config own;
    size_t n, attending = 0;
    for (size_t l = 0; l < c->layers; l++) {
        const struct config *sizes = config_of_layer(c, l, &own);
        if (is_first_of(c, l, attends, same_heads, &n)) {
            const size_t normed = c->qk_norm == QK_NORM_WHOLE ? n : 0;
            add_sliced_gather(t, sizes, DIM_Q, rows, normed);
            add_sliced_gather(t, sizes, DIM_KV, rows, normed);
            add_sliced_gather(t, sizes, DIM_ATTN_OUT, rows, n);
            attending += n;
        }
        if (is_first_of(c, l, has_mlp, same_ffn, &n))
            add_sliced_gather(t, sizes, DIM_FFN, rows, n);
    }
    return attending;
}

struct transfers comm_by_tensor(const struct config *c, size_t rows, bool deal_experts)
{
    struct transfers t = {.n = 0};
    const size_t state = config_state_layers(c, 0, c->layers);
    /* Mamba-2's norm over heads of several ranks gathers them once more. */
    const bool whole_norm = c->recurrent->norm && c->recurrent->heads && !config_splits_keys(c) &&
                            config_state_kind(c) != LAYER_DELTA;
    if (c->embed != c->hidden) {
        add_gather(&t, c, DIM_HIDDEN, rows, 1);
        add_gather(&t, c, DIM_EMBED, rows, 1);
    }
    const size_t attention = add_layers(&t, c, rows);
    add_sliced_gather(&t, c, DIM_STATE_VALUES, rows, state);
    add_gather(&t, c, DIM_STATE_VALUES, rows, whole_norm ? state : 0);
    size_t with_experts = 0;
    for (size_t l = 0; l < c->layers; l++)
        with_experts += c->plan[l].has_experts;
    /* every rank adds up the outputs of experts that are not sharded */
    const size_t whole = deal_experts && !c->moe->shared_ffn ? with_experts : 0;
    add_sliced_gather(&t, c, DIM_HIDDEN, rows, attention + state + c->layers - whole);
    add_gather(&t, c, DIM_HIDDEN, rows, c->moe->beside ? with_experts : 0);
    add_gather(&t, c, deal_experts ? DIM_HIDDEN : DIM_EXPERT_FFN, rows * c->moe->used, with_experts);
    add_gather(&t, c, DIM_SHARED_FFN, rows, c->moe->shared_ffn ? with_experts : 0);
    add_logits(&t, c, rows);
    add_commands(&t, rows, true);
    return t;
}

/* How many ranks but the last pass on the keys and values of a layer. */
static size_t times_relayed(const struct config *c, const size_t *count, size_t ranks, size_t layer)
{
    size_t times = 0, end = 0;
    for (size_t r = 0; r + 1 < ranks; r++) {
        end += count[r];
        times += layer < end && config_kv_read_from(c, layer, end, c->layers);
    }
    return times;
}

/* Adds the keys and values that layers of later ranks attend to. */
static void add_relayed(struct transfers *t, const struct config *c, const size_t *count, size_t ranks,
                        size_t rows)
{
    for (size_t first = 0, n; first < c->layers; first++) {
        const struct layer_plan *plan = &c->plan[first];
        size_t times = 0;
        if (!is_first_of(c, first, owns_kv, same_heads, &n))
            continue;
        for (size_t l = first; l < c->layers; l++)
            if (owns_kv(&c->plan[l]) && same_heads(&c->plan[l], plan))
                times += times_relayed(c, count, ranks, l);
        add(t, TRANSFER_HOP, 2 * rows * plan->kv_heads * plan->head_dim * sizeof(float), times, times);
    }
}

struct transfers comm_by_layers(const struct config *c, const size_t *count, size_t ranks, size_t rows)
{
    struct transfers t = {.n = 0};
    const size_t asked = div_up(rows, LEADER_LOGITS);
    add_relayed(&t, c, count, ranks, rows);
    add(&t, TRANSFER_HOP, rows * c->hidden * sizeof(float), ranks - 1, ranks - 1);
    add(&t, TRANSFER_HOP, rows * c->vocab * sizeof(float) / asked, asked, 1);
    add_commands(&t, rows, false);
    return t;
}

size_t transfers_bytes(const struct transfers *t, size_t ranks)
{
    size_t bytes = 0;
    for (const struct transfer *at = t->list; at < t->list + t->n; at++) {
        const size_t one = at->kind == TRANSFER_HOP       ? at->bytes
                           : at->kind == TRANSFER_COLLECT ? at->bytes * (ranks - 1) / ranks
                                                          : at->bytes * (ranks - 1);
        bytes += one * at->times;
    }
    return bytes;
}

size_t transfers_calls(const struct transfers *t, size_t ranks)
{
    size_t calls = 0;
    for (const struct transfer *at = t->list; at < t->list + t->n; at++) {
        const size_t of[] = {[TRANSFER_GATHER] = ranks,
                             [TRANSFER_COLLECT] = 2 * (ranks - 1),
                             [TRANSFER_HOP] = 2,
                             [TRANSFER_COMMAND] = 4 * (ranks - 1)};
        calls += of[at->kind] * at->times;
    }
    return calls;
}
