/* Opening an automaton, and forgetting states that are not needed any more. */
#include <stdlib.h>
#include <string.h>

#include "text/constrain/automaton_sets.h"

static int open_scratch(struct automaton *a, struct err *err)
{
    struct automaton_scratch *s = a->scratch = mem_zalloc(1, sizeof *s);
    if (s) {
        s->seen = mem_zalloc(a->nfa.n, sizeof *s->seen);
        s->todo = mem_alloc(a->nfa.n, sizeof *s->todo);
        s->set = mem_alloc(a->nfa.n, sizeof *s->set);
    }
    a->rule_local = mem_alloc(a->nfa.n_rules, sizeof *a->rule_local);
    if (a->rule_local)
        memset(a->rule_local, 0xff, a->nfa.n_rules * sizeof *a->rule_local);
    return a->rule_local && s && s->seen && s->todo && s->set
               ? 0
               : err_no_memory(err, "a grammar of %zu states", a->nfa.n);
}

/* Adds what has fixed numbers: the two special frames, and the dead state. */
static int add_fixed(struct automaton *a, struct err *err)
{
    static const uint32_t special[][2] = {{UINT32_MAX, 0}, {UINT32_MAX, 1}};
    static const uint32_t dead[] = {0};
    for (size_t i = 0; i < ARRAY_LEN(special); i++)
        if (array_pool_intern(&a->frames, special[i], 2, err) == UINT32_MAX)
            return -1;
    if (array_pool_intern(&a->states, dead, 1, err) == UINT32_MAX)
        return -1;
    while (a->state_next_cap < a->nfa.classes)
        if (mem_grow(&a->state_next, &a->state_next_cap, a->state_next_cap, sizeof *a->state_next,
                     err) < 0)
            return -1;
    if (mem_grow(&a->state_info, &a->state_info_cap, a->state_info_cap, sizeof *a->state_info, err) < 0)
        return -1;
    memset(a->state_next, 0, a->nfa.classes * sizeof *a->state_next);
    a->state_info[0] = (struct state_info){0};
    return 0;
}

/* The empty set is local state 0. */
static void add_empty(struct automaton *a)
{
    local_begin(a);
    (void)local_intern(a);
}

int automaton_open(struct automaton *a, struct nfa *nfa, struct err *err)
{
    *a = (struct automaton){.nfa = *nfa, .most_work = SIZE_MAX};
    *nfa = (struct nfa){0};
    if (open_scratch(a, err) < 0 || add_fixed(a, err) < 0) {
        automaton_close(a);
        return -1;
    }
    add_empty(a);
    if (!a->failed)
        return 0;
    *err = a->why;
    automaton_close(a);
    return -1;
}

/* No states, local states and frames yet. */
static void begin_states(struct automaton *a)
{
    a->locals = a->frames = a->states = (struct array_pool){0};
    a->local_next = a->state_next = a->frame_state = NULL;
    a->local_info = NULL;
    a->state_info = NULL;
    a->item = NULL;
    a->local_next_cap = a->local_info_cap = 0;
    a->state_next_cap = a->state_info_cap = a->frame_state_cap = a->n_items = a->items_cap = 0;
}

static void forget_states(struct automaton *a)
{
    array_pool_release(&a->locals);
    free(a->local_next);
    free(a->local_info);
    array_pool_release(&a->frames);
    array_pool_release(&a->states);
    free(a->state_next);
    free(a->state_info);
    free(a->frame_state);
    free(a->item);
    begin_states(a);
}

void automaton_close(struct automaton *a)
{
    struct automaton_scratch *s = a->scratch;
    forget_states(a);
    free(a->rule_local);
    if (s) {
        free(s->seen);
        free(s->todo);
        free(s->set);
        free(s->calls);
        free(s->item);
        free(s->call);
        free(s->array);
    }
    free(s);
    nfa_release(&a->nfa);
    *a = (struct automaton){0};
}

/* Marks the frames of a state, and those below. */
static void mark_frames(const struct automaton *a, uint32_t state, uint32_t *frame_new)
{
    size_t n;
    const struct automaton_item *item = automaton_items(a, state, &n);
    for (size_t i = 0; i < n; i++)
        frame_new[item[i].frame] = 1;
}

/* The number of a local state of the old pool in the new one. */
static uint32_t move_local(struct automaton *a, const struct array_pool *old, uint32_t local)
{
    struct automaton_scratch *s = a->scratch;
    const uint32_t *set = array_pool_get(old, local, &s->n_set);
    if (s->n_set)
        memcpy(s->set, set, s->n_set * sizeof *s->set);
    return local_intern(a);
}

/* Interns the marked frames in the new pool; sets frame_new to their numbers there. */
static int move_frames(struct automaton *a, const struct automaton *before, uint32_t *frame_new,
                       struct err *err)
{
    const struct array_pool *old = &before->frames;
    uint32_t *copy = NULL;
    size_t cap = 0, n;
    for (size_t f = old->n; f-- > FRAME_UNKNOWN + 1;) {
        const uint32_t *edge = array_pool_get(old, (uint32_t)f, &n);
        for (size_t i = 0; i < n && frame_new[f]; i += 2)
            frame_new[edge[i + 1]] = 1;
    }
    frame_new[FRAME_ROOT] = FRAME_ROOT;
    frame_new[FRAME_UNKNOWN] = FRAME_UNKNOWN;
    for (size_t f = FRAME_UNKNOWN + 1; f < old->n; f++) {
        if (!frame_new[f])
            continue;
        const uint32_t *edge = array_pool_get(old, (uint32_t)f, &n);
        while (cap < n)
            if (mem_grow(&copy, &cap, cap, sizeof *copy, err) < 0)
                goto failed;
        for (size_t i = 0; i < n; i++)
            copy[i] = i % 2 ? frame_new[edge[i]] : move_local(a, &before->locals, edge[i]);
        frame_new[f] = array_pool_intern(&a->frames, copy, n, err);
        if (frame_new[f] == UINT32_MAX)
            goto failed;
    }
    while (a->frame_state_cap < a->frames.n)
        if (mem_grow(&a->frame_state, &a->frame_state_cap, a->frame_state_cap, sizeof *a->frame_state,
                     err) < 0)
            goto failed;
    if (a->frame_state_cap)
        memset(a->frame_state, 0xff, a->frame_state_cap * sizeof *a->frame_state);
    free(copy);
    return 0;
failed:
    free(copy);
    return -1;
}

/* Enters the states again, with their frames' new numbers. */
static int move_states(struct automaton *a, const struct automaton *old, const uint32_t *frame_new,
                       uint32_t **state, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t n_items;
        const struct automaton_item *item = automaton_items(old, *state[i], &n_items);
        a->scratch->n_items = 0;
        for (size_t k = 0; k < n_items; k++) {
            if (mem_grow(&a->scratch->item, &a->scratch->items_cap, a->scratch->n_items,
                         sizeof *a->scratch->item, err) < 0)
                return -1;
            a->scratch->item[a->scratch->n_items++] = (struct automaton_item){
                move_local(a, &old->locals, item[k].local), frame_new[item[k].frame]};
        }
        const uint32_t moved = automaton_intern_state(a, old->state_info[*state[i]].flags);
        if (a->failed) {
            *err = a->why;
            return -1;
        }
        *state[i] = moved;
    }
    return 0;
}

int automaton_collect(struct automaton *a, uint32_t **state, size_t n, struct err *err)
{
    struct automaton old = *a;
    uint32_t *frame_new = mem_zalloc(old.frames.n, sizeof *frame_new);
    int rc = -1;
    if (!frame_new)
        return err_no_memory(err, "%zu states of a constraint", old.frames.n);
    for (size_t i = 0; i < n; i++)
        mark_frames(&old, *state[i], frame_new);
    begin_states(a);
    a->scratch->n_calls = 0;
    memset(a->rule_local, 0xff, a->nfa.n_rules * sizeof *a->rule_local);
    add_empty(a);
    if (add_fixed(a, err) == 0 && move_frames(a, &old, frame_new, err) == 0)
        rc = move_states(a, &old, frame_new, state, n, err);
    forget_states(&old);
    free(frame_new);
    if (rc < 0)
        automaton_fail(a, err);
    return rc;
}
