/* Beams that change places. */
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

int kv_reorder(struct kv *kv, size_t *seq, const size_t *parent, size_t n, struct err *err)
{
    size_t *to = mem_alloc(n, sizeof *to), spare = 0;
    bool *taken = mem_zalloc(n, sizeof *taken);
    int rc = to && taken ? 0 : err_set(err, "out of memory for %zu beams", n);
    if (rc == 0)
        keep_first(to, taken, seq, parent, n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const size_t from = seq[parent[i]];
        if (to[i] != SIZE_MAX)
            continue;
        while (taken[spare])
            spare++;
        to[i] = seq[spare++]; /* as many places have no child as children are second ones */
        kv_truncate(kv, to[i], 0);
        rc = kv_fork(kv, to[i], from, kv->seq[from].n, err);
    }
    if (rc == 0)
        memcpy(seq, to, n * sizeof *seq);
    free(to);
    free(taken);
    return rc;
}
