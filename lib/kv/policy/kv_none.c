/* The cache of a model none of whose layers has KV entries, whatever --kv asks for: it stores nothing, and counts tokens
 * up to the context. Beside it is the recurrent state (lib/kv/state/). kv_open() chooses it. */
#include "kv/kv_policy.h"

static int open_none(struct kv *kv, struct err *err)
{
    (void)kv;
    (void)err;
    return 0;
}

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    (void)rows;
    (void)err;
    kv->seq[seq].cap = kv->setup.shape.max_rows;
    return 0;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    (void)extra;
    if (!rows && !n_extra)
        kv->seq[seq].cap = 0;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    (void)from;
    return ensure(kv, to, rows, err);
}

static size_t bytes_of(const struct kv *kv, const struct kv_shape *shape, size_t rows)
{
    (void)kv;
    (void)shape;
    (void)rows;
    return 0;
}

/* There are no heads to append to, or to view. */
const struct kv_policy kv_policy_none = {
    .name = "none",
    .growth = &kv_grow_once,
    .attend = KV_ATTEND_VALID,
    .open = open_none,
    .ensure = ensure,
    .accept = accept,
    .fork = fork_rows,
    .bytes = bytes_of,
};
