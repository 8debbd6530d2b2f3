/* Beams that are reordered. */
#include <stdlib.h>

#include "base/mem.h"
#include "kv/kv_policy.h"

/* The first child of each parent stays where that lies: from[i] is its own sequence, and taken[j] is set. */
static void keep_first(size_t *to, bool *taken, const size_t *seq, const size_t *parent, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = taken[parent[i]] ? SIZE_MAX : seq[parent[i]];
        taken[parent[i]] = true;
    }
}

/* A second child takes the place of a sequence without any. */
static int place_child(struct kv *kv, size_t to, size_t from, bool joined, struct err *err)
{
    if (joined)
        return kv->policy->reading->follow(kv, to, from, err);
    kv_truncate(kv, to, 0);
    return kv_fork(kv, to, from, kv_position(kv, from), err);
}

int kv_reorder(struct kv *kv, size_t *seq, const size_t *parent, size_t n, struct err *err)
{
    size_t *to = mem_alloc(n, sizeof *to), spare = 0;
    bool *taken = mem_zalloc(n, sizeof *taken);
    int rc = to && taken ? 0 : err_set(err, "out of memory for %zu beams", n);
    if (rc == 0)
        keep_first(to, taken, seq, parent, n);
    const struct kv_reading *reading = kv->policy->reading;
    const bool joined = rc == 0 && reading && reading->join && reading->join(kv, seq, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const size_t from = seq[parent[i]];
        if (to[i] != SIZE_MAX)
            continue;
        while (taken[spare])
            spare++;
        to[i] = seq[spare++]; /* as many places have no child as children are second ones */
        rc = place_child(kv, to[i], from, joined, err);
    }
    if (rc == 0)
        memcpy(seq, to, n * sizeof *seq);
    free(to);
    free(taken);
    return rc;
}
