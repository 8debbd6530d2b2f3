/* Reorders beams: by aliasing KV entries where the cache policy supports that, else by forking. */
#include "base/mem.h"
#include "kv/kv_policy.h"

/* Sets to[i], the sequence that will hold beam i: the first child of a parent keeps the parent's
 * sequence, others get those of childless beams. */
static void assign_sequences(size_t *to, bool *taken, const size_t *seq, const size_t *parent, size_t n)
{
    size_t spare = 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = taken[parent[i]] ? SIZE_MAX : seq[parent[i]];
        taken[parent[i]] = true;
    }
    for (size_t i = 0; i < n; i++) {
        if (to[i] != SIZE_MAX)
            continue;
        while (taken[spare])
            spare++;
        to[i] = seq[spare++];
    }
}

static int fork_children(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to,
                         size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const size_t from = seq[parent[i]];
        if (to[i] == from)
            continue;
        kv_truncate(kv, to[i], 0);
        if (kv_fork(kv, to[i], from, kv_position(kv, from), err) < 0)
            return -1;
    }
    return 0;
}

int kv_reorder(struct kv *kv, size_t *seq, const size_t *parent, size_t n, struct err *err)
{
    AUTO(free_auto) size_t *to = mem_alloc(n, sizeof *to);
    AUTO(free_auto) bool *taken = mem_zalloc(n, sizeof *taken);
    int rc = to && taken ? 1 : err_no_memory(err, "%zu beams", n);
    if (rc == 1)
        assign_sequences(to, taken, seq, parent, n);
    if (rc == 1 && kv->policy->alias)
        rc = kv->policy->alias(kv, seq, parent, to, n, err);
    if (rc == 0)
        rc = state_reorder(kv->state, seq, parent, to, n, err);
    if (rc == 1)
        rc = fork_children(kv, seq, parent, to, n, err);
    if (rc == 0)
        memcpy(seq, to, n * sizeof *seq);
    return rc;
}
