/* What a cache takes, by its policy's arithmetic. */
#include "kv/kv_need.h"

#include "kv/kv_grow.h"

static size_t plus(size_t a, size_t b)
{
    size_t sum;
    return size_add(a, b, &sum) ? sum : SIZE_MAX;
}

static size_t times(size_t a, size_t b)
{
    size_t product;
    return size_mul(a, b, &product) ? product : SIZE_MAX;
}

static size_t rows_bytes(const struct kv *kv, size_t rows) { return times(rows, kv_rows_bytes(kv, 1)); }

/* Rows that a sequence has made for `rows` of them: up to its next growth, and then in whole tiles. */
static size_t made_rows(const struct kv *kv, size_t rows)
{
    return round_up(size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows), TILE_ROWS);
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
    const size_t one = sequence_bytes(kv, rows);
    const size_t shared = rows_bytes(kv, shared_rows(kv, prompt, width));
    const bool countable = one < SIZE_MAX && shared < SIZE_MAX;
    return (struct kv_need){
        .held = countable ? plus(shared, times(width, one - size_min(shared, one))) : SIZE_MAX,
        .moving = kv_grow_moving_bytes(kv, rows),
        .most = kv->spec.spill.ram,
    };
}

size_t kv_need_least(const struct kv *kv, size_t rows, size_t step)
{
    return kv->policy->least ? kv->policy->least(kv, rows, step) : 0;
}

/* Once heads come and go, they do so until the cache is empty, small as it may have become. Sparse ones have a step's rows, too. */
bool kv_need_possible(const struct kv *kv, struct kv_need need)
{
    return !need.most || need.least <= need.most ||
           (need.held <= need.most && !kv->setup.heads_at_once && !kv->spec.sparse);
}

size_t kv_need_of_fork(const struct kv *kv, size_t rows, size_t common)
{
    const size_t whole = shared_rows(kv, common, 2);
    return whole ? sequence_bytes(kv, rows) - rows_bytes(kv, whole) : 0;
}

struct kv_need kv_need_add(struct kv_need a, struct kv_need b)
{
    return (struct kv_need){plus(a.held, b.held), size_max(a.moving, b.moving),
                            size_max(a.most, b.most), plus(a.least, b.least)};
}

struct kv_need kv_need_times(struct kv_need need, size_t n)
{
    need.held = times(need.held, n);
    need.least = times(need.least, n);
    return need;
}

size_t kv_need_held(struct kv_need need)
{
    return need.most ? size_min(need.held, need.most) : need.held;
}

size_t kv_need_total(struct kv_need need) { return plus(kv_need_held(need), need.moving); }

size_t kv_need_fits(struct kv_need need, size_t bytes)
{
    if (bytes < need.moving || !need.held)
        return 0;
    const size_t left = bytes - need.moving;
    return need.most && need.most <= left ? SIZE_MAX : left / need.held;
}
