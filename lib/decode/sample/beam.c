/* Beam search: a tree of tokens, the unfinished paths in it, and the W best finished beams. */
#include "decode/sample/beam.h"

#include "base/mem.h"
#include "base/threads.h"

enum { NO_NODE = 0 }; /* index of the tree's root, which stands for the prompt */

/* A candidate for the next step: a path, the token to extend it by, and the sum with that token. */
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
    s->finished = mem_zalloc(W + 1, sizeof *s->finished);
    return s->path && s->next && s->parent && s->id && s->finished ? 0
                                                                   : err_no_memory(err, "%zu beams", W);
}

void beam_close(struct beam_search *s)
{
    for (size_t i = 0; s->finished && i <= s->options.width; i++) /* W + 1 are allocated */
        ids_release(&s->finished[i].ids);
    free(s->path);
    free(s->next);
    free(s->parent);
    free(s->id);
    free(s->finished);
    free(s->node);
    free(s->choice);
    free(s->best);
    free(s->list);
    *s = (struct beam_search){0};
}

void beam_begin(struct beam_search *s, size_t max_length)
{
    s->max_length = max_length;
    s->length = s->n_nodes = s->n_finished = 0;
    s->n_paths = 1;
    s->path[0] = (struct beam_path){NO_NODE, 0};
}

static int add_node(struct beam_search *s, size_t parent, uint32_t id, size_t *node, struct err *err)
{
    if (mem_grow(&s->node, &s->nodes_cap, s->n_nodes + 1, sizeof *s->node, err) < 0)
        return -1;
    *node = ++s->n_nodes;
    s->node[*node] = (struct beam_node){id, parent};
    return 0;
}

/* Sets *ids to the n token ids of the path that ends at `node`. */
static int path_ids(const struct beam_search *s, size_t node, size_t n, struct ids *ids,
                    struct err *err)
{
    ids->len = 0;
    for (size_t i = 0; i < n; i++)
        if (ids_add(ids, 0, err) < 0)
            return -1;
    for (size_t i = n; i-- > 0; node = s->node[node].parent)
        ids->id[i] = s->node[node].id;
    return 0;
}

int beam_path_ids(const struct beam_search *s, size_t path, struct ids *ids, struct err *err)
{
    return path_ids(s, s->path[path].node, s->length, ids, err);
}

static double score_of(const struct beam_search *s, double sum, size_t length)
{
    return sum / pow((double)length, s->options.length_penalty);
}

/* Moves the newest beam, finished[n_finished], to its place by score, after those with equal
 * scores; keeps the best W. */
static void insert_finished(struct beam_search *s)
{
    const size_t last = s->options.width;
    struct beam new = s->finished[s->n_finished];
    size_t at = s->n_finished++;
    for (; at && s->finished[at - 1].score < new.score; at--)
        s->finished[at] = s->finished[at - 1];
    s->finished[at] = new;
    s->n_finished = size_min(s->n_finished, last);
}

/* Adds a path of n tokens to the finished beams. With `by_eos` its end token, which is not in the
 * path, counts for the length penalty as well. */
static int finish_path(struct beam_search *s, size_t node, size_t n, bool by_eos, double sum,
                       struct err *err)
{
    struct beam *beam = &s->finished[s->n_finished]; /* in bounds: W + 1 are allocated */
    if (path_ids(s, node, n, &beam->ids, err) < 0)
        return -1;
    beam->by_eos = by_eos;
    beam->score = score_of(s, sum, n + by_eos);
    insert_finished(s);
    return 0;
}

static int by_sum(const void *a, const void *b)
{
    const struct beam_choice *x = a, *y = b;
    if (x->sum != y->sum)
        return x->sum > y->sum ? -1 : 1;
    if (x->path != y->path)
        return x->path < y->path ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Allocates scratch memory for k candidates (struct beam_choice) per path. */
static int reserve_choices(struct beam_search *s, size_t k, struct err *err)
{
    if (s->choices_cap >= k)
        return 0;
    free(s->choice);
    free(s->best);
    s->choice = mem_alloc(s->options.width, k * sizeof *s->choice);
    s->best = mem_alloc(s->options.width, k * sizeof *s->best);
    s->choices_cap = s->choice && s->best ? k : 0;
    return s->choices_cap ? 0 : err_no_memory(err, "%zu continuations of beams", k);
}

struct expand_job {
    struct beam_search *search;
    const float *logits;
    const struct token_mask *allowed;
    size_t vocab, k;
};

/* Lists the k most likely tokens to extend path p by. */
static void expand_path(void *arg, size_t p)
{
    const struct expand_job *c = arg;
    const float *logits = c->logits + p * c->vocab;
    struct candidate *best = c->search->best + p * c->k;
    struct beam_choice *choice = c->search->choice + p * c->k;
    const uint64_t *allowed = c->allowed ? c->allowed[p].bits : NULL;
    const double before = c->search->path[p].sum, norm = log_sum_exp_allowed(logits, c->vocab, allowed);
    best = allowed ? c->search->list + p * c->vocab : best;
    const size_t n = top_allowed(logits, c->vocab, c->k, allowed, best);
    for (size_t i = 0; i < c->k; i++)
        choice[i] = i < n ? (struct beam_choice){p, best[i].id, before + (double)best[i].logit - norm}
                          : (struct beam_choice){p, 0, -INFINITY};
}

/* Lists the k most likely extensions of each path, all sorted, best first. Returns their number. */
static size_t expand_paths(struct beam_search *s, const float *logits, size_t vocab,
                           const struct token_mask *allowed, size_t k)
{
    enum { EXP_WORK = 16 };
    struct expand_job job = {s, logits, allowed, vocab, k};
    parallel_for(s->n_paths, s->n_paths * vocab * EXP_WORK, expand_path, &job);
    qsort(s->choice, s->n_paths * k, sizeof *s->choice, by_sum);
    return s->n_paths * k;
}

/* True if W beams are finished and the stopping rule (enum beam_stopping) ends the search. */
static bool is_done(const struct beam_search *s)
{
    const struct beam_options *o = &s->options;
    if (s->n_finished < o->width || o->stopping == BEAM_STOP_YES)
        return s->n_finished == o->width;
    const bool longest = o->stopping == BEAM_STOP_NEVER && o->length_penalty > 0;
    const double best = score_of(s, s->path[0].sum, longest ? s->max_length : s->length);
    return best <= s->finished[o->width - 1].score;
}

static int extend_path(struct beam_search *s, const struct beam_choice *choice, size_t to,
                       struct err *err)
{
    s->parent[to] = choice->path;
    s->id[to] = choice->id;
    s->next[to].sum = choice->sum;
    return add_node(s, s->path[choice->path].node, choice->id, &s->next[to].node, err);
}

/* Turns a candidate into a finished beam: it is an end token, or reaches the maximum length. */
static int finish_choice(struct beam_search *s, const struct beam_choice *choice, bool by_eos,
                         struct err *err)
{
    size_t node = s->path[choice->path].node;
    if (!by_eos && add_node(s, node, choice->id, &node, err) < 0)
        return -1;
    return finish_path(s, node, s->length - by_eos, by_eos, choice->sum, err);
}

int beam_step(struct beam_search *s, const float *logits, size_t vocab,
              const struct token_mask *allowed, beam_is_eos *ends, const void *arg, size_t n_ends,
              struct err *err)
{
    const size_t W = s->options.width;
    /* candidates per path: enough for W unfinished paths even if all end tokens are among them */
    const size_t k = size_min((1 + size_max(n_ends, 1)) * W, vocab);
    size_t n_next = 0;
    if (reserve_choices(s, k, err) < 0)
        return -1;
    if (allowed && !s->list && !(s->list = mem_alloc(W, vocab * sizeof *s->list)))
        return err_no_memory(err, "the tokens of %zu beams", W);
    const size_t n =
        size_min(expand_paths(s, logits, vocab, allowed, k), (1 + size_max(n_ends, 1)) * W);
    s->length++;
    for (size_t i = 0; i < n; i++) {
        const struct beam_choice *choice = &s->choice[i];
        if (choice->sum == -INFINITY) /* not allowed; the next ones neither */
            break;
        const bool by_eos = ends(arg, choice->id);
        if (!by_eos && s->length < s->max_length) {
            if (n_next < W && extend_path(s, choice, n_next++, err) < 0)
                return -1;
        } else if (i < W && finish_choice(s, choice, by_eos, err) < 0) {
            return -1;
        }
    }
    struct beam_path *was = s->path;
    s->path = s->next;
    s->next = was;
    s->n_paths = n_next;
    if (n_next && is_done(s))
        s->n_paths = 0;
    return 0;
}

int beam_finalize(struct beam_search *s, struct err *err)
{
    for (size_t i = 0; i < s->n_paths && s->n_finished < s->options.width && s->length; i++)
        if (finish_path(s, s->path[i].node, s->length, false, s->path[i].sum, err) < 0)
            return -1;
    s->n_paths = 0;
    return 0;
}
