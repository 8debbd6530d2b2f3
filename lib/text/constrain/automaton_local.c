/* Local states of an automaton: sets of NFA states. */
#include <stdlib.h>
#include <string.h>

#include "text/constrain/automaton_sets.h"

enum { SORTING = 12 }; /* work for a state that is sorted */

void automaton_fail(struct automaton *a, const struct err *err)
{
    if (!a->failed)
        a->why = *err;
    a->failed = true;
}

void automaton_too_large(struct automaton *a)
{
    struct err err;
    (void)err_set(&err, "the constraint is too ambiguous: its automaton has too many states; make it "
                        "simpler, or lower the numbers of its repetitions");
    automaton_fail(a, &err);
}

static void too_slow(struct automaton *a)
{
    struct err err;
    (void)err_set(&err,
                  "the constraint is too complex: the tokens that it allows take too long to compute");
    automaton_fail(a, &err);
}

void local_begin(struct automaton *a)
{
    struct automaton_scratch *s = a->scratch;
    s->n_set = 0;
    if (++s->stamp == 0) {
        memset(s->seen, 0, a->nfa.n * sizeof *s->seen);
        s->stamp = 1;
    }
}

void local_add(struct automaton *a, uint32_t nfa_state)
{
    struct automaton_scratch *s = a->scratch;
    size_t n = 0;
    if (s->seen[nfa_state] == s->stamp)
        return;
    s->seen[nfa_state] = s->stamp;
    s->todo[n++] = nfa_state;
    while (n > 0) {
        const uint32_t at = s->todo[--n];
        const struct nfa_state *state = &a->nfa.state[at];
        uint32_t to[2];
        size_t n_to = 0;
        a->work++;
        if (state->kind == NFA_JUMP || state->kind == NFA_SPLIT)
            to[n_to++] = state->a;
        if (state->kind == NFA_SPLIT)
            to[n_to++] = state->b;
        if (state->kind == NFA_CALL && state->lo)
            to[n_to++] = state->a;
        if (state->kind == NFA_FINAL || state->kind == NFA_BYTE || state->kind == NFA_CALL)
            s->set[s->n_set++] = at;
        for (size_t i = 0; i < n_to; i++)
            if (s->seen[to[i]] != s->stamp) {
                s->seen[to[i]] = s->stamp;
                s->todo[n++] = to[i];
            }
    }
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int add_local(struct automaton *a, const struct local_info *info, struct err *err)
{
    const size_t id = a->locals.n - 1, classes = a->nfa.classes;
    while (a->local_info_cap <= id)
        if (mem_grow(&a->local_info, &a->local_info_cap, a->local_info_cap, sizeof *a->local_info,
                     err) < 0)
            return -1;
    while (a->local_next_cap < (id + 1) * classes)
        if (mem_grow(&a->local_next, &a->local_next_cap, a->local_next_cap, sizeof *a->local_next,
                     err) < 0)
            return -1;
    a->local_info[id] = *info;
    memset(a->local_next + id * classes, 0xff, classes * sizeof *a->local_next);
    return 0;
}

uint32_t local_intern(struct automaton *a)
{
    struct automaton_scratch *s = a->scratch;
    const size_t before = a->locals.n;
    struct err err;
    if (a->failed)
        return AUTOMATON_DEAD;
    a->work += SORTING * s->n_set;
    if (s->n_set > 1)
        qsort(s->set, s->n_set, sizeof *s->set, by_number);
    const uint32_t id = array_pool_intern(&a->locals, s->set, s->n_set, &err);
    const struct local_info info = {.final = s->n_set && s->set[0] == 0};
    if (id != UINT32_MAX && a->locals.n > AUTOMATON_LOCALS)
        automaton_too_large(a);
    else if (a->work > a->most_work)
        too_slow(a);
    else if (id == UINT32_MAX || (a->locals.n > before && add_local(a, &info, &err) < 0))
        automaton_fail(a, &err);
    return a->failed ? AUTOMATON_DEAD : id;
}

uint32_t local_step(struct automaton *a, uint32_t local, uint8_t cls)
{
    const uint32_t known = a->local_next[local * a->nfa.classes + cls];
    const uint8_t byte = a->nfa.any[cls];
    size_t n;
    if (known != AUTOMATON_NOT_KNOWN)
        return known;
    const uint32_t *state = array_pool_get(&a->locals, local, &n);
    local_begin(a);
    a->work += n;
    for (size_t i = 0; i < n; i++) {
        const struct nfa_state *s = &a->nfa.state[state[i]];
        if (s->kind == NFA_BYTE && s->lo <= byte && byte <= s->hi)
            local_add(a, s->a);
    }
    const uint32_t next = local_intern(a);
    if (!a->failed)
        a->local_next[local * a->nfa.classes + cls] = next;
    return next;
}

static int by_rule(const void *a, const void *b)
{
    const struct local_call *x = a, *y = b;
    return (x->rule > y->rule) - (x->rule < y->rule);
}

/* Appends the calls of a local state to scratch.calls: for each rule the NFA state to go on in, then,
 * once sorted, a local state for all of them together. */
static int find_calls(struct automaton *a, uint32_t local, struct err *err)
{
    struct automaton_scratch *s = a->scratch;
    const size_t first = s->n_calls;
    size_t n, n_out = first;
    const uint32_t *state = array_pool_get(&a->locals, local, &n);
    a->work += n;
    for (size_t i = 0; i < n; i++) {
        const struct nfa_state *at = &a->nfa.state[state[i]];
        if (at->kind != NFA_CALL || a->nfa.state[nfa_rule_start(at->b)].kind == NFA_DEAD)
            continue;
        if (mem_grow(&s->calls, &s->calls_cap, s->n_calls, sizeof *s->calls, err) < 0)
            return -1;
        s->calls[s->n_calls++] = (struct local_call){at->b, at->a};
    }
    const size_t end = s->n_calls;
    if (end > first)
        qsort(s->calls + first, end - first, sizeof *s->calls, by_rule);
    for (size_t i = first; i < end && !a->failed;) {
        const uint32_t rule = s->calls[i].rule;
        local_begin(a);
        for (; i < end && s->calls[i].rule == rule; i++)
            local_add(a, s->calls[i].to);
        s->calls[n_out++] = (struct local_call){rule, local_intern(a)};
    }
    s->n_calls = n_out;
    struct local_info *info = &a->local_info[local];
    info->calls = (uint32_t)first;
    info->n_calls = (uint32_t)(n_out - first);
    info->calls_known = !a->failed;
    return 0;
}

const struct local_call *local_calls(struct automaton *a, uint32_t local, size_t *n)
{
    struct err err;
    if (!a->local_info[local].calls_known && find_calls(a, local, &err) < 0)
        automaton_fail(a, &err);
    *n = a->failed ? 0 : a->local_info[local].n_calls;
    return *n ? a->scratch->calls + a->local_info[local].calls : NULL;
}

uint32_t local_union(struct automaton *a, uint32_t x, uint32_t y)
{
    const uint32_t both[] = {x, y};
    struct automaton_scratch *s = a->scratch;
    if (x == y)
        return x;
    local_begin(a);
    for (size_t i = 0; i < 2; i++) {
        size_t n;
        const uint32_t *state = array_pool_get(&a->locals, both[i], &n);
        a->work += n;
        for (size_t k = 0; k < n; k++)
            if (s->seen[state[k]] != s->stamp) {
                s->seen[state[k]] = s->stamp;
                s->set[s->n_set++] = state[k];
            }
    }
    return local_intern(a);
}
