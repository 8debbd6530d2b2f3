/* Prefix groups: queries whose sequences share a prefix, whose KV entries are read only once. */
#ifndef BMC_PREFIX_GROUPS_H
#define BMC_PREFIX_GROUPS_H

#include "attn/attn.h"

/* One query with any number of rows; or n queries of one row each, sorted by position, whose
 * sequences share a prefix. Neighbours may share more: similar beams are adjacent. */
struct prefix_group {
    const struct attn_query **query;
    /* [n - 1]: entries that queries i and i + 1 share, a multiple of ATTEND_BLOCK above 0 */
    const size_t *common;
    size_t n;
};

/* The prefix groups of a step: each query is in exactly one. */
struct prefix_groups {
    const struct attn_query **order; /* the step's queries, sorted by group */
    size_t *common;
    struct prefix_group *group;
    size_t n;
};

/* For up to `queries` queries. False: out of memory; call prefix_groups_close() then, too. */
bool prefix_groups_open(struct prefix_groups *groups, size_t queries) MUST_USE;
void prefix_groups_close(struct prefix_groups *groups);

/* Sorts the queries of a step into groups of at most `most` queries. */
void prefix_groups_make(struct prefix_groups *groups, const struct attn_step *step, size_t most);

/* Number of KV entries that queries [from, to) of a group all share. */
size_t prefix_group_shared(const struct prefix_group *group, size_t from, size_t to);

/* Where the attended positions of a group's longest sequence end. */
size_t prefix_group_end(const struct kv *kv, const struct prefix_group *group);

#endif
