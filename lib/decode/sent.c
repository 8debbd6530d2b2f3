/* Sizes and numbers of messages: those of joined rows, the chain and the orders of a step. */
#include "decode/sent.h"

#include <assert.h>

#include "decode/lead.h"
#include "model/part.h"

static void add(struct transfers *t, enum transfer_kind kind, size_t bytes, size_t times, size_t waits)
{
    assert(t->n < ARRAY_LEN(t->list));
    if (times)
        t->list[t->n++] = (struct transfer){kind, bytes, times, waits};
}

/* Rows that are joined in one go. */
static void add_joined(struct transfers *t, const struct config *c, enum dim dim, size_t rows,
                       size_t times)
{
    add(t, TRANSFER_GATHER, config_dim(c, dim) * rows * sizeof(float), times, times);
}

/* The same in the pieces that a layer computes. That arithmetic goes on beside them is not counted on. */
static void add_pieces(struct transfers *t, const struct config *c, enum dim dim, size_t rows,
                       size_t times)
{
    const size_t pieces = part_pieces(rows);
    for (size_t i = 0; i < pieces; i++)
        add_joined(t, c, dim, part_rows(rows, pieces, i).n, times);
}

/* Logits come some rows at a time: each time is asked for, and waited for. */
static void add_logits(struct transfers *t, const struct config *c, size_t rows)
{
    const size_t most = size_min(LEAD_LOGITS, size_max(1, PART_LOGITS_FLOATS / c->vocab));
    const size_t asked = div_up(rows, LEAD_LOGITS);
    const size_t times = div_up(rows, most);
    add(t, TRANSFER_COLLECT, rows * c->vocab * sizeof(float) / times, times, asked);
}

/* The step and the rows that it leaves, and questions for logits. What is said of a row: its token, place and query, that it
 * stays, and that its logits are wanted. */
static void add_orders(struct transfers *t, size_t rows, bool waits)
{
    const size_t asked = div_up(rows, LEAD_LOGITS);
    add(t, TRANSFER_ORDER, (5 + 8 * rows) * sizeof(uint64_t), 1, 0);
    add(t, TRANSFER_ORDER, (3 + size_min(rows, LEAD_LOGITS)) * sizeof(uint64_t), asked,
        waits ? asked : 0);
}

struct transfers sent_by_tensor(const struct config *c, size_t rows)
{
    struct transfers t = {.n = 0};
    if (c->embed != c->hidden) {
        add_joined(&t, c, DIM_HIDDEN, rows, 1);
        add_joined(&t, c, DIM_EMBED, rows, 1);
    }
    if (c->qk_norm == QK_NORM_WHOLE) {
        add_pieces(&t, c, DIM_Q, rows, c->layers);
        add_pieces(&t, c, DIM_KV, rows, c->layers);
    }
    add_pieces(&t, c, DIM_Q, rows, c->layers);
    add_pieces(&t, c, DIM_HIDDEN, rows, 2 * c->layers);
    add_pieces(&t, c, DIM_FFN, rows, c->layers);
    add_logits(&t, c, rows);
    add_orders(&t, rows, true);
    return t;
}

struct transfers sent_by_layers(const struct config *c, size_t ranks, size_t rows)
{
    struct transfers t = {.n = 0};
    const size_t asked = div_up(rows, LEAD_LOGITS);
    add(&t, TRANSFER_HOP, rows * c->hidden * sizeof(float), ranks - 1, ranks - 1);
    add(&t, TRANSFER_HOP, rows * c->vocab * sizeof(float) / asked, asked, 1);
    add_orders(&t, rows, false);
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
                             [TRANSFER_ORDER] = 4 * (ranks - 1)};
        calls += of[at->kind] * at->times;
    }
    return calls;
}
