/* Computes how much memory sequences need. */
#include "kv/kv_footprint.h"

#include "kv/kv_rows.h"
#include "kv/policy/kv_grow.h"

static size_t rows_bytes(const struct kv_shape *shape, size_t rows)
{
    return size_times(rows, kv_shape_row_bytes(shape));
}

/* Rows that are allocated for a sequence of `rows` rows: rounded up to growth steps of r rows and
 * to whole tiles. */
static size_t allocated_rows(const struct kv *kv, size_t rows)
{
    const size_t N = kv->setup.shape.max_rows;
    return round_up(size_min(round_up(size_min(rows, N), kv->setup.r), N), TILE_ROWS);
}

static size_t sequence_bytes(const struct kv *kv, const struct kv_shape *shape, size_t rows)
{
    return kv->policy->bytes ? kv->policy->bytes(kv, shape, rows)
                             : rows_bytes(shape, allocated_rows(kv, rows));
}

/* Number of prompt rows that are stored only once for `width` beams: whole tiles, if the policy
 * shares prefixes (segment paper, eq. 3). */
static size_t shared_rows(const struct kv *kv, size_t prompt, size_t width)
{
    return width > 1 && kv_shares_prefix(kv) ? prompt / TILE_ROWS * TILE_ROWS : 0;
}

struct kv_footprint kv_footprint(const struct kv *kv, size_t prompt, size_t rows, size_t width)
{
    const size_t one = sequence_bytes(kv, &kv->largest, rows);
    const size_t shared = rows_bytes(&kv->largest, shared_rows(kv, prompt, width));
    const bool countable = one < SIZE_MAX && shared < SIZE_MAX;
    return (struct kv_footprint){
        .total =
            countable ? size_plus(shared, size_times(width, one - size_min(shared, one))) : SIZE_MAX,
        .transient = kv_grow_transient_bytes(kv, rows),
        .ahead = size_times(width, kv_grow_ahead_bytes(kv, rows)),
        .state = size_times(width, state_footprint(kv->state, rows)),
    };
}

struct kv_footprint kv_footprint_add(struct kv_footprint a, struct kv_footprint b)
{
    return (struct kv_footprint){size_plus(a.total, b.total), size_max(a.transient, b.transient),
                                 size_plus(a.floor, b.floor), size_plus(a.ahead, b.ahead),
                                 size_plus(a.state, b.state)};
}

struct kv_footprint kv_footprint_times(struct kv_footprint footprint, size_t n)
{
    footprint.total = size_times(footprint.total, n);
    footprint.floor = size_times(footprint.floor, n);
    footprint.ahead = size_times(footprint.ahead, n);
    footprint.state = size_times(footprint.state, n);
    return footprint;
}

static size_t budget(const struct kv *kv) { return kv->offload.ram ? kv->offload.ram : SIZE_MAX; }

size_t kv_footprint_resident(const struct kv *kv, struct kv_footprint footprint)
{
    return size_plus(size_min(footprint.total, budget(kv)), footprint.state);
}

size_t kv_footprint_peak(const struct kv *kv, struct kv_footprint footprint)
{
    return size_plus(kv_footprint_resident(kv, footprint),
                     size_plus(footprint.ahead, footprint.transient));
}

bool kv_footprint_possible(const struct kv *kv, struct kv_footprint footprint)
{
    return footprint.floor <= budget(kv) || (footprint.total <= budget(kv) && offload_keeps_all(kv));
}

size_t kv_footprint_fits(const struct kv *kv, struct kv_footprint footprint, size_t bytes)
{
    const size_t each = size_plus(footprint.total, size_plus(footprint.ahead, footprint.state));
    if (bytes < footprint.transient)
        return 0;
    const size_t left = bytes - footprint.transient;
    if (!kv->offload.ram || kv->offload.ram > left)
        return each ? left / each : SIZE_MAX;
    if (!footprint.floor)
        return SIZE_MAX;
    return size_max(budget(kv) / footprint.floor,
                    offload_keeps_all(kv) ? budget(kv) / footprint.total : 0);
}

size_t kv_footprint_of_fork(const struct kv *kv, size_t rows, size_t common)
{
    const size_t shared = shared_rows(kv, common, 2);
    const struct kv_shape *shape = &kv->setup.shape;
    return shared ? sequence_bytes(kv, shape, rows) - rows_bytes(shape, shared) : 0;
}
