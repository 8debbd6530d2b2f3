/* Drafting by look-up: what followed the same words before (prompt look-up decoding, Saxena 2023). */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "decode/drafter.h"

struct lookup {
    struct drafter drafter;
    size_t max_n, min_n;
    bool oldest;
};

/* Where the tokens that follow an occurrence of the last n ids begin; 0: there is none. */
static size_t find(const uint32_t *id, size_t len, size_t n, bool oldest)
{
    const uint32_t *key = id + len - n;
    if (len <= n)
        return 0;
    for (size_t i = 0; i < len - n; i++) {
        const size_t at = oldest ? i : len - n - 1 - i;
        if (id[at] == *key && memcmp(id + at, key, n * sizeof *id) == 0)
            return at + n;
    }
    return 0;
}

static int propose(struct drafter *drafter, const struct draft_ask *ask, size_t n_asks, struct err *err)
{
    const struct lookup *lookup = (const struct lookup *)drafter;
    (void)err;
    for (size_t a = 0; a < n_asks; a++) {
        struct draft *draft = ask[a].draft;
        const size_t len = ask[a].n_ids, wanted = ask[a].shape->levels - 1;
        size_t from = 0;
        for (size_t n = lookup->max_n; n >= lookup->min_n && !from; n--)
            from = find(ask[a].ids, len, n, lookup->oldest);
        /* Beyond the end the text goes on with what was copied already: a loop goes round. */
        for (size_t i = 0; from && i < wanted; i++)
            draft_add(draft, i,
                      from + i < len ? ask[a].ids[from + i] : draft->token[from + i - len + 1], i + 1);
    }
    return 0;
}

static void close_lookup(struct drafter *drafter) { free(drafter); }

int draft_lookup_open(struct drafter **out, size_t max_n, size_t min_n, bool oldest, struct err *err)
{
    struct lookup *lookup = mem_zalloc(1, sizeof *lookup);
    if (!lookup)
        return err_set(err, "out of memory");
    *lookup = (struct lookup){
        .drafter = {.name = "lookup", .ranks = 1, .propose = propose, .close = close_lookup},
        .max_n = max_n,
        .min_n = size_max(min_n, 1),
        .oldest = oldest};
    *out = &lookup->drafter;
    return 0;
}
