/* Beam search over the logits of a text. */
#include "decode/beam.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/threads.h"

enum { NO_NODE = 0 }; /* the list's first one, which stands for the prompt */

/* A path and what may follow it. */
struct beam_choice {
    size_t path;
    uint32_t id;
    double sum;
};

int beam_open(struct beam_search *s, const struct beam_options *options, struct err *err)
{
    const size_t W = options->width;
    *s = (struct beam_search){.options = *options};
    s->path = mem_zalloc(W, sizeof *s->path);
    s->next = mem_zalloc(W, sizeof *s->next);
    s->parent = mem_zalloc(W, sizeof *s->parent);
    s->id = mem_zalloc(W, sizeof *s->id);
    s->ended = mem_zalloc(W + 1, sizeof *s->ended);
    return s->path && s->next && s->parent && s->id && s->ended
               ? 0
               : err_set(err, "out of memory for %zu beams", W);
}

void beam_close(struct beam_search *s)
{
    for (size_t i = 0; s->ended && i <= s->options.width; i++) /* one more than the best W */
        ids_release(&s->ended[i].ids);
    free(s->path);
    free(s->next);
    free(s->parent);
    free(s->id);
    free(s->ended);
    free(s->node);
    free(s->choice);
    free(s->best);
    *s = (struct beam_search){0};
}

void beam_begin(struct beam_search *s, size_t most)
{
    s->most = most;
    s->length = s->n_nodes = s->n_ended = 0;
    s->n_paths = 1;
    s->path[0] = (struct beam_path){NO_NODE, 0};
}

/* ---- texts ---- */

static int add_node(struct beam_search *s, size_t before, uint32_t id, size_t *node, struct err *err)
{
    if (mem_grow(&s->node, &s->nodes_cap, s->n_nodes + 1, sizeof *s->node, err) < 0)
        return -1;
    *node = ++s->n_nodes;
    s->node[*node] = (struct beam_node){id, before};
    return 0;
}

/* The ids of a path, which is `n` long. */
static int spell(const struct beam_search *s, size_t node, size_t n, struct ids *ids, struct err *err)
{
    ids->len = 0;
    for (size_t i = 0; i < n; i++)
        if (ids_add(ids, 0, err) < 0)
            return -1;
    for (size_t i = n; i-- > 0; node = s->node[node].before)
        ids->id[i] = s->node[node].id;
    return 0;
}

static double score_of(const struct beam_search *s, double sum, size_t length)
{
    return sum / pow((double)length, s->options.length_penalty);
}

/* Takes its place among the best W; of equals the one that was there before stays before. */
static void insert(struct beam_search *s)
{
    const size_t last = s->options.width;
    struct beam new = s->ended[s->n_ended];
    size_t at = s->n_ended++;
    for (; at && s->ended[at - 1].score < new.score; at--)
        s->ended[at] = s->ended[at - 1];
    s->ended[at] = new;
    s->n_ended = size_min(s->n_ended, last);
}

/* A path of `n` tokens, and an end that counts as one if it ends by that. */
static int end_path(struct beam_search *s, size_t node, size_t n, bool by_end, double sum,
                    struct err *err)
{
    struct beam *beam = &s->ended[s->n_ended]; /* the last of them is no more, or there is room */
    if (spell(s, node, n, &beam->ids, err) < 0)
        return -1;
    beam->by_end = by_end;
    beam->score = score_of(s, sum, n + by_end);
    insert(s);
    return 0;
}

/* ---- steps ---- */

static int by_sum(const void *a, const void *b)
{
    const struct beam_choice *x = a, *y = b;
    if (x->sum != y->sum)
        return x->sum > y->sum ? -1 : 1;
    if (x->path != y->path)
        return x->path < y->path ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Scratch for `k` choices of each path. */
static int make_room(struct beam_search *s, size_t k, struct err *err)
{
    if (s->choices_cap >= k)
        return 0;
    free(s->choice);
    free(s->best);
    s->choice = mem_alloc(s->options.width, k * sizeof *s->choice);
    s->best = mem_alloc(s->options.width, k * sizeof *s->best);
    s->choices_cap = s->choice && s->best ? k : 0;
    return s->choices_cap ? 0 : err_set(err, "out of memory for %zu continuations of beams", k);
}

struct choosing {
    struct beam_search *search;
    const float *logits;
    size_t vocab, k;
};

/* The best k of a path. */
static void choose_of_path(void *arg, size_t p)
{
    const struct choosing *c = arg;
    const float *logits = c->logits + p * c->vocab;
    struct candidate *best = c->search->best + p * c->k;
    struct beam_choice *choice = c->search->choice + p * c->k;
    const double before = c->search->path[p].sum, norm = log_sum_exp(logits, c->vocab);
    top_logits(logits, c->vocab, c->k, best);
    for (size_t i = 0; i < c->k; i++)
        choice[i] = (struct beam_choice){p, best[i].id, before + (double)best[i].logit - norm};
}

/* The best k of each path, best first. Returns how many there are. */
static size_t find_choices(struct beam_search *s, const float *logits, size_t vocab, size_t k)
{
    enum { EXP_WORK = 16 };
    struct choosing choosing = {s, logits, vocab, k};
    threads_each(s->n_paths, s->n_paths * vocab * EXP_WORK, choose_of_path, &choosing);
    qsort(s->choice, s->n_paths * k, sizeof *s->choice, by_sum);
    return s->n_paths * k;
}

/* No text under way can become one of the best W. */
static bool is_settled(const struct beam_search *s)
{
    const struct beam_options *o = &s->options;
    if (s->n_ended < o->width || o->stopping == BEAM_STOP_YES)
        return s->n_ended == o->width;
    const bool longest = o->stopping == BEAM_STOP_NEVER && o->length_penalty > 0;
    const double best = score_of(s, s->path[0].sum, longest ? s->most : s->length);
    return best <= s->ended[o->width - 1].score;
}

static int go_on(struct beam_search *s, const struct beam_choice *choice, size_t to, struct err *err)
{
    s->parent[to] = choice->path;
    s->id[to] = choice->id;
    s->next[to].sum = choice->sum;
    return add_node(s, s->path[choice->path].node, choice->id, &s->next[to].node, err);
}

/* One of the best W ends, by an end or because it is long enough. */
static int end_choice(struct beam_search *s, const struct beam_choice *choice, bool by_end,
                      struct err *err)
{
    size_t node = s->path[choice->path].node;
    if (!by_end && add_node(s, node, choice->id, &node, err) < 0)
        return -1;
    return end_path(s, node, s->length - by_end, by_end, choice->sum, err);
}

int beam_step(struct beam_search *s, const float *logits, size_t vocab, beam_ends *ends,
              const void *arg, size_t n_ends, struct err *err)
{
    const size_t W = s->options.width;
    const size_t k = size_min((1 + size_max(n_ends, 1)) * W, vocab); /* W go on whatever ends */
    size_t n_next = 0;
    if (make_room(s, k, err) < 0)
        return -1;
    const size_t n = size_min(find_choices(s, logits, vocab, k), (1 + size_max(n_ends, 1)) * W);
    s->length++;
    for (size_t i = 0; i < n; i++) {
        const struct beam_choice *choice = &s->choice[i];
        const bool by_end = ends(arg, choice->id);
        if (!by_end && s->length < s->most) {
            if (n_next < W && go_on(s, choice, n_next++, err) < 0)
                return -1;
        } else if (i < W && end_choice(s, choice, by_end, err) < 0) {
            return -1;
        }
    }
    struct beam_path *was = s->path;
    s->path = s->next;
    s->next = was;
    s->n_paths = n_next;
    if (n_next && is_settled(s))
        s->n_paths = 0;
    return 0;
}

int beam_give_up(struct beam_search *s, struct err *err)
{
    for (size_t i = 0; i < s->n_paths && s->n_ended < s->options.width && s->length; i++)
        if (end_path(s, s->path[i].node, s->length, false, s->path[i].sum, err) < 0)
            return -1;
    s->n_paths = 0;
    return 0;
}
