/* What a cache takes, by its policy's arithmetic. */
#include "kv/kv_need.h"

#include "kv/kv_grow.h"

/* The cache as the largest of those is that a step must fit, for arithmetic only: each part of a model has its own. */
static struct kv largest_of(const struct kv *kv)
{
    struct kv most = *kv;
    most.setup.shape.layers = size_max(most.setup.shape.layers, kv->spec.others.layers);
    most.setup.shape.kv_heads = size_max(most.setup.shape.kv_heads, kv->spec.others.kv_heads);
    return most;
}

static size_t rows_bytes(const struct kv *kv, size_t rows)
{
    return size_times(rows, kv_rows_bytes(kv, 1));
}

/* Rows that a sequence has made for `rows` of them: up to its next growth, and then in whole tiles. */
static size_t made_rows(const struct kv *kv, size_t rows)
{
    const size_t most = kv->setup.shape.max_rows;
    return round_up(size_min(round_up(size_min(rows, most), kv->setup.r), most), TILE_ROWS);
}

static size_t sequence_bytes(const struct kv *kv, size_t rows)
{
    return kv->policy->bytes ? kv->policy->bytes(kv, rows) : rows_bytes(kv, made_rows(kv, rows));
}

bool kv_shares_rows(const struct kv *kv) { return kv->policy->reading && kv->policy->reading->shared; }

/* Whole tiles of a prompt lie once where sequences can have rows in common (segment paper, eq. 3). */
static size_t shared_rows(const struct kv *kv, size_t prompt, size_t width)
{
    return width > 1 && kv_shares_rows(kv) ? prompt / TILE_ROWS * TILE_ROWS : 0;
}

struct kv_need kv_need(const struct kv *kv, size_t prompt, size_t rows, size_t width)
{
    const struct kv most = largest_of(kv);
    const size_t one = sequence_bytes(&most, rows);
    const size_t shared = rows_bytes(&most, shared_rows(kv, prompt, width));
    const bool countable = one < SIZE_MAX && shared < SIZE_MAX;
    return (struct kv_need){
        .held =
            countable ? size_plus(shared, size_times(width, one - size_min(shared, one))) : SIZE_MAX,
        .moving = kv_grow_moving_bytes(&most, rows),
        .most = kv->spec.spill.ram,
    };
}

size_t kv_need_least(const struct kv *kv, size_t rows, size_t step)
{
    const struct kv most = largest_of(kv);
    return kv->policy->least ? kv->policy->least(&most, rows, step) : 0;
}

size_t kv_need_beyond(const struct kv *kv, size_t rows, size_t step, size_t width)
{
    const struct kv most = largest_of(kv);
    const size_t bytes = size_min(kv_need_least(kv, rows, 0), kv_need(kv, rows, rows, 1).held);
    if (bytes > kv->spec.spill.ram)
        return bytes;
    return step && kv->policy->beyond ? kv->policy->beyond(&most, rows, step, width) : 0;
}

/* Once heads come and go, they do so until the cache is empty, small as it may have become: those of a larger one may, where ours
 * stay. Sparse ones have a step's rows, too. */
static bool stay(const struct kv *kv)
{
    const struct kv_shape *shape = &kv->setup.shape;
    const struct kv_others *others = &kv->spec.others;
    const bool largest = others->layers <= shape->layers && others->kv_heads <= shape->kv_heads;
    return largest && !kv->setup.heads_at_once && !kv->spec.sparse;
}

bool kv_need_possible(const struct kv *kv, struct kv_need need)
{
    return !need.most || need.least <= need.most || (need.held <= need.most && stay(kv));
}

size_t kv_need_of_fork(const struct kv *kv, size_t rows, size_t common)
{
    const size_t whole = shared_rows(kv, common, 2);
    return whole ? sequence_bytes(kv, rows) - rows_bytes(kv, whole) : 0;
}

struct kv_need kv_need_add(struct kv_need a, struct kv_need b)
{
    return (struct kv_need){size_plus(a.held, b.held), size_max(a.moving, b.moving),
                            size_max(a.most, b.most), size_plus(a.least, b.least)};
}

struct kv_need kv_need_times(struct kv_need need, size_t n)
{
    need.held = size_times(need.held, n);
    need.least = size_times(need.least, n);
    return need;
}

size_t kv_need_held(struct kv_need need)
{
    return need.most ? size_min(need.held, need.most) : need.held;
}

size_t kv_need_total(struct kv_need need) { return size_plus(kv_need_held(need), need.moving); }

size_t kv_need_fits(const struct kv *kv, struct kv_need need, size_t bytes)
{
    if (bytes < need.moving || !need.held)
        return 0;
    const size_t left = bytes - need.moving;
    if (!need.most || need.most > left)
        return left / need.held;
    if (!need.least)
        return SIZE_MAX;
    return size_max(need.most / need.least, stay(kv) ? need.most / need.held : 0);
}
