/* Suffix decoding (Oliaro et al., 2024): drafts what followed the last tokens of the sequence where
 * they occurred before, in the same sequence, in others of the run, or in a corpus.
 *
 * The probability of a draft token is the share of the occurrences that continue with it, times that of
 * its parent; the score of a draft is the sum, an estimate of its accepted tokens. Of drafts for
 * every length of the match and every source, that of the best score is proposed. A draft has at
 * most FACTOR times as many tokens as the match, as long matches predict more. */
#include "base/mem.h"
#include "decode/spec/drafter.h"
#include "decode/spec/suffix_index.h"

enum { FACTOR = 4 };

#define LEAST_PROBABILITY 0.1 /* of a draft token */

enum { TRIED = 32 };

/* The tokens of a draft that the text has not reached yet, whether they are verified or not. */
struct tried_draft {
    uint32_t sequence; /* id */
    size_t at;         /* index of the first token in the sequence */
    size_t n, reached;
    uint32_t token[TRIED];
    uint8_t class[TRIED];
};

enum { MATCH_LENGTHS = 7, MATCH_SHARES = 4 };

/* How often a token is right that followed an earlier occurrence of the last tokens, by the length of the match and by
 * how many occurrences agree: learnt from all drafts of a run, verified or not, since the text shows what would have
 * been accepted. */
struct match_rates {
    double reached[MATCH_LENGTHS][MATCH_SHARES], right[MATCH_LENGTHS][MATCH_SHARES];
};

struct suffix {
    struct drafter drafter;
    struct suffix_index *pool;        /* the sequences of the run */
    struct suffix_index *corpus;      /* NULL: there is none */
    struct suffix_sequence *sequence; /* [slots] */
    struct tried_draft *tried;        /* [slots] */
    struct match_rates rates;
};

#define MATCH_DECAY  0.995 /* of earlier tokens of a class, per token */
#define MATCH_WEIGHT 4.0   /* tokens of a class for which the rate to begin with counts */

/* Rates to begin with, by match_class(): lower than those of chats, translations and summaries of small models. */
static const double first_rates[MATCH_LENGTHS][MATCH_SHARES] = {
    {0.20, 0.30, 0.40, 0.60}, {0.25, 0.35, 0.50, 0.70}, {0.30, 0.40, 0.60, 0.75},
    {0.35, 0.45, 0.70, 0.85}, {0.40, 0.50, 0.80, 0.90}, {0.50, 0.60, 0.88, 0.95},
    {0.60, 0.70, 0.92, 0.97},
};

/* The class of a draft token: the tokens before it that match, those drafted included, and the occurrences of which
 * `agree` of `all` go on with it. */
static uint8_t match_class(size_t length, size_t agree, size_t all)
{
    static const size_t longest[MATCH_LENGTHS - 1] = {2, 3, 5, 8, 15, 31};
    size_t row = 0;
    while (row < MATCH_LENGTHS - 1 && length > longest[row])
        row++;
    const size_t share = agree < all ? 2 * agree >= all : all < 3 ? 2 : 3;
    return (uint8_t)(row * MATCH_SHARES + share);
}

/* The probability that a token of the class is right; before anything was learnt a low one. */
static double match_rate(const struct match_rates *rates, uint8_t class)
{
    const size_t row = class / MATCH_SHARES, share = class % MATCH_SHARES;
    return (rates->right[row][share] + MATCH_WEIGHT * first_rates[row][share]) /
           (rates->reached[row][share] + MATCH_WEIGHT);
}

/* After the text has reached a draft token, all of those before it being right. */
static void match_rates_add(struct match_rates *rates, uint8_t class, bool right)
{
    double *n = &rates->reached[class / MATCH_SHARES][class % MATCH_SHARES],
           *n_right = &rates->right[class / MATCH_SHARES][class % MATCH_SHARES];
    *n = MATCH_DECAY * *n + 1;
    *n_right = MATCH_DECAY * *n_right + right;
}

/* Occurrences that drafts are made from, longest match first. */
struct source {
    const struct suffix_index *index;
    uint32_t tail; /* position of the sequence's last token in the index; 0: none */
    struct suffix_occurrence found[SUFFIX_OCCURRENCES];
    size_t n;
};

/* An occurrence that is followed token by token; `order` is its index in the source. */
struct cursor {
    uint32_t at, token, order;
};

/* A node of the requested shape: its occurrences are cursor[from .. to) of the plan. */
struct plan_node {
    uint32_t token;
    uint16_t from, to;
    double probability; /* 0: not a candidate for the draft */
    bool drafted;
};

/* A draft being made; nodes are those of the requested shape. */
struct plan {
    const struct source *source;
    const struct tree_shape *shape;
    size_t length; /* tokens that match, at least */
    struct plan_node node[TREE_NODES];
    struct cursor cursor[SUFFIX_OCCURRENCES];
    double score;
};

/* Sorts by token; equal ones stay in order. */
static void sort_by_token(struct cursor *cursor, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const struct cursor moved = cursor[i];
        size_t at = i;
        for (; at > 0 && cursor[at - 1].token > moved.token; at--)
            cursor[at] = cursor[at - 1];
        cursor[at] = moved;
    }
}

/* True if a continuation is more frequent than another, or as frequent and of an earlier occurrence
 * in the source's order. */
static bool is_more_frequent(const struct plan *plan, const struct plan_node *a,
                             const struct plan_node *b)
{
    const int na = a->to - a->from, nb = b->to - b->from;
    return na != nb ? na > nb : plan->cursor[a->from].order < plan->cursor[b->from].order;
}

/* Inserts a continuation into child[0 .. n), which are in order, unless `max` precede it. */
static void insert_child(const struct plan *plan, struct plan_node *child, size_t n, size_t max,
                         const struct plan_node *more)
{
    for (; n > 0 && is_more_frequent(plan, more, &child[n - 1]); n--)
        if (n < max)
            child[n] = child[n - 1];
    if (n < max)
        child[n] = *more;
}

/* Advances a cursor. Behind the last token of the sequence itself it continues with what followed the
 * occurrence: a repetition goes on. */
static bool next_token(const struct source *source, struct cursor *cursor)
{
    if (cursor->at == source->tail)
        cursor->at = source->found[cursor->order].at;
    return suffix_index_next(source->index, &cursor->at, &cursor->token);
}

/* Advances the node's occurrences by a token, without those that end; sorts them by that token. */
static void advance_occurrences(struct plan *plan, struct plan_node *node)
{
    size_t n = node->from;
    for (size_t i = node->from; i < node->to; i++) {
        struct cursor cursor = plan->cursor[i];
        if (next_token(plan->source, &cursor))
            plan->cursor[n++] = cursor;
    }
    node->to = (uint16_t)n;
    sort_by_token(plan->cursor + node->from, n - node->from);
}

/* Makes the node's children candidates: the most frequent tokens after its occurrences. */
static void expand_node(struct plan *plan, size_t node)
{
    struct plan_node *parent = &plan->node[node];
    const size_t max = plan->shape->children[node];
    size_t n = 0;
    if (max == 0)
        return;
    struct plan_node *child = &plan->node[plan->shape->first[node]];
    advance_occurrences(plan, parent);
    for (size_t from = parent->from, to; from < parent->to; from = to) {
        const uint32_t token = plan->cursor[from].token;
        for (to = from + 1; to < parent->to && plan->cursor[to].token == token;)
            to++;
        insert_child(plan, child, n, max,
                     &(struct plan_node){.token = token, .from = (uint16_t)from, .to = (uint16_t)to});
        n = size_min(n + 1, max);
    }
    for (size_t c = 0; c < n; c++)
        child[c].probability =
            parent->probability * (child[c].to - child[c].from) / (parent->to - parent->from);
}

/* The most probable candidate that is not in the draft; 0: none is probable enough. */
static size_t best_candidate(const struct plan *plan)
{
    double best = LEAST_PROBABILITY;
    size_t node = 0;
    for (size_t i = 1; i < plan->shape->n; i++)
        if (!plan->node[i].drafted && plan->node[i].probability > best) {
            best = plan->node[i].probability;
            node = i;
        }
    return node;
}

/* Drafts up to `max` tokens from the source's occurrences of at least `length` tokens. */
static void make_plan(struct plan *plan, const struct source *source, const struct tree_shape *shape,
                      size_t length, size_t max)
{
    size_t n = 0;
    plan->source = source;
    plan->shape = shape;
    plan->length = length;
    plan->score = 0;
    memset(plan->node, 0, shape->n * sizeof *plan->node);
    for (; n < source->n && source->found[n].length >= length; n++)
        plan->cursor[n] = (struct cursor){.at = source->found[n].at, .order = (uint32_t)n};
    plan->node[0] = (struct plan_node){.to = (uint16_t)n, .probability = 1, .drafted = true};
    for (size_t node = 0; max > 0; max--) {
        expand_node(plan, node);
        node = best_candidate(plan);
        if (node == 0)
            return;
        plan->node[node].drafted = true;
        plan->score += plan->node[node].probability;
    }
}

/* Replaces *best by the source's best draft if that has a higher score. Shorter matches, whose drafts
 * are shorter, are tried as long as they could improve it. */
static void try_source(struct plan *best, const struct source *source, const struct tree_shape *shape)
{
    struct plan plan;
    for (size_t i = 0; i < source->n; i++) {
        const size_t length = source->found[i].length, max = size_min(FACTOR * length, shape->n - 1);
        if (i > 0 && source->found[i - 1].length == length)
            continue;
        if (best->score >= (double)max)
            return;
        make_plan(&plan, source, shape, length, max);
        if (plan.score > best->score)
            *best = plan;
    }
}

static int by_length(const void *a, const void *b)
{
    const struct suffix_occurrence *x = a, *y = b;
    if (x->length != y->length)
        return x->length > y->length ? -1 : 1;
    return x->at > y->at ? -1 : x->at < y->at;
}

static void find_occurrences(struct source *source, const struct suffix_index *index, uint32_t tail,
                             const struct draft_request *request)
{
    source->index = index;
    source->tail = tail;
    source->n = index ? suffix_index_find(index, request->ids, request->n_ids, source->found) : 0;
    qsort(source->found, source->n, sizeof *source->found, by_length);
}

/* Removes the occurrences in other sequences. */
static void keep_sequence(struct source *source, uint32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < source->n; i++)
        if (source->found[i].sequence == id)
            source->found[n++] = source->found[i];
    source->n = n;
}

static void fill_draft(struct draft *draft, const struct plan *plan)
{
    for (size_t i = 0; i < draft->n; i++) {
        const size_t at = draft->shape_node[i];
        for (size_t c = 0; c < plan->shape->children[at]; c++) {
            const size_t child = (size_t)plan->shape->first[at] + c;
            if (plan->node[child].drafted)
                draft_add(draft, i, plan->node[child].token, child);
        }
    }
}

/* Sets the probabilities of a draft's tokens, and keeps those of a chain to learn from, unless there is one already that
 * the text has not reached. */
static void rate_draft(struct suffix *s, const struct draft_request *request, const struct plan *plan)
{
    struct tried_draft *tried = &s->tried[request->slot];
    const struct draft *draft = request->draft;
    const bool keep = tried->n == 0;
    for (size_t i = 1; i < draft->n; i++) {
        const struct plan_node *node = &plan->node[draft->shape_node[i]],
                               *parent = &plan->node[draft->shape_node[draft->parent[i]]];
        const size_t all = parent->to - parent->from,
                     agree = (size_t)lround(node->probability / parent->probability * (double)all);
        const uint8_t class = match_class(plan->length + draft->depth[i] - 1, agree, all);
        request->probability[i] = (float)match_rate(&s->rates, class);
        if (!keep || i > TRIED)
            continue;
        tried->token[i - 1] = draft->token[i];
        tried->class[i - 1] = class;
        tried->n = i;
    }
    if (!keep)
        return;
    tried->sequence = s->sequence[request->slot].id;
    tried->at = request->n_ids;
    tried->reached = 0;
}

/* Learns from the draft that was kept as far as the text has reached it. */
static void learn_rates(struct suffix *s, size_t slot, const uint32_t *ids, size_t n_ids)
{
    struct tried_draft *tried = &s->tried[slot];
    if (tried->sequence != s->sequence[slot].id)
        tried->n = 0;
    for (; tried->n && tried->at + tried->reached < n_ids; tried->reached++) {
        const bool right = ids[tried->at + tried->reached] == tried->token[tried->reached];
        match_rates_add(&s->rates, tried->class[tried->reached], right);
        if (!right || tried->reached + 1 == tried->n)
            tried->n = 0;
    }
}

static void learn_tokens(struct drafter *drafter, size_t slot, const uint32_t *ids, size_t n_ids)
{
    struct suffix *s = (struct suffix *)drafter;
    suffix_index_follow(s->pool, &s->sequence[slot], ids, n_ids);
    learn_rates(s, slot, ids, n_ids);
}

static int propose_by_suffix(struct drafter *drafter, const struct draft_request *request,
                             size_t n_requests, struct err *err)
{
    struct suffix *s = (struct suffix *)drafter;
    (void)err;
    for (size_t a = 0; a < n_requests; a++) {
        struct plan best;
        struct source pool, same, corpus;
        const struct suffix_sequence *sequence = &s->sequence[request[a].slot];
        learn_tokens(drafter, request[a].slot, request[a].ids, request[a].n_ids);
        find_occurrences(&pool, s->pool, sequence->last, &request[a]);
        find_occurrences(&corpus, s->corpus, 0, &request[a]);
        same = pool;
        keep_sequence(&same, sequence->id);
        best.score = 0;
        try_source(&best, &same, request[a].shape);
        try_source(&best, &pool, request[a].shape);
        try_source(&best, &corpus, request[a].shape);
        if (best.score > 0)
            fill_draft(request[a].draft, &best);
        if (best.score > 0 && request[a].probability)
            rate_draft(s, &request[a], &best);
    }
    return 0;
}

static void close_suffix(struct drafter *drafter)
{
    AUTO(free_auto) struct suffix *s = (struct suffix *)drafter;
    suffix_index_close(s->pool);
    suffix_index_close(s->corpus);
    free(s->sequence);
    free(s->tried);
}

static int open_corpus(struct suffix *s, const struct ids *corpus, struct err *err)
{
    struct suffix_sequence sequence = {0};
    if (!corpus || corpus->len == 0)
        return 0;
    if (suffix_index_open(&s->corpus, corpus->len, err) < 0)
        return -1;
    suffix_index_follow(s->corpus, &sequence, corpus->id, corpus->len);
    return 0;
}

int draft_suffix_open(struct drafter **out, size_t slots, size_t pool, const struct ids *corpus,
                      struct err *err)
{
    struct suffix *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return err_no_memory(err, "a drafter");
    s->drafter = (struct drafter){.name = "suffix",
                                  .ranks = SUFFIX_OCCURRENCES,
                                  .propose = propose_by_suffix,
                                  .learn = learn_tokens,
                                  .close = close_suffix};
    s->sequence = mem_zalloc(slots, sizeof *s->sequence);
    s->tried = mem_zalloc(slots, sizeof *s->tried);
    const bool ok = s->sequence && s->tried;
    if (!ok)
        err_no_memory(err, "suffix decoding of %zu sequences", slots);
    if (!ok || suffix_index_open(&s->pool, pool, err) < 0 || open_corpus(s, corpus, err) < 0) {
        close_suffix(&s->drafter);
        return -1;
    }
    *out = &s->drafter;
    return 0;
}
