/* Compiling grammars to automata over bytes, and their checks: which rules may be empty, which states lead to a
 * complete text, and whether rules call themselves before they read. */
#include "text/constrain/nfa.h"

#include "text/utf8.h"

enum { NFA_MAX = 1 << 20 }; /* states */

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

static void enter_component(struct components *c, uint32_t s)
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
    enter_component(c, root);
    while (c->n_visits) {
        struct visit *v = &c->visit[c->n_visits - 1];
        const uint32_t s = v->state, to = silent_move(c->nfa, s, v->next++);
        if (to == UINT32_MAX)
            leave(c);
        else if (!c->index[to])
            enter_component(c, to);
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

/* Marks calls of rules that may be empty, replaces states from which nothing can be completed by
 * NFA_DEAD, and sets nfa->rank. Fails if the root matches no text, or for left recursion. */
static int nfa_check(struct nfa *nfa, const struct grammar *grammar, struct err *err)
{
    return trim(nfa, grammar, err) < 0 ? -1 : rank(nfa, grammar, err);
}

/* Compiling grammars, from the end of each rule to its start: the state after an expression is
 * known when the expression is compiled. */

enum { SHARED = 16 }; /* byte ranges of a class that are searched for reuse */

struct compiler {
    struct nfa *nfa;
    const struct grammar *grammar;
    bool failed;
    struct err *err;
};

static uint32_t add_state(struct compiler *c, const struct nfa_state *state)
{
    struct nfa *nfa = c->nfa;
    if (c->failed)
        return 0;
    if (nfa->n >= NFA_MAX)
        c->failed = err_set(c->err,
                            "the grammar is too large: it needs more than %d states; lower the numbers "
                            "of its repetitions",
                            NFA_MAX) < 0;
    else
        c->failed = mem_grow(&nfa->state, &nfa->cap, nfa->n, sizeof *nfa->state, c->err) < 0;
    if (c->failed)
        return 0;
    nfa->state[nfa->n] = *state;
    return (uint32_t)nfa->n++;
}

static uint32_t add_byte(struct compiler *c, uint8_t lo, uint8_t hi, uint32_t next)
{
    return add_state(c, &(struct nfa_state){NFA_BYTE, lo, hi, next, 0});
}

static uint32_t add_split(struct compiler *c, uint32_t a, uint32_t b)
{
    return add_state(c, &(struct nfa_state){.kind = NFA_SPLIT, .a = a, .b = b});
}

/* add_byte(), or a state of the same class that reads the same, added at or after `first`. */
static uint32_t share_byte(struct compiler *c, size_t first, uint8_t lo, uint8_t hi, uint32_t next)
{
    const struct nfa *nfa = c->nfa;
    for (size_t i = nfa->n, tries = 0; i-- > first && tries < SHARED; tries++) {
        const struct nfa_state *s = &nfa->state[i];
        if (s->kind == NFA_BYTE && s->lo == lo && s->hi == hi && s->a == next)
            return (uint32_t)i;
    }
    return add_byte(c, lo, hi, next);
}

/* A class being compiled: one of several sequences of byte ranges, all leading to `next`. */
struct class_job {
    struct compiler *c;
    size_t first; /* states of this class begin here */
    uint32_t next, start;
    bool any; /* `start` is set */
};

static void add_sequence(struct class_job *job, uint32_t lo, uint32_t hi)
{
    char from[UTF8_MAX], to[UTF8_MAX];
    unsigned n = utf8_write(lo, from);
    uint32_t at = job->next;
    (void)utf8_write(hi, to);
    while (n-- > 0)
        at = share_byte(job->c, job->first, (uint8_t)from[n], (uint8_t)to[n], at);
    job->start = job->any ? add_split(job->c, at, job->start) : at;
    job->any = true;
}

/* Adds the code points [lo, hi], whose encodings have the same length: splits them into ranges
 * whose encodings are products of byte ranges. */
static void add_codes(struct class_job *job, uint32_t lo, uint32_t hi)
{
    for (unsigned bits = 6; bits <= 18 && hi > 0x7f; bits += 6) {
        const uint32_t low = ((uint32_t)1 << bits) - 1;
        if ((lo & ~low) == (hi & ~low))
            continue;
        if (lo & low) {
            add_codes(job, lo, lo | low);
            add_codes(job, (lo | low) + 1, hi);
            return;
        }
        if ((hi & low) != low) {
            add_codes(job, lo, (hi & ~low) - 1);
            add_codes(job, hi & ~low, hi);
            return;
        }
    }
    add_sequence(job, lo, hi);
}

static uint32_t compile_class(struct compiler *c, const struct expr *e, uint32_t next)
{
    /* encodings of one length, without surrogates */
    static const struct code_range parts[] = {
        {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, CODE_MAX}};
    struct class_job job = {.c = c, .first = c->nfa->n, .next = next};
    for (size_t i = 0; i < e->b && !c->failed; i++) {
        const struct code_range *r = &c->grammar->range[e->a + i];
        for (size_t p = 0; p < ARRAY_LEN(parts); p++) {
            const uint32_t lo = r->first > parts[p].first ? r->first : parts[p].first;
            const uint32_t hi = r->last < parts[p].last ? r->last : parts[p].last;
            if (lo <= hi)
                add_codes(&job, lo, hi);
        }
    }
    return job.any ? job.start : add_state(c, &(struct nfa_state){.kind = NFA_DEAD});
}

static uint32_t compile(struct compiler *c, expr_id id, uint32_t next);

static uint32_t compile_repeat(struct compiler *c, const struct expr *e, uint32_t next)
{
    uint32_t at = next;
    if (e->max == EXPR_MANY) {
        at = add_split(c, next, next);
        const uint32_t body = compile(c, e->a, at);
        if (!c->failed)
            c->nfa->state[at].a = body;
    } else {
        for (uint32_t i = e->min; i < e->max && !c->failed; i++)
            at = add_split(c, compile(c, e->a, at), next);
    }
    for (uint32_t i = 0; i < e->min && !c->failed; i++) {
        /* a jump, so that repetitions of nothing end at the limit */
        at = add_state(c, &(struct nfa_state){.kind = NFA_JUMP, .a = at});
        at = compile(c, e->a, at);
    }
    return at;
}

static uint32_t compile_alternatives(struct compiler *c, const struct expr *e, uint32_t next)
{
    uint32_t at = compile(c, c->grammar->list[e->a + e->b - 1], next);
    for (size_t i = e->b - 1; i-- > 0 && !c->failed;)
        at = add_split(c, compile(c, c->grammar->list[e->a + i], next), at);
    return at;
}

/* Returns the state from which the expression leads to `next`. */
static uint32_t compile(struct compiler *c, expr_id id, uint32_t next)
{
    const struct expr *e = &c->grammar->expr[id];
    uint32_t at = next;
    if (c->failed)
        return 0;
    switch (e->kind) {
    case EXPR_IS_NONE: return add_state(c, &(struct nfa_state){.kind = NFA_DEAD});
    case EXPR_IS_EMPTY: break;
    case EXPR_IS_BYTES:
        for (size_t i = e->b; i-- > 0 && !c->failed;) {
            const uint8_t byte = (uint8_t)c->grammar->bytes.data[e->a + i];
            at = add_byte(c, byte, byte, at);
        }
        break;
    case EXPR_IS_CLASS: return compile_class(c, e, next);
    case EXPR_IS_SEQ:
        for (size_t i = e->b; i-- > 0 && !c->failed;)
            at = compile(c, c->grammar->list[e->a + i], at);
        break;
    case EXPR_IS_ALT: return compile_alternatives(c, e, next);
    case EXPR_IS_REPEAT: return compile_repeat(c, e, next);
    case EXPR_IS_RULE:
        if (next == 0)
            return add_state(c, &(struct nfa_state){.kind = NFA_JUMP, .a = nfa_rule_start(e->a)});
        return add_state(c, &(struct nfa_state){.kind = NFA_CALL, .a = next, .b = e->a});
    }
    return at;
}

/* Bytes belong to one class unless a range begins or ends between them. */
static void classify_bytes(struct nfa *nfa)
{
    bool begins[257] = {[0] = true};
    size_t cls = 0;
    for (size_t i = 0; i < nfa->n; i++)
        if (nfa->state[i].kind == NFA_BYTE) {
            begins[nfa->state[i].lo] = true;
            begins[nfa->state[i].hi + 1] = true;
        }
    for (size_t b = 0; b < 256; b++) {
        cls += b > 0 && begins[b];
        nfa->cls[b] = (uint8_t)cls;
        nfa->any[cls] = (uint8_t)b;
    }
    nfa->classes = cls + 1;
}

static int compile_rules(struct compiler *c)
{
    const struct grammar *g = c->grammar;
    add_state(c, &(struct nfa_state){.kind = NFA_FINAL});
    for (size_t r = 0; r < g->n_rules && !c->failed; r++)
        add_state(c, &(struct nfa_state){.kind = NFA_JUMP});
    for (size_t r = 0; r < g->n_rules && !c->failed; r++) {
        const uint32_t start = compile(c, g->rule[r].body, 0);
        if (!c->failed)
            c->nfa->state[nfa_rule_start((uint32_t)r)].a = start;
    }
    return c->failed ? -1 : 0;
}

int nfa_compile(struct nfa *nfa, const struct grammar *grammar, struct err *err)
{
    struct compiler c = {.nfa = nfa, .grammar = grammar, .err = err};
    *nfa = (struct nfa){.n_rules = grammar->n_rules, .root = grammar->root};
    if (grammar->failed) {
        *err = grammar->why;
        return -1;
    }
    if (compile_rules(&c) < 0 || nfa_check(nfa, grammar, err) < 0) {
        nfa_release(nfa);
        return -1;
    }
    classify_bytes(nfa);
    return 0;
}

void nfa_release(struct nfa *nfa)
{
    free(nfa->state);
    free(nfa->rank);
    *nfa = (struct nfa){0};
}
