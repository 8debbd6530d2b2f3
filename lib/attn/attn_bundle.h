/* Queries whose sequences share their first rows, so that those can be read once for all of them. */
#ifndef BMC_ATTN_BUNDLE_H
#define BMC_ATTN_BUNDLE_H

#include "attn/attn.h"

/* The queries of a sequence; or n queries of one row each, in order of position, whose sequences all share their first rows.
 * Neighbours may share more: beams stand beside those that they have the most in common with. */
struct bundle {
    const struct attn_query **query;
    /* [n - 1]: rows that query i and i + 1 share, a multiple of ATTEND_BLOCK above 0. */
    const size_t *common;
    size_t n;
};

/* All queries of a step. */
struct bundles {
    const struct attn_query **order; /* those of a bundle side by side */
    size_t *common;
    struct bundle *bundle;
    size_t n;
};

/* For steps of up to `queries` queries; false when memory is short, to be closed nevertheless. */
bool bundles_open(struct bundles *bundles, size_t queries) MUST_USE;
void bundles_close(struct bundles *bundles);

/* Those of a step, of at most `most` queries each. */
void bundles_make(struct bundles *bundles, const struct attn_step *step, size_t most);

/* Rows that queries [from, to) of a bundle share: prefixes, so the fewest of any neighbours. */
size_t bundle_shared(const struct bundle *bundle, size_t from, size_t to);

/* The position behind the rows of the longest sequence of a bundle, in the step under way. */
size_t bundle_end(const struct kv *kv, const struct bundle *bundle);

#endif
