/* Compiling grammars, from the end of each rule to its start: the state after an expression is
 * known when the expression is compiled. */
#include "text/constrain/nfa.h"

#include <stdlib.h>
#include <string.h>

#include "text/constrain/nfa_check.h"
#include "text/utf8.h"

enum { SHARED = 16 }; /* byte ranges of a class that are searched for reuse */

struct compiler {
    struct nfa *nfa;
    const struct grammar *grammar;
    bool failed;
    struct err *err;
};

static uint32_t add(struct compiler *c, const struct nfa_state *state)
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
    return add(c, &(struct nfa_state){NFA_BYTE, lo, hi, next, 0});
}

static uint32_t add_split(struct compiler *c, uint32_t a, uint32_t b)
{
    return add(c, &(struct nfa_state){.kind = NFA_SPLIT, .a = a, .b = b});
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
    return job.any ? job.start : add(c, &(struct nfa_state){.kind = NFA_DEAD});
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
        at = add(c, &(struct nfa_state){.kind = NFA_JUMP, .a = at});
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
    case EXPR_IS_NONE: return add(c, &(struct nfa_state){.kind = NFA_DEAD});
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
            return add(c, &(struct nfa_state){.kind = NFA_JUMP, .a = nfa_rule_start(e->a)});
        return add(c, &(struct nfa_state){.kind = NFA_CALL, .a = next, .b = e->a});
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
    add(c, &(struct nfa_state){.kind = NFA_FINAL});
    for (size_t r = 0; r < g->n_rules && !c->failed; r++)
        add(c, &(struct nfa_state){.kind = NFA_JUMP});
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
