/* States and frames of an automaton, computed when they are first needed. */
#include "text/constrain/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "text/constrain/automaton_sets.h"

/* ---- the items of a state while it is computed: sorted, frames descending, without doubles ---- */

static bool is_before(const struct automaton_item *a, const struct automaton_item *b)
{
    return a->frame > b->frame || (a->frame == b->frame && a->local < b->local);
}

/* Inserts an item into the sorted list at or after index `from`. */
static void add_item(struct automaton *a, size_t from, const struct automaton_item *item)
{
    struct automaton_scratch *s = a->scratch;
    size_t lo = from, hi = s->n_items;
    struct err err;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (is_before(&s->item[mid], item))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < s->n_items && s->item[lo].local == item->local && s->item[lo].frame == item->frame)
        return;
    if (mem_grow(&s->item, &s->items_cap, s->n_items, sizeof *s->item, &err) < 0) {
        automaton_fail(a, &err);
        return;
    }
    memmove(s->item + lo + 1, s->item + lo, (s->n_items - lo) * sizeof *s->item);
    s->item[lo] = *item;
    s->n_items++;
    a->work += 1 + (s->n_items - lo) / 8;
}

/* Adds what follows once the rule of a frame has ended. Frames below have lower numbers, so that new
 * items go after `from`. */
static void add_returns(struct automaton *a, uint32_t frame, size_t from, uint32_t *flags)
{
    size_t n;
    if (frame == FRAME_ROOT)
        *flags |= STATE_ACCEPTS;
    else if (frame == FRAME_UNKNOWN)
        *flags |= STATE_RETURNED;
    else
        for (size_t i = 0; !a->failed; i += 2) {
            const uint32_t *edge = array_pool_get(&a->frames, frame, &n);
            if (i >= n)
                break;
            add_item(a, from, &(struct automaton_item){edge[i], edge[i + 1]});
        }
}

/* Returns from the rules that may have ended, until there are no more. */
static void add_all_returns(struct automaton *a, uint32_t *flags)
{
    const struct automaton_scratch *s = a->scratch;
    for (size_t i = 0; i < s->n_items && !a->failed; i++)
        if (a->local_info[s->item[i].local].final)
            add_returns(a, s->item[i].frame, i + 1, flags);
}

/* Unites the local states of items with the same frame. */
static void merge_items(struct automaton *a)
{
    struct automaton_scratch *s = a->scratch;
    size_t n = 0;
    for (size_t i = 0; i < s->n_items && !a->failed; i++)
        if (n > 0 && s->item[n - 1].frame == s->item[i].frame)
            s->item[n - 1].local = local_union(a, s->item[n - 1].local, s->item[i].local);
        else
            s->item[n++] = s->item[i];
    s->n_items = n;
}

/* ---- calls of a new state ---- */

static void add_call(struct automaton *a, const struct rule_call *call)
{
    struct automaton_scratch *s = a->scratch;
    struct err err;
    size_t at = s->n_call;
    if (mem_grow(&s->call, &s->call_cap, s->n_call, sizeof *s->call, &err) < 0) {
        automaton_fail(a, &err);
        return;
    }
    /* lowest rank first, equal calls together: those to make next are at the end */
    for (; at > 0; at--) {
        const struct rule_call *before = &s->call[at - 1];
        if (before->rank < call->rank || (before->rank == call->rank && before->rule <= call->rule))
            break;
        s->call[at] = *before;
        a->work++;
    }
    s->call[at] = *call;
    s->n_call++;
}

static void add_calls_of(struct automaton *a, const struct automaton_item *item)
{
    const struct automaton_item from = *item; /* the list may move */
    size_t n;
    (void)local_calls(a, from.local, &n);
    for (size_t i = 0; i < n && !a->failed; i++) {
        const struct local_call *call = local_calls(a, from.local, &n) + i;
        add_call(a, &(struct rule_call){a->nfa.rank[call->rule], call->rule, {call->to, from.frame}});
    }
}

static int compare_items(const void *x, const void *y)
{
    const struct automaton_item *a = x, *b = y;
    return is_before(a, b) ? -1 : is_before(b, a);
}

/* The frame to return to from the rule whose calls are scratch.call[first..n_call). */
static uint32_t make_frame(struct automaton *a, size_t first)
{
    struct automaton_scratch *s = a->scratch;
    const size_t n = s->n_call - first;
    struct err err;
    while (s->array_cap < 2 * n + 2)
        if (mem_grow(&s->array, &s->array_cap, s->array_cap, sizeof *s->array, &err) < 0) {
            automaton_fail(a, &err);
            return 0;
        }
    struct automaton_item *to = (struct automaton_item *)(void *)s->array;
    for (size_t i = 0; i < n; i++)
        to[i] = s->call[first + i].to;
    qsort(to, n, sizeof *to, compare_items);
    size_t n_to = 0;
    for (size_t i = 0; i < n; i++)
        if (n_to == 0 || is_before(&to[n_to - 1], &to[i]))
            to[n_to++] = to[i];
    const uint32_t frame = array_pool_intern(&a->frames, s->array, 2 * n_to, &err);
    if (frame == UINT32_MAX) {
        automaton_fail(a, &err);
        return 0;
    }
    while (a->frame_state_cap < a->frames.n)
        if (mem_grow(&a->frame_state, &a->frame_state_cap, a->frame_state_cap, sizeof *a->frame_state,
                     &err) < 0) {
            automaton_fail(a, &err);
            return 0;
        } else {
            memset(a->frame_state, 0xff, a->frame_state_cap * sizeof *a->frame_state);
        }
    return frame;
}

static uint32_t rule_local(struct automaton *a, uint32_t rule)
{
    uint32_t *known = &a->rule_local[rule];
    if (*known == AUTOMATON_NOT_KNOWN) {
        local_begin(a);
        local_add(a, nfa_rule_start(rule));
        *known = local_intern(a);
    }
    return *known;
}

static void push_item(struct automaton *a, const struct automaton_item *item)
{
    struct err err;
    if (mem_grow(&a->item, &a->items_cap, a->n_items, sizeof *a->item, &err) < 0)
        automaton_fail(a, &err);
    else
        a->item[a->n_items++] = *item;
}

/* Appends the items of the rules that a state calls, and that these call before they read. */
static void push_called(struct automaton *a, const struct state_info *info)
{
    struct automaton_scratch *s = a->scratch;
    s->n_call = 0;
    for (size_t i = 0; i < info->n_kernel && !a->failed; i++)
        add_calls_of(a, &a->item[info->items + i]);
    while (s->n_call && !a->failed) {
        size_t first = s->n_call - 1;
        const uint32_t rule = s->call[first].rule;
        while (first > 0 && s->call[first - 1].rule == rule)
            first--;
        struct automaton_item item = {.frame = make_frame(a, first)};
        s->n_call = first;
        item.local = rule_local(a, rule);
        if (a->failed)
            return;
        push_item(a, &item);
        add_calls_of(a, &item);
    }
}

/* ---- states ---- */

static int add_state(struct automaton *a, const struct state_info *info, struct err *err)
{
    const size_t id = a->states.n - 1, classes = a->nfa.classes;
    while (a->state_info_cap <= id)
        if (mem_grow(&a->state_info, &a->state_info_cap, a->state_info_cap, sizeof *a->state_info,
                     err) < 0)
            return -1;
    while (a->state_next_cap < (id + 1) * classes)
        if (mem_grow(&a->state_next, &a->state_next_cap, a->state_next_cap, sizeof *a->state_next,
                     err) < 0)
            return -1;
    a->state_info[id] = *info;
    memset(a->state_next + id * classes, id == AUTOMATON_DEAD ? 0 : 0xff,
           classes * sizeof *a->state_next);
    return 0;
}

/* Makes the scratch items a state: an array of the flags, then the items. */
uint32_t automaton_intern_state(struct automaton *a, uint32_t flags)
{
    struct automaton_scratch *s = a->scratch;
    const size_t n = s->n_items, before = a->states.n;
    struct err err;
    while (!a->failed && s->array_cap < 2 * n + 2)
        if (mem_grow(&s->array, &s->array_cap, s->array_cap, sizeof *s->array, &err) < 0)
            automaton_fail(a, &err);
    if (a->failed)
        return AUTOMATON_DEAD;
    s->array[0] = flags;
    if (n)
        memcpy(s->array + 1, s->item, n * sizeof *s->item);
    const uint32_t id = array_pool_intern(&a->states, s->array, 1 + 2 * n, &err);
    if (id == UINT32_MAX)
        automaton_fail(a, &err);
    if (a->failed || a->states.n == before)
        return a->failed ? AUTOMATON_DEAD : id;
    struct state_info info = {flags, (uint32_t)a->n_items, (uint32_t)n, 0};
    for (size_t i = 0; i < n; i++)
        push_item(a, &s->item[i]);
    push_called(a, &info);
    info.n_items = (uint32_t)(a->n_items - info.items);
    if (!a->failed && add_state(a, &info, &err) < 0)
        automaton_fail(a, &err);
    if (!a->failed && automaton_bytes(a) > AUTOMATON_BYTES)
        automaton_too_large(a);
    return a->failed ? AUTOMATON_DEAD : id;
}

uint32_t automaton_compute_step(struct automaton *a, uint32_t state, uint8_t cls)
{
    const struct state_info info = a->state_info[state];
    uint32_t flags = 0;
    if (a->failed)
        return AUTOMATON_DEAD;
    a->scratch->n_items = 0;
    for (size_t i = 0; i < info.n_items && !a->failed; i++) {
        const struct automaton_item from = a->item[info.items + i];
        const uint32_t local = local_step(a, from.local, cls);
        if (local != AUTOMATON_DEAD)
            add_item(a, 0, &(struct automaton_item){local, from.frame});
    }
    add_all_returns(a, &flags);
    merge_items(a);
    const uint32_t next = automaton_intern_state(a, flags);
    if (!a->failed)
        a->state_next[state * a->nfa.classes + cls] = next;
    return next;
}

static uint32_t state_of(struct automaton *a, uint32_t local, uint32_t frame)
{
    const bool final = a->local_info[local].final;
    a->scratch->n_items = 0;
    add_item(a, 0, &(struct automaton_item){local, frame});
    return automaton_intern_state(a, final && frame == FRAME_ROOT ? STATE_ACCEPTS : 0);
}

uint32_t automaton_start(struct automaton *a)
{
    return state_of(a, rule_local(a, a->nfa.root), FRAME_ROOT);
}

uint32_t automaton_inside(struct automaton *a, uint32_t local)
{
    return state_of(a, local, FRAME_UNKNOWN);
}

uint32_t automaton_return(struct automaton *a, uint32_t frame)
{
    uint32_t flags = 0;
    if (frame <= FRAME_UNKNOWN || a->failed)
        return AUTOMATON_DEAD;
    if (a->frame_state[frame] != AUTOMATON_NOT_KNOWN)
        return a->frame_state[frame];
    a->scratch->n_items = 0;
    add_returns(a, frame, 0, &flags);
    add_all_returns(a, &flags);
    merge_items(a);
    const uint32_t state = automaton_intern_state(a, flags);
    if (!a->failed)
        a->frame_state[frame] = state;
    return state;
}

bool automaton_accepts(const struct automaton *a, uint32_t state)
{
    return a->state_info[state].flags & STATE_ACCEPTS;
}

bool automaton_returned(const struct automaton *a, uint32_t state)
{
    return a->state_info[state].flags & STATE_RETURNED;
}

const struct automaton_item *automaton_items(const struct automaton *a, uint32_t state, size_t *n)
{
    *n = a->state_info[state].n_kernel;
    return a->item + a->state_info[state].items;
}

bool automaton_is_full(const struct automaton *a)
{
    return automaton_bytes(a) > AUTOMATON_BYTES / 4 || a->locals.n > AUTOMATON_LOCALS / 2;
}

size_t automaton_bytes(const struct automaton *a)
{
    return array_pool_bytes(&a->locals) + array_pool_bytes(&a->frames) + array_pool_bytes(&a->states) +
           (a->local_next_cap + a->state_next_cap + a->frame_state_cap) * sizeof(uint32_t) +
           a->local_info_cap * sizeof *a->local_info + a->state_info_cap * sizeof *a->state_info +
           a->items_cap * sizeof *a->item;
}
