/* Token recycling (Luo et al., 2024): an adjacency table of the most likely successors that the
 * target predicted for each token fills a tree of fixed shape. */
#include "base/mem.h"
#include "decode/spec/drafter.h"

enum { SUCCESSORS = 8 };

struct recycle {
    struct drafter drafter;
    size_t vocab;
    uint32_t (*successor)[SUCCESSORS]; /* [vocab]: tokens predicted after each, best first */
    bool *known;                       /* [vocab]: has successors */
};

static int propose_successors(struct drafter *drafter, const struct draft_request *request,
                              size_t n_requests, struct err *err)
{
    const struct recycle *r = (const struct recycle *)drafter;
    (void)err;
    for (size_t a = 0; a < n_requests; a++) {
        struct draft *draft = request[a].draft;
        const struct tree_shape *shape = request[a].shape;
        for (size_t i = 0; i < draft->n; i++) {
            const size_t at = draft->shape_node[i];
            for (size_t c = 0; r->known[draft->token[i]] && c < shape->children[at]; c++)
                draft_add(draft, i, r->successor[draft->token[i]][c], shape->first[at] + c);
        }
    }
    return 0;
}

static void learn_successors(struct drafter *drafter, const struct draft *draft, const float *logits)
{
    struct recycle *r = (struct recycle *)drafter;
    struct candidate best[SUCCESSORS];
    for (size_t i = 0; i < draft->n; i++) {
        const uint32_t token = draft->token[i];
        if (!logits_finite(logits + i * r->vocab, r->vocab))
            continue;
        top_logits(logits + i * r->vocab, r->vocab, r->drafter.ranks, best);
        for (size_t c = 0; c < r->drafter.ranks; c++)
            r->successor[token][c] = best[c].id;
        r->known[token] = true;
    }
}

static void close_recycle(struct drafter *drafter)
{
    AUTO(free_auto) struct recycle *r = (struct recycle *)drafter;
    free(r->successor);
    free(r->known);
}

int draft_recycle_open(struct drafter **out, size_t vocab, struct err *err)
{
    struct recycle *r = mem_zalloc(1, sizeof *r);
    if (!r)
        return err_no_memory(err, "a drafter");
    r->drafter = (struct drafter){.name = "recycle",
                                  .ranks = size_min(SUCCESSORS, vocab),
                                  .propose = propose_successors,
                                  .observe = learn_successors,
                                  .close = close_recycle};
    r->vocab = vocab;
    r->successor = mem_alloc(vocab, sizeof *r->successor);
    r->known = mem_zalloc(vocab, sizeof *r->known);
    if (!r->successor || !r->known) {
        close_recycle(&r->drafter);
        return err_no_memory(err, "the successors of %zu tokens", vocab);
    }
    *out = &r->drafter;
    return 0;
}
