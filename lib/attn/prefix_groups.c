/* Prefix groups: queries whose sequences share a prefix. */
#include "attn/prefix_groups.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

bool prefix_groups_open(struct prefix_groups *groups, size_t queries)
{
    groups->order = mem_alloc(queries, sizeof *groups->order);
    groups->common = mem_alloc(queries, sizeof *groups->common);
    groups->group = mem_alloc(queries, sizeof *groups->group);
    return groups->order && groups->common && groups->group;
}

void prefix_groups_close(struct prefix_groups *groups)
{
    free(groups->order);
    free(groups->common);
    free(groups->group);
}

/* True for queries that may share a group: those of one row. A query of several rows, which read
 * the same sequence anyway, forms its own group. */
static bool is_single(const struct attn_query *query) { return query->rows == 1 && !query->ancestors; }

/* Number of leading KV entries that the sequences of both queries share, rounded down to whole
 * blocks, at which a run of positions may be split. */
static size_t common_rows(const struct kv *kv, const struct attn_query *a, const struct attn_query *b)
{
    const size_t rows = is_single(a) && is_single(b) ? kv_shared_rows(kv, a->seq, b->seq) : 0;
    const size_t block = attend_block(kv_setup(kv)->shape.type);
    return rows / block * block;
}

/* Inserts a query into query[n], sorted by position; among those at its own position, behind the
 * one with which it shares the most entries. */
static void insert(const struct attn_query **query, size_t n, const struct kv *kv,
                   const struct attn_query *added)
{
    const size_t position = kv_position(kv, added->seq);
    size_t at = n, most = 0;
    while (at && kv_position(kv, query[at - 1]->seq) > position)
        at--;
    for (size_t i = at; i-- > 0 && kv_position(kv, query[i]->seq) == position;) {
        const size_t rows = common_rows(kv, query[i], added);
        at = rows > most ? i + 1 : at;
        most = size_max(most, rows);
    }
    memmove(query + at + 1, query + at, (n - at) * sizeof *query);
    query[at] = added;
}

/* Makes a group of query[0] and those of the next left - 1 queries that share a prefix with it,
 * `most` queries in all at most, and moves these to the front. */
static struct prefix_group make_group(const struct kv *kv, const struct attn_query **query,
                                      size_t *common, size_t left, size_t most)
{
    const struct attn_query *first = query[0];
    size_t n = 1;
    for (size_t i = 1; i < left && n < most; i++) {
        const struct attn_query *added = query[i];
        if (!common_rows(kv, first, added))
            continue;
        query[i] = query[n];
        insert(query, n++, kv, added);
    }
    for (size_t i = 0; i + 1 < n; i++)
        common[i] = common_rows(kv, query[i], query[i + 1]);
    return (struct prefix_group){query, common, n};
}

void prefix_groups_make(struct prefix_groups *groups, const struct attn_step *step, size_t most)
{
    const size_t n = step->n_queries;
    for (size_t i = 0; i < n; i++)
        groups->order[i] = &step->query[i];
    groups->n = 0;
    for (size_t i = 0; i < n; i += groups->group[groups->n++].n)
        groups->group[groups->n] =
            make_group(step->kv, groups->order + i, groups->common + i, n - i, most);
}

size_t prefix_group_shared(const struct prefix_group *group, size_t from, size_t to)
{
    size_t least = SIZE_MAX;
    for (size_t i = from; i + 1 < to; i++)
        least = size_min(least, group->common[i]);
    return least;
}

size_t prefix_group_end(const struct kv *kv, const struct prefix_group *group)
{
    size_t end = 0;
    for (size_t i = 0; i < group->n; i++)
        end = size_max(end, kv_attended_end(kv, group->query[i]->seq));
    return end;
}
