/* Queries whose sequences share their first rows. */
#include "attn/attn_bundle.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

bool bundles_open(struct bundles *bundles, size_t queries)
{
    bundles->order = mem_alloc(queries, sizeof *bundles->order);
    bundles->common = mem_alloc(queries, sizeof *bundles->common);
    bundles->bundle = mem_alloc(queries, sizeof *bundles->bundle);
    return bundles->order && bundles->common && bundles->bundle;
}

void bundles_close(struct bundles *bundles)
{
    free(bundles->order);
    free(bundles->common);
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

/* Puts `joins` behind those of its position; of these behind the one that it shares the most rows with. */
static void insert(const struct attn_query **query, size_t n, const struct kv *kv,
                   const struct attn_query *joins)
{
    const size_t own = kv_position(kv, joins->seq);
    size_t at = n, most = 0;
    while (at && kv_position(kv, query[at - 1]->seq) > own)
        at--;
    for (size_t i = at; i-- > 0 && kv_position(kv, query[i]->seq) == own;) {
        const size_t rows = common_rows(kv, query[i], joins);
        at = rows > most ? i + 1 : at;
        most = size_max(most, rows);
    }
    memmove(query + at + 1, query + at, (n - at) * sizeof *query);
    query[at] = joins;
}

/* The bundle of query[0] and of those among the `left` from there on that share rows with it, which move there. */
static struct bundle make_bundle(const struct kv *kv, const struct attn_query **query, size_t *common,
                                 size_t left, size_t most)
{
    const struct attn_query *first = query[0];
    size_t n = 1;
    for (size_t i = 1; i < left && n < most; i++) {
        const struct attn_query *joins = query[i];
        if (!common_rows(kv, first, joins))
            continue;
        query[i] = query[n];
        insert(query, n++, kv, joins);
    }
    for (size_t i = 0; i + 1 < n; i++)
        common[i] = common_rows(kv, query[i], query[i + 1]);
    return (struct bundle){query, common, n};
}

void bundles_make(struct bundles *bundles, const struct attn_step *step, size_t most)
{
    const size_t n = step->n_queries;
    for (size_t i = 0; i < n; i++)
        bundles->order[i] = &step->query[i];
    bundles->n = 0;
    for (size_t i = 0; i < n; i += bundles->bundle[bundles->n++].n)
        bundles->bundle[bundles->n] =
            make_bundle(step->kv, bundles->order + i, bundles->common + i, n - i, most);
}

size_t bundle_shared(const struct bundle *bundle, size_t from, size_t to)
{
    size_t least = SIZE_MAX;
    for (size_t i = from; i + 1 < to; i++)
        least = size_min(least, bundle->common[i]);
    return least;
}

size_t bundle_end(const struct kv *kv, const struct bundle *bundle)
{
    size_t most = 0;
    for (size_t i = 0; i < bundle->n; i++)
        most = size_max(most, kv_rows_end(kv, bundle->query[i]->seq));
    return most;
}
