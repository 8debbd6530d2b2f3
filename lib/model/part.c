/* Who has what of the outputs of products, and how pieces are joined. */
#include "model/part.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pack.h"
#include "base/ranks_tags.h"
#include "base/threads.h"

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

/* ---- rows ---- */

size_t part_pieces(size_t rows)
{
    return size_max(1, size_min(PART_MOST_PIECES, rows / PART_LEAST_ROWS));
}

/* Where a piece begins, tiles of products do. */
static size_t piece_at(size_t rows, size_t pieces, size_t piece)
{
    enum { TILE = 16 };
    return piece == pieces ? rows : rows * piece / pieces / TILE * TILE;
}

struct rows part_rows(size_t rows, size_t pieces, size_t piece)
{
    const size_t first = piece_at(rows, pieces, piece);
    return (struct rows){first, piece_at(rows, pieces, piece + 1) - first};
}

/* ---- joining ---- */

int part_open(struct part *part, const struct model *model, size_t max_rows, struct err *err)
{
    const struct config *c = &model->config;
    *part = (struct part){.config = c, .ranks = beside(model)};
    if (!part->ranks)
        return 0;
    part->room_width = size_max(size_max(c->hidden, c->ffn), size_max(config_q_width(c), c->embed));
    const size_t room_floats =
        size_max(max_rows * part->room_width, size_min(PART_LOGITS_FLOATS, max_rows * c->vocab));
    part->room = mem_alloc(room_floats, sizeof *part->room);
    part->bytes = mem_alloc((size_t)part->ranks->size, sizeof *part->bytes);
    if (part->room && part->bytes)
        return 0;
    part_close(part);
    return err_set(err, "out of memory for the pieces of %d ranks", model->ranks->size);
}

/* Where a gather has failed, somebody may still write: its room stays until the process ends, which is soon. */
void part_close(struct part *part)
{
    if (!part->n_joints)
        free(part->room);
    else
        threads_between(NULL, NULL);
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

/* Puts this rank's piece where the others' will be. One row's pieces lie as they are gathered. */
static struct joint prepare(struct part *part, enum dim dim, float *all, const float *mine,
                            size_t stride, struct rows rows)
{
    const size_t width = config_dim(part->config, dim), size = (size_t)part->ranks->size;
    const struct piece own = part_own(part, dim);
    struct joint joint = {dim, rows, all + rows.first * width, part->room};
    if (rows.n == 1)
        joint.gathered = joint.all;
    else if (dim != DIM_VOCAB)
        joint.gathered += rows.first * part->room_width;
    for (size_t r = 0; r < size; r++)
        part->bytes[r] = part_piece(part->config, dim, r, size).n * rows.n * sizeof *all;
    copy_rows(joint.gathered + own.first * rows.n, own.n, mine + rows.first * stride, stride, own.n,
              rows.n);
    return joint;
}

/* From where they were gathered to their rows. */
static void spread(const struct part *part, const struct joint *joint)
{
    const size_t n = joint->rows.n, size = (size_t)part->ranks->size;
    const size_t width = config_dim(part->config, joint->dim);
    for (size_t r = 0; r < size && n > 1; r++) {
        const struct piece piece = part_piece(part->config, joint->dim, r, size);
        copy_rows(joint->all + piece.first, width, joint->gathered + piece.first * n, piece.n, piece.n,
                  n);
    }
}

/* ---- waiting for it at once ---- */

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

static int join_now(struct part *part, const struct joint *joint, struct err *err)
{
    const double start = clock_ms();
    if ((joint->dim == DIM_VOCAB ? collect : part->ranks->ops->gather)(part->ranks, joint->gathered,
                                                                       part->bytes, err) < 0)
        return -1;
    part->wait_ms += clock_ms() - start;
    spread(part, joint);
    return 0;
}

/* Some rows at a time. */
static int join_logits(struct part *part, float *all, const float *mine, size_t stride,
                       struct rows rows, struct err *err)
{
    const size_t most = size_max(1, PART_LOGITS_FLOATS / part->config->vocab);
    for (struct rows some = rows; some.first < rows.first + rows.n; some.first += some.n) {
        some.n = size_min(most, rows.first + rows.n - some.first);
        const struct joint joint = prepare(part, DIM_VOCAB, all, mine, stride, some);
        if (join_now(part, &joint, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- beside arithmetic ---- */

/* Between what the threads do: MPI moves on only when it is called. */
static void push(void *arg)
{
    enum { EVERY_US = 100 };
    struct part *part = arg;
    const double now = clock_ms();
    if (now - part->pushed_ms < EVERY_US * 1e-3)
        return;
    part->pushed_ms = now;
    part->ranks->ops->push(part->ranks);
}

static int join_later(struct part *part, const struct joint *joint, struct err *err)
{
    part->joint[part->n_joints++] = *joint;
    threads_between(push, part);
    return part->ranks->ops->start(part->ranks, joint->gathered, part->bytes, err);
}

static int end_oldest(struct part *part, struct err *err)
{
    const struct joint oldest = part->joint[0];
    const double start = clock_ms();
    if (part->ranks->ops->end(part->ranks, err) < 0)
        return -1;
    part->wait_ms += clock_ms() - start;
    memmove(part->joint, part->joint + 1, --part->n_joints * sizeof oldest);
    if (!part->n_joints)
        threads_between(NULL, NULL);
    spread(part, &oldest);
    return 0;
}

int part_start(struct part *part, enum dim dim, float *all, const float *mine, size_t stride,
               struct rows rows, struct err *err)
{
    if (!part->ranks)
        return 0;
    if (dim == DIM_VOCAB)
        return join_logits(part, all, mine, stride, rows, err);
    if (part->n_joints == PART_MOST_PIECES && end_oldest(part, err) < 0)
        return -1;
    const struct joint joint = prepare(part, dim, all, mine, stride, rows);
    /* Nothing goes on beside those of few rows, and a gather in two takes longer than one in one. */
    return (rows.n < PART_LEAST_ROWS ? join_now : join_later)(part, &joint, err);
}

static bool overlap(struct rows a, struct rows b)
{
    return a.first < b.first + b.n && b.first < a.first + a.n;
}

static bool under_way(const struct part *part, struct rows rows)
{
    for (const struct joint *at = part->joint; at < part->joint + part->n_joints; at++)
        if (overlap(at->rows, rows))
            return true;
    return false;
}

int part_finish(struct part *part, struct rows rows, struct err *err)
{
    while (under_way(part, rows))
        if (end_oldest(part, err) < 0)
            return -1;
    return 0;
}
