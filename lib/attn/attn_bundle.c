/* Queries whose sequences share their first rows. */
#include "attn/attn_bundle.h"

#include <stdlib.h>

#include "base/mem.h"

bool bundles_open(struct bundles *bundles, size_t queries)
{
    bundles->order = mem_alloc(queries, sizeof *bundles->order);
    bundles->bundle = mem_alloc(queries, sizeof *bundles->bundle);
    return bundles->order && bundles->bundle;
}

void bundles_close(struct bundles *bundles)
{
    free(bundles->order);
    free(bundles->bundle);
}

/* Queries of several rows, and trees, stay alone: their rows share what they read already. */
static bool is_single(const struct attn_query *query) { return query->rows == 1 && !query->tail; }

/* Rows that both see, as far as a run may be cut there. */
static size_t common_rows(const struct kv *kv, const struct attn_query *a, const struct attn_query *b)
{
    const size_t rows = is_single(a) && is_single(b) ? kv_shared_rows(kv, a->seq, b->seq) : 0;
    return rows / ATTEND_BLOCK * ATTEND_BLOCK;
}

/* Puts `joins` behind those of its position. */
static void insert(struct bundle *bundle, const struct kv *kv, const struct attn_query *joins)
{
    const size_t n = kv_position(kv, joins->seq);
    size_t at = bundle->n++;
    for (; at && kv_position(kv, bundle->query[at - 1]->seq) > n; at--)
        bundle->query[at] = bundle->query[at - 1];
    bundle->query[at] = joins;
}

/* The bundle of query[0] and of those among the `left` from there on that share rows with it, which move there. */
static struct bundle make_bundle(const struct kv *kv, const struct attn_query **query, size_t left,
                                 size_t most)
{
    const struct attn_query *first = query[0];
    struct bundle bundle = {query, 1, 0};
    for (size_t i = 1; i < left && bundle.n < most; i++) {
        const struct attn_query *joins = query[i];
        const size_t shared = common_rows(kv, first, joins);
        if (!shared)
            continue;
        bundle.shared = bundle.n == 1 ? shared : size_min(bundle.shared, shared);
        query[i] = query[bundle.n];
        insert(&bundle, kv, joins);
    }
    return bundle;
}

void bundles_make(struct bundles *bundles, const struct attn_step *step, size_t most)
{
    const size_t n = step->n_queries;
    for (size_t i = 0; i < n; i++)
        bundles->order[i] = &step->query[i];
    bundles->n = 0;
    for (size_t i = 0; i < n; i += bundles->bundle[bundles->n++].n)
        bundles->bundle[bundles->n] = make_bundle(step->kv, bundles->order + i, n - i, most);
}

size_t bundle_end(const struct kv *kv, const struct bundle *bundle)
{
    size_t most = 0;
    for (size_t i = 0; i < bundle->n; i++)
        most = size_max(most, kv_rows_end(kv, bundle->query[i]->seq));
    return most;
}
