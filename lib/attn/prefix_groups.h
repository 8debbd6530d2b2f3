/* Prefix groups: queries whose sequences share a prefix. Attention reads the prefix's KV entries
 * once per group. */
#ifndef BMC_PREFIX_GROUPS_H
#define BMC_PREFIX_GROUPS_H

#include "attn/attn.h"

/* One query with any number of rows; or n queries of one row each, sorted by position, whose
 * sequences share a prefix. Neighbours may share more than that: similar beams are adjacent. */
struct prefix_group {
    const struct attn_query **query;
    /* [n - 1]: KV entries that queries i and i + 1 share, a multiple of attend_block() above 0 */
    const size_t *common;
    size_t n;
};

/* The prefix groups of a forward pass: each of its queries is in exactly one. */
struct prefix_groups {
    const struct attn_query **order; /* the pass's queries, sorted by group */
    size_t *common;
    struct prefix_group *group;
    size_t n;
};

/* Allocates groups for up to `queries` queries. False: out of memory; call prefix_groups_close()
 * then, too. */
bool prefix_groups_open(struct prefix_groups *groups, size_t queries) MUST_USE;
void prefix_groups_close(struct prefix_groups *groups);

/* Sorts the queries of a forward pass into groups of at most `most` queries. */
void prefix_groups_make(struct prefix_groups *groups, const struct attn_step *step, size_t most);

/* Number of leading KV entries that queries [from, to) of a group all share. */
size_t prefix_group_shared(const struct prefix_group *group, size_t from, size_t to);

/* Position behind the last one that attention reads in the group's longest sequence, padding
 * included. */
size_t prefix_group_end(const struct kv *kv, const struct prefix_group *group);

#endif
