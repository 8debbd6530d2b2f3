/* Combines a drafter that costs nothing, such as prompt lookup, with a draft model.
 *
 * The first drafter proposes for every sequence. Where it finds nothing, or where the second promises
 * more tokens per time, the second proposes instead. The promise follows from the acceptance rate
 * r of a drafter in this sequence: a draft of depth d is expected to give 1 + r + .. + r^d tokens,
 * in the time of a target pass and d passes of the draft model, whose chains have the best depth. */
#include "base/mem.h"
#include "decode/spec/drafter.h"

enum { FIRST, SECOND, DRAFTERS };

enum { EXPLORE = 16 }; /* every so often the drafter that promises less is used, to measure it again */

#define DECAY 0.9 /* of older drafts in a sequence's rate */
#define PRIOR 4.0 /* draft tokens that the run's rate counts for in a new sequence */

/* Draft tokens that were reached by verification, and those accepted. */
struct tally {
    double reached, accepted;
};

struct combined_slot {
    struct tally tally[DRAFTERS];
    size_t n_ids;            /* tokens before the last step: a sequence grows in every step */
    size_t choices;          /* steps so far */
    int used;                /* drafter of the current draft */
    struct tree_shape shape; /* requested of the second drafter */
};

struct combined {
    struct drafter drafter;
    struct drafter *part[DRAFTERS];
    struct tally run[DRAFTERS];
    struct combined_slot *slot;
    struct draft_request *left; /* [slots] requests for the second drafter */
    char name[32];
};

/* A new sequence begins with the rate of the run. */
static struct tally tally_of(const struct combined *c, const struct combined_slot *slot, int which)
{
    const struct tally *run = &c->run[which], *seen = &slot->tally[which];
    return seen->reached > 0 ? *seen
                             : (struct tally){PRIOR, PRIOR * (run->accepted + 1) / (run->reached + 2)};
}

static double acceptance_of(const struct combined *c, const struct combined_slot *slot, int which)
{
    const struct tally tally = tally_of(c, slot, which);
    return tally.accepted / tally.reached;
}

/* Expected tokens of a draft, its root's included, per time of a target pass. */
static double expected_gain(double rate, size_t depth, double cost)
{
    double tokens = 1, power = 1;
    for (size_t d = 0; d < depth; d++)
        tokens += power *= rate;
    return tokens / (1 + cost * (double)depth);
}

/* The depth, at most `max`, for which the second drafter promises most; 0: it does not pay. */
static size_t best_depth(double rate, size_t max, double cost)
{
    size_t best = 0;
    for (size_t d = 1; d <= max; d++)
        if (expected_gain(rate, d, cost) > expected_gain(rate, best, cost))
            best = d;
    return best;
}

/* Chooses between the first drafter's draft and one of the second, whose shape it sets; without
 * levels there, no draft is better than one. */
static int choose_drafter(const struct combined *c, struct combined_slot *slot,
                          const struct draft_request *request)
{
    const struct draft *draft = request->draft;
    const struct tree_shape *shape = request->shape;
    const bool explore = ++slot->choices % EXPLORE == 0;
    const double cost = c->part[SECOND]->cost, second = acceptance_of(c, slot, SECOND);
    const size_t found = draft->depth[draft->n - 1];
    size_t depth = shape->levels - 1;
    slot->shape = *shape;
    if (shape->n == shape->levels) {
        depth = best_depth(second, depth, cost);
        tree_chain(&slot->shape, explore ? size_max(depth, 1) : depth);
    }
    if (found == 0)
        return SECOND;
    const int better =
        expected_gain(acceptance_of(c, slot, FIRST), found, 0) >= expected_gain(second, depth, cost)
            ? FIRST
            : SECOND;
    return explore ? DRAFTERS - 1 - better : better;
}

/* After a call of the second drafter, whose prefilling counts as ours. */
static int count_prefill(struct combined *c, int rc)
{
    c->drafter.prefill_ms = c->part[SECOND]->prefill_ms;
    c->drafter.prefill_tokens = c->part[SECOND]->prefill_tokens;
    return rc;
}

static int propose_by_either(struct drafter *drafter, const struct draft_request *request,
                             size_t n_requests, struct err *err)
{
    struct combined *c = (struct combined *)drafter;
    struct drafter *second = c->part[SECOND];
    size_t n_left = 0;
    if (c->part[FIRST]->propose(c->part[FIRST], request, n_requests, err) < 0)
        return -1;
    for (size_t a = 0; a < n_requests; a++) {
        struct combined_slot *slot = &c->slot[request[a].slot];
        slot->used = choose_drafter(c, slot, &request[a]);
        if (slot->used == FIRST)
            continue;
        draft_begin(request[a].draft, request[a].draft->token[0]);
        if (slot->shape.levels == 1)
            continue;
        c->left[n_left] = request[a];
        c->left[n_left++].shape = &slot->shape;
    }
    return count_prefill(c, n_left ? second->propose(second, c->left, n_left, err) : 0);
}

static void observe_logits(struct drafter *drafter, const struct draft *draft, const float *logits)
{
    struct combined *c = (struct combined *)drafter;
    for (int i = 0; i < DRAFTERS; i++)
        if (c->part[i]->observe)
            c->part[i]->observe(c->part[i], draft, logits);
}

static void learn_tokens(struct drafter *drafter, size_t slot, const uint32_t *ids, size_t n_ids)
{
    struct combined *c = (struct combined *)drafter;
    struct combined_slot *s = &c->slot[slot];
    if (n_ids <= s->n_ids || n_ids - s->n_ids > TREE_NODES) /* a new sequence */
        memset(s->tally, 0, sizeof s->tally);
    s->n_ids = n_ids;
    for (int i = 0; i < DRAFTERS; i++)
        if (c->part[i]->learn)
            c->part[i]->learn(c->part[i], slot, ids, n_ids);
}

static int read_hidden(struct drafter *drafter, size_t slot, const uint32_t *ids, size_t first,
                       const size_t *row, size_t n, struct err *err)
{
    struct combined *c = (struct combined *)drafter;
    struct drafter *second = c->part[SECOND];
    return count_prefill(c, second->read_hidden(second, slot, ids, first, row, n, err));
}

static void count_accepted(struct drafter *drafter, size_t slot, const struct draft *draft,
                           size_t accepted)
{
    struct combined *c = (struct combined *)drafter;
    struct combined_slot *s = &c->slot[slot];
    const size_t depth = draft->depth[draft->n - 1];
    if (depth == 0)
        return;
    const double reached = (double)size_min(accepted + 1, depth);
    const struct tally seen = tally_of(c, s, s->used);
    struct tally *run = &c->run[s->used];
    s->tally[s->used] =
        (struct tally){DECAY * seen.reached + reached, DECAY * seen.accepted + (double)accepted};
    *run = (struct tally){run->reached + reached, run->accepted + (double)accepted};
    for (int i = 0; i < DRAFTERS; i++)
        if (c->part[i]->verified)
            c->part[i]->verified(c->part[i], slot, draft, accepted);
}

static void close_combined(struct drafter *drafter)
{
    AUTO(free_auto) struct combined *c = (struct combined *)drafter;
    for (int i = 0; i < DRAFTERS; i++)
        drafter_close(c->part[i]);
    free(c->slot);
    free(c->left);
}

int draft_combined_open(struct drafter **out, struct drafter *first, struct drafter *second,
                        size_t slots, struct err *err)
{
    struct combined *c = mem_zalloc(1, sizeof *c);
    if (!c) {
        drafter_close(first);
        drafter_close(second);
        return err_no_memory(err, "a drafter");
    }
    c->part[FIRST] = first;
    c->part[SECOND] = second;
    c->slot = mem_zalloc(slots, sizeof *c->slot);
    c->left = mem_alloc(slots, sizeof *c->left);
    if (!c->slot || !c->left) {
        close_combined(&c->drafter);
        return err_no_memory(err, "drafts of %zu sequences", slots);
    }
    snprintf(c->name, sizeof c->name, "%s+%s", first->name, second->name);
    c->drafter = (struct drafter){.name = c->name,
                                  .ranks = size_max(first->ranks, second->ranks),
                                  .cost = second->cost,
                                  .propose = propose_by_either,
                                  .observe = observe_logits,
                                  .learn = learn_tokens,
                                  .read_hidden = second->read_hidden ? read_hidden : NULL,
                                  .verified = count_accepted,
                                  .close = close_combined,
                                  .session = second->session};
    *out = &c->drafter;
    return 0;
}
