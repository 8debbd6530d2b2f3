/* Checks of a compiled grammar: which rules may be empty, which states lead to a complete text, and
 * whether rules call themselves before they read. */
#include "text/constrain/nfa_check.h"

#include <stdlib.h>
#include <string.h>

/* Which states have a property that spreads backwards from the final state. */
struct spread {
    const struct nfa *nfa;
    bool over_bytes; /* also from a state to those that read a byte before it */
    bool *has;       /* [states] */
    size_t *from_at; /* [states + 1]: the states before each are from[from_at[s] .. from_at[s + 1]) */
    uint32_t *from, *todo;
};

/* The states that a state leads to, and the start of a rule that it calls. */
static size_t successors(const struct nfa *nfa, uint32_t s, uint32_t out[2])
{
    const struct nfa_state *state = &nfa->state[s];
    out[0] = state->a;
    out[1] = state->kind == NFA_CALL ? nfa_rule_start(state->b) : state->b;
    switch ((enum nfa_kind)state->kind) {
    case NFA_FINAL:
    case NFA_DEAD: return 0;
    case NFA_JUMP:
    case NFA_BYTE: return 1;
    case NFA_SPLIT:
    case NFA_CALL: return 2;
    }
    return 0;
}

static bool holds(const struct spread *p, uint32_t s)
{
    const struct nfa_state *state = &p->nfa->state[s];
    switch ((enum nfa_kind)state->kind) {
    case NFA_FINAL: return true;
    case NFA_DEAD: return false;
    case NFA_JUMP: return p->has[state->a];
    case NFA_BYTE: return p->over_bytes && p->has[state->a];
    case NFA_SPLIT: return p->has[state->a] || p->has[state->b];
    case NFA_CALL: return p->has[state->a] && p->has[nfa_rule_start(state->b)];
    }
    return false;
}

static void run_spread(struct spread *p)
{
    size_t n = 0;
    memset(p->has, 0, p->nfa->n);
    p->has[0] = true;
    p->todo[n++] = 0;
    while (n > 0) {
        const uint32_t s = p->todo[--n];
        for (size_t i = p->from_at[s]; i < p->from_at[s + 1]; i++) {
            const uint32_t before = p->from[i];
            if (p->has[before] || !holds(p, before))
                continue;
            p->has[before] = true;
            p->todo[n++] = before;
        }
    }
}

static int open_spread(struct spread *p, const struct nfa *nfa, struct err *err)
{
    uint32_t to[2];
    *p = (struct spread){.nfa = nfa};
    p->has = mem_alloc(nfa->n, sizeof *p->has);
    p->from_at = mem_zalloc(nfa->n + 2, sizeof *p->from_at);
    p->from = mem_alloc(2 * nfa->n, sizeof *p->from);
    p->todo = mem_alloc(nfa->n + 1, sizeof *p->todo);
    if (!p->has || !p->from_at || !p->from || !p->todo)
        return err_no_memory(err, "a grammar of %zu states", nfa->n);
    for (uint32_t s = 0; s < nfa->n; s++)
        for (size_t i = successors(nfa, s, to); i-- > 0;)
            p->from_at[to[i] + 2]++;
    for (size_t s = 2; s < nfa->n + 2; s++)
        p->from_at[s] += p->from_at[s - 1];
    for (uint32_t s = 0; s < nfa->n; s++)
        for (size_t i = successors(nfa, s, to); i-- > 0;)
            p->from[p->from_at[to[i] + 1]++] = s;
    return 0;
}

static void close_spread(struct spread *p)
{
    free(p->has);
    free(p->from_at);
    free(p->from);
    free(p->todo);
}

static int trim(struct nfa *nfa, const struct grammar *grammar, struct err *err)
{
    struct spread p;
    int rc = open_spread(&p, nfa, err);
    if (rc == 0) {
        run_spread(&p);
        for (size_t s = 0; s < nfa->n; s++)
            if (nfa->state[s].kind == NFA_CALL)
                nfa->state[s].lo = p.has[nfa_rule_start(nfa->state[s].b)];
        p.over_bytes = true;
        run_spread(&p);
        if (!p.has[nfa_rule_start(nfa->root)])
            rc = err_set(err, "the grammar matches no text: rule %s cannot be completed",
                         grammar_rule_name(grammar, nfa->root));
        for (size_t s = 0; s < nfa->n; s++)
            if (!p.has[s])
                nfa->state[s] = (struct nfa_state){.kind = NFA_DEAD};
    }
    close_spread(&p);
    return rc;
}

/* Tarjan's strongly connected components of the states, over moves that read nothing: jumps, splits,
 * calls, and moves past rules that may be empty. Components are numbered in reverse topological
 * order. */
struct components {
    const struct nfa *nfa;
    uint32_t *index, *low, *comp; /* [states]; index 0: not visited; comp UINT32_MAX: not complete */
    uint32_t *open;               /* states without a component yet */
    struct visit {
        uint32_t state, next; /* next: index of the successor to visit */
    } * visit;
    size_t n_open, n_visits;
    uint32_t n_index, n_comps;
};

/* The i-th state reached without reading, or UINT32_MAX. */
static uint32_t silent_move(const struct nfa *nfa, uint32_t s, uint32_t i)
{
    const struct nfa_state *state = &nfa->state[s];
    switch ((enum nfa_kind)state->kind) {
    case NFA_JUMP: return i == 0 ? state->a : UINT32_MAX;
    case NFA_SPLIT: return i == 0 ? state->a : i == 1 ? state->b : UINT32_MAX;
    case NFA_CALL:
        return i == 0 ? nfa_rule_start(state->b) : i == 1 && state->lo ? state->a : UINT32_MAX;
    case NFA_FINAL:
    case NFA_DEAD:
    case NFA_BYTE: break;
    }
    return UINT32_MAX;
}

static void enter(struct components *c, uint32_t s)
{
    c->index[s] = c->low[s] = ++c->n_index;
    c->open[c->n_open++] = s;
    c->visit[c->n_visits++] = (struct visit){s, 0};
}

static void leave(struct components *c)
{
    const uint32_t s = c->visit[--c->n_visits].state;
    if (c->n_visits) {
        const uint32_t before = c->visit[c->n_visits - 1].state;
        c->low[before] = c->low[s] < c->low[before] ? c->low[s] : c->low[before];
    }
    if (c->low[s] != c->index[s])
        return;
    uint32_t member;
    do {
        member = c->open[--c->n_open];
        c->comp[member] = c->n_comps;
    } while (member != s);
    c->n_comps++;
}

static void find_components(struct components *c, uint32_t root)
{
    if (c->index[root])
        return;
    enter(c, root);
    while (c->n_visits) {
        struct visit *v = &c->visit[c->n_visits - 1];
        const uint32_t s = v->state, to = silent_move(c->nfa, s, v->next++);
        if (to == UINT32_MAX)
            leave(c);
        else if (!c->index[to])
            enter(c, to);
        else if (c->comp[to] == UINT32_MAX && c->index[to] < c->low[s])
            c->low[s] = c->index[to];
    }
}

static int rank_rules(struct nfa *nfa, const struct grammar *grammar, struct components *c,
                      struct err *err)
{
    memset(c->comp, 0xff, nfa->n * sizeof *c->comp);
    for (uint32_t s = 0; s < nfa->n; s++)
        find_components(c, s);
    for (size_t s = 0; s < nfa->n; s++)
        if (nfa->state[s].kind == NFA_CALL && c->comp[s] == c->comp[nfa_rule_start(nfa->state[s].b)])
            return err_set(
                err,
                "rule %s calls itself before it reads any text (left recursion): write it with "
                "the recursion at the end, or as a repetition",
                grammar_rule_name(grammar, nfa->state[s].b));
    for (uint32_t r = 0; r < nfa->n_rules; r++)
        nfa->rank[r] = c->comp[nfa_rule_start(r)];
    return 0;
}

static int rank(struct nfa *nfa, const struct grammar *grammar, struct err *err)
{
    struct components c = {.nfa = nfa};
    int rc = 0;
    nfa->rank = mem_zalloc(nfa->n_rules, sizeof *nfa->rank);
    c.index = mem_zalloc(nfa->n, sizeof *c.index);
    c.low = mem_alloc(nfa->n, sizeof *c.low);
    c.comp = mem_alloc(nfa->n, sizeof *c.comp);
    c.open = mem_alloc(nfa->n, sizeof *c.open);
    c.visit = mem_alloc(nfa->n, sizeof *c.visit);
    if (!nfa->rank || !c.index || !c.low || !c.comp || !c.open || !c.visit)
        rc = err_no_memory(err, "a grammar of %zu states", nfa->n);
    else
        rc = rank_rules(nfa, grammar, &c, err);
    free(c.index);
    free(c.low);
    free(c.comp);
    free(c.open);
    free(c.visit);
    return rc;
}

int nfa_check(struct nfa *nfa, const struct grammar *grammar, struct err *err)
{
    return trim(nfa, grammar, err) < 0 ? -1 : rank(nfa, grammar, err);
}
