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

/* Numbers of layers of the main sizes and of others, and one of each. */
struct layer_counts {
    size_t n[2], last[2];
};

static void count_layer(struct layer_counts *counts, bool other, size_t layer)
{
    counts->n[other]++;
    counts->last[other] = layer;
}

/* Adds the gathers of heads and MLPs, whose sizes may differ between layers. Returns the number of
 * layers that attend. */
static size_t add_layers(struct transfers *t, const struct config *c, size_t rows)
{
    struct layer_counts heads = {{0}, {0}}, mlps = {{0}, {0}};
    struct config own;
    for (size_t l = 0; l < c->layers; l++) {
        if (c->plan[l].attends)
            count_layer(&heads, c->plan[l].kv_other, l);
        if (c->plan[l].has_mlp)
            count_layer(&mlps, c->plan[l].ffn != c->ffn, l);
    }
    for (size_t i = 0; i < 2; i++) {
        const struct config *sizes = config_of_layer(c, heads.last[i], &own);
        const size_t normed = c->qk_norm == QK_NORM_WHOLE ? heads.n[i] : 0;
        add_sliced_gather(t, sizes, DIM_Q, rows, normed);
        add_sliced_gather(t, sizes, DIM_KV, rows, normed);
        add_sliced_gather(t, sizes, DIM_ATTN_OUT, rows, heads.n[i]);
    }
    for (size_t i = 0; i < 2; i++)
        add_sliced_gather(t, config_of_layer(c, mlps.last[i], &own), DIM_FFN, rows, mlps.n[i]);
    return heads.n[0] + heads.n[1];
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

/* Adds the keys and values that layers of later ranks attend to. */
static void add_relayed(struct transfers *t, const struct config *c, const size_t *count, size_t ranks,
                        size_t rows)
{
    size_t times[2] = {0, 0}, end = 0;
    for (size_t r = 0; r + 1 < ranks; r++) {
        end += count[r];
        for (size_t l = 0; l < end; l++)
            times[c->plan[l].kv_other] += config_kv_read_from(c, l, end, c->layers);
    }
    const size_t width[] = {config_kv_width(c), config_full_kv_heads(c) * config_full_head_dim(c)};
    for (size_t other = 0; other < 2; other++)
        add(t, TRANSFER_HOP, 2 * rows * width[other] * sizeof(float), times[other], times[other]);
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
