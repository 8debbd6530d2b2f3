/* Who has what of the outputs of products, and how pieces are joined. */
#include "model/part.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pack.h"
#include "base/ranks_tags.h"

/* ---- who has what ---- */

/* Outputs that stay together: those of a KV head's queries, or a block. */
static size_t unit_of(const struct config *c, enum dim dim)
{
    switch (dim) {
    case DIM_Q: return c->heads / c->kv_heads * c->head_dim;
    case DIM_KV: return c->head_dim;
    default: return PACK_OUT;
    }
}

struct piece part_piece(const struct config *c, enum dim dim, size_t rank, size_t size)
{
    const size_t width = config_dim(c, dim), unit = unit_of(c, dim), units = div_up(width, unit);
    const size_t first = size_min(width, units * rank / size * unit);
    const size_t end = size_min(width, units * (rank + 1) / size * unit);
    return (struct piece){first, end - first};
}

static struct piece piece_of(const struct config *c, enum dim dim, const struct ranks *ranks)
{
    return ranks ? part_piece(c, dim, (size_t)ranks->rank, (size_t)ranks->size)
                 : (struct piece){0, config_dim(c, dim)};
}

/* Those that have pieces of every layer. */
static struct ranks *beside(const struct model *model)
{
    return model->by_layers ? NULL : model->ranks;
}

struct config part_config(const struct model *model)
{
    struct config own = model->config;
    own.heads = piece_of(&model->config, DIM_Q, beside(model)).n / own.head_dim;
    own.kv_heads = piece_of(&model->config, DIM_KV, beside(model)).n / own.head_dim;
    if (model->by_layers)
        own.layers = model->n_layers;
    return own;
}

struct config part_largest(const struct model *model)
{
    struct config most = part_config(model);
    const struct ranks *ranks = beside(model);
    for (int r = 0; ranks && r < ranks->size; r++) {
        const size_t n = part_piece(&model->config, DIM_KV, (size_t)r, (size_t)ranks->size).n;
        most.kv_heads = size_max(most.kv_heads, n / most.head_dim);
    }
    if (model->by_layers)
        most.layers = model->most_layers;
    return most;
}

/* ---- pieces ---- */

int part_open(struct part *part, const struct model *model, size_t max_rows, struct err *err)
{
    const struct config *c = &model->config;
    *part = (struct part){.config = c, .ranks = beside(model)};
    if (!part->ranks)
        return 0;
    const size_t widest = size_max(size_max(c->hidden, c->ffn), size_max(config_q_width(c), c->vocab));
    part->room_floats = widest > PART_ROOM_FLOATS / max_rows ? PART_ROOM_FLOATS : widest * max_rows;
    part->room = mem_alloc(part->room_floats, sizeof *part->room);
    part->bytes = mem_alloc((size_t)part->ranks->size, sizeof *part->bytes);
    if (part->room && part->bytes)
        return 0;
    part_close(part);
    return err_set(err, "out of memory for the pieces of %d ranks", model->ranks->size);
}

void part_close(struct part *part)
{
    free(part->room);
    free(part->bytes);
    *part = (struct part){0};
}

struct piece part_own(const struct part *part, enum dim dim)
{
    return piece_of(part->config, dim, part->ranks);
}

/* Rows of n elements; they may be the same already. */
static void copy_rows(float *to, size_t to_stride, const float *from, size_t from_stride, size_t n,
                      size_t rows)
{
    for (size_t i = 0; to != from && i < rows; i++)
        memcpy(to + i * to_stride, from + i * from_stride, n * sizeof *to);
}

/* Like the table's gather(), for rank 0 alone: who follows has no use for logits. */
static int collect(struct ranks *ranks, void *all, const size_t *bytes, struct err *err)
{
    size_t at = 0;
    for (int r = 0; r < ranks->size; at += bytes[r++]) {
        char *piece = (char *)all + at;
        if (r == 0 || !bytes[r])
            continue;
        if (r == ranks->rank)
            return ranks->ops->send(ranks, piece, bytes[r], 0, RANKS_TAG_PIECE, err);
        if (ranks->rank == 0 && ranks_take(ranks, r, RANKS_TAG_PIECE, piece, bytes[r], err) < 0)
            return -1;
    }
    return 0;
}

/* The same for rows of which there is room for all pieces. One row's pieces lie as they are gathered. */
static int join_some(struct part *part, enum dim dim, float *all, const float *mine, size_t stride,
                     size_t rows, struct err *err)
{
    const size_t width = config_dim(part->config, dim), size = (size_t)part->ranks->size;
    const struct piece own = part_own(part, dim);
    float *room = rows == 1 ? all : part->room;
    for (size_t r = 0; r < size; r++)
        part->bytes[r] = part_piece(part->config, dim, r, size).n * rows * sizeof *all;
    copy_rows(room + own.first * rows, own.n, mine, stride, own.n, rows);
    if ((dim == DIM_VOCAB ? collect : part->ranks->ops->gather)(part->ranks, room, part->bytes, err) <
        0)
        return -1;
    for (size_t r = 0; r < size && rows > 1; r++) {
        const struct piece piece = part_piece(part->config, dim, r, size);
        copy_rows(all + piece.first, width, room + piece.first * rows, piece.n, piece.n, rows);
    }
    return 0;
}

int part_join(struct part *part, enum dim dim, float *all, const float *mine, size_t stride,
              size_t rows, struct err *err)
{
    const size_t width = config_dim(part->config, dim);
    if (!part->ranks)
        return 0;
    const double start = clock_ms();
    const size_t most = size_max(1, part->room_floats / width);
    for (size_t from = 0, n; from < rows; from += n) {
        n = size_min(most, rows - from);
        if (join_some(part, dim, all + from * width, mine + from * stride, stride, n, err) < 0)
            return -1;
    }
    part->wait_ms += clock_ms() - start;
    return 0;
}
