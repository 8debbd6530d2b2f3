/* Prompt lookup decoding (Saxena, 2023): drafts the tokens that followed an earlier occurrence of
 * the sequence's last n-gram. */
#include "base/mem.h"
#include "decode/spec/drafter.h"

struct lookup {
    struct drafter drafter;
    size_t max_n, min_n;
    bool oldest;
};

/* Finds an earlier occurrence of the last n of id[0..len); returns the index after it; 0: none. */
static size_t find_ngram(const uint32_t *id, size_t len, size_t n, bool oldest)
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

static int propose_by_lookup(struct drafter *drafter, const struct draft_request *request,
                             size_t n_requests, struct err *err)
{
    const struct lookup *lookup = (const struct lookup *)drafter;
    (void)err;
    for (size_t a = 0; a < n_requests; a++) {
        struct draft *draft = request[a].draft;
        const size_t len = request[a].n_ids, wanted = request[a].shape->levels - 1;
        size_t from = 0;
        for (size_t n = lookup->max_n; n >= lookup->min_n && !from; n--)
            from = find_ngram(request[a].ids, len, n, lookup->oldest);
        /* past the end of the sequence, copies from the draft: a repetition continues */
        for (size_t i = 0; from && i < wanted; i++)
            draft_add(draft, i,
                      from + i < len ? request[a].ids[from + i] : draft->token[from + i - len + 1],
                      i + 1);
    }
    return 0;
}

static void close_lookup(struct drafter *drafter) { free(drafter); }

int draft_lookup_open(struct drafter **out, size_t max_n, size_t min_n, bool oldest, struct err *err)
{
    struct lookup *lookup = mem_zalloc(1, sizeof *lookup);
    if (!lookup)
        return err_no_memory(err, "a drafter");
    *lookup = (struct lookup){
        .drafter = {.name = "lookup", .ranks = 1, .propose = propose_by_lookup, .close = close_lookup},
        .max_n = max_n,
        .min_n = size_max(min_n, 1),
        .oldest = oldest};
    *out = &lookup->drafter;
    return 0;
}
