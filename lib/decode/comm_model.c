/* Message sizes and counts of a decoding step: activations, logits and commands. */
#include "decode/comm_model.h"

#include "decode/leader.h"
#include "model/convert/tensor_types.h"
#include "model/forward.h"

static void add_transfer(struct transfers *t, enum transfer_kind kind, size_t bytes, size_t times,
                         size_t waits)
{
    struct transfer *same = t->list;
    while (same < t->list + t->n && (same->kind != kind || same->bytes != bytes))
        same++;
    assert(same < t->list + ARRAY_LEN(t->list));
    if (!times)
        return;
    if (same == t->list + t->n)
        t->list[t->n++] = (struct transfer){kind, bytes, 0, 0};
    same->times += times;
    same->waits += waits;
}

/* Adds an all-gather of `width` elements for each of `rows` tokens, in slices of a step. All count as not overlapped by
 * computation. */
static void add_gather(struct transfers *t, size_t width, size_t rows, size_t slices)
{
    for (size_t i = 0; i < slices; i++)
        add_transfer(t, TRANSFER_GATHER, width * shard_rows(rows, slices, i).n * sizeof(float), 1, 1);
}

/* Adds the gathers of the logits of `rows` tokens. Rank 0 requests logits of up to LEADER_LOGITS
 * tokens at a time and waits once per request. */
static void add_logits(struct transfers *t, const struct config *c, size_t rows)
{
    const size_t most = size_min(LEADER_LOGITS, size_max(1, SHARD_LOGITS_FLOATS / c->vocab));
    const size_t asked = div_up(rows, LEADER_LOGITS);
    const size_t times = div_up(rows, most);
    add_transfer(t, TRANSFER_COLLECT, rows * c->vocab * sizeof(float) / times, times, asked);
}

/* Adds the command messages of a step: forward pass and commits (5 words, and 8 per token for id,
 * position, query and commit), then requests for logits; `waits`: rank 0 waits for these. */
static void add_commands(struct transfers *t, size_t rows, bool waits)
{
    const size_t asked = div_up(rows, LEADER_LOGITS);
    add_transfer(t, TRANSFER_COMMAND, (5 + 8 * rows) * sizeof(uint64_t), 1, 0);
    add_transfer(t, TRANSFER_COMMAND, (3 + size_min(rows, LEADER_LOGITS)) * sizeof(uint64_t), asked,
                 waits ? asked : 0);
}

/* Adds the all-gathers of some operations. */
static void add_operations(struct transfers *t, const struct op_list *list, struct op_range range,
                           size_t rows, size_t slices, bool expert_parallel, size_t used)
{
    for (const struct op *op = list->op + range.first; op < list->op + range.first + range.n; op++) {
        if (op->kind == OP_GATHER && op->out.buffer != BUFFER_LOGITS)
            add_gather(t, op->width, rows, slices);
        if (op->kind == OP_EXPERTS)
            add_gather(t, expert_parallel ? op->out.stride : op->experts.up_all.stride, rows * used, 1);
    }
}

int comm_by_tensor(struct transfers *t, const struct config *c, size_t ranks, size_t rows,
                   bool expert_parallel, struct err *err)
{
    static const struct tensor_types f32 = {.type = DTYPE_F32};
    struct op_list list;
    struct ranks team = {.size = (int)ranks};
    struct model model = {.config = *c, .ranks = &team, .expert_parallel = expert_parallel};
    *t = (struct transfers){.n = 0};
    if (weights_shape(&model.weights, c, &f32, err) < 0)
        return -1;
    const int rc = forward_list(&list, &model, err);
    weights_release(&model.weights);
    if (rc < 0)
        return -1;
    add_operations(t, &list, list.embed, rows, 1, expert_parallel, c->moe->used);
    add_operations(t, &list, list.layers, rows, shard_slices_of(c, rows), expert_parallel,
                   c->moe->used);
    add_operations(t, &list, list.head, rows, 1, expert_parallel, c->moe->used);
    forward_list_close(&list);
    add_logits(t, c, rows);
    add_commands(t, rows, true);
    return 0;
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
    for (size_t l = 0; l < c->layers; l++) {
        const struct layer_plan *plan = &c->plan[l];
        const size_t times = plan->owns_kv ? times_relayed(c, count, ranks, l) : 0;
        add_transfer(t, TRANSFER_HOP, 2 * rows * plan->kv_heads * plan->head_dim * sizeof(float), times,
                     times);
    }
}

struct transfers comm_by_layers(const struct config *c, const size_t *count, size_t ranks, size_t rows)
{
    struct transfers t = {.n = 0};
    const size_t asked = div_up(rows, LEADER_LOGITS);
    add_relayed(&t, c, count, ranks, rows);
    add_transfer(&t, TRANSFER_HOP, rows * config_stream_width(c) * sizeof(float), ranks - 1, ranks - 1);
    add_transfer(&t, TRANSFER_HOP, rows * c->vocab * sizeof(float) / asked, asked, 1);
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
