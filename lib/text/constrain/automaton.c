/* States, local states and frames of an automaton, computed when they are first needed, and forgotten when there are too
 * many. */
#include "text/constrain/automaton.h"

enum { FRAME_ROOT, FRAME_UNKNOWN };

/* A call of a rule: where to go on afterwards. */
struct rule_call {
    uint32_t rank, rule;
    struct automaton_item to;
};

enum { STATE_ACCEPTS = 1, STATE_RETURNED = 2 };

struct local_call {
    uint32_t rule, to;
};

struct automaton_scratch {
    uint32_t *seen; /* [NFA states]: stamp of the last closure that reached each */
    uint32_t stamp;
    uint32_t *todo, *set; /* [NFA states] */
    size_t n_set;
    struct local_call *calls; /* of all local states */
    size_t n_calls, calls_cap;
    struct automaton_item *item; /* sorted, frames descending */
    size_t n_items, items_cap;
    struct rule_call *call; /* sorted: lowest rank first */
    size_t n_call, call_cap;
    uint32_t *array; /* for interning */
    size_t array_cap;
};

/* Largest numbers of local states, and of all else together, in bytes. */
enum { AUTOMATON_LOCALS = 1 << 18 };
#define AUTOMATON_BYTES ((size_t)256 << 20)

enum { SORTING = 12 }; /* work for a state that is sorted */

/* Sets a->failed, with an error message. */
static void automaton_fail(struct automaton *a, const struct err *err)
{
    if (!a->failed)
        a->why = *err;
    a->failed = true;
}

static void automaton_refuse(struct automaton *a, const char *why)
{
    struct err err;
    (void)err_set(&err, "%s", why);
    automaton_fail(a, &err);
}

static void automaton_too_large(struct automaton *a)
{
    automaton_refuse(a, "the constraint is too ambiguous: its automaton has too many states; make it "
                        "simpler, or lower the numbers of its repetitions");
}

bool automaton_hold(struct automaton *a, void *array, size_t *cap, size_t count, size_t size)
{
    struct err err;
    while (!a->failed && *cap < count) {
        const size_t before = *cap;
        if (mem_grow(array, cap, *cap, size, &err) < 0)
            automaton_fail(a, &err);
        else
            memset((char *)*(void **)array + before * size, 0, (*cap - before) * size);
    }
    return !a->failed;
}

/* The number of an array; UINT32_MAX: the automaton has failed. */
static uint32_t intern(struct automaton *a, struct array_pool *pool, const uint32_t *array, size_t n)
{
    struct err err;
    const uint32_t id = a->failed ? UINT32_MAX : array_pool_intern(pool, array, n, &err);
    if (id == UINT32_MAX && !a->failed)
        automaton_fail(a, &err);
    return id;
}

/* Starts a set of NFA states; adds a state and those reached from it without reading. */
static void local_begin(struct automaton *a)
{
    struct automaton_scratch *s = a->scratch;
    s->n_set = 0;
    if (++s->stamp == 0) {
        memset(s->seen, 0, a->nfa.n * sizeof *s->seen);
        s->stamp = 1;
    }
}

static void local_add(struct automaton *a, uint32_t nfa_state)
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

static void add_local(struct automaton *a, const struct local_info *info)
{
    const size_t id = a->locals.n - 1, classes = a->nfa.classes;
    if (!HOLD(a, a->local_info, a->local_info_cap, id + 1) ||
        !HOLD(a, a->local_next, a->local_next_cap, (id + 1) * classes))
        return;
    a->local_info[id] = *info;
    memset(a->local_next + id * classes, 0xff, classes * sizeof *a->local_next);
}

/* Interns scratch.set as a local state. */
static uint32_t local_intern(struct automaton *a)
{
    struct automaton_scratch *s = a->scratch;
    const size_t before = a->locals.n;
    if (a->failed)
        return AUTOMATON_DEAD;
    a->work += SORTING * s->n_set;
    array_pool_sort(s->set, s->n_set);
    const uint32_t id = intern(a, &a->locals, s->set, s->n_set);
    const struct local_info info = {.final = s->n_set && s->set[0] == 0};
    if (a->locals.n > AUTOMATON_LOCALS)
        automaton_too_large(a);
    else if (a->work > a->most_work)
        automaton_refuse(
            a, "the constraint is too complex: the tokens that it allows take too long to compute");
    else if (a->locals.n > before)
        add_local(a, &info);
    return a->failed ? AUTOMATON_DEAD : id;
}

/* The local state after a byte of a class; the calls of a local state; the union of two. */
static uint32_t local_step(struct automaton *a, uint32_t local, uint8_t cls)
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
static void find_calls(struct automaton *a, uint32_t local)
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
        if (!HOLD(a, s->calls, s->calls_cap, s->n_calls + 1))
            return;
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
}

static const struct local_call *local_calls(struct automaton *a, uint32_t local, size_t *n)
{
    if (!a->local_info[local].calls_known)
        find_calls(a, local);
    *n = a->failed ? 0 : a->local_info[local].n_calls;
    return *n ? a->scratch->calls + a->local_info[local].calls : NULL;
}

static uint32_t local_union(struct automaton *a, uint32_t x, uint32_t y)
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

/* ---- states and frames of an automaton, computed when they are first needed ---- */

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
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (is_before(&s->item[mid], item))
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo < s->n_items && s->item[lo].local == item->local && s->item[lo].frame == item->frame)
        return;
    if (!HOLD(a, s->item, s->items_cap, s->n_items + 1))
        return;
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
    size_t at = s->n_call;
    if (!HOLD(a, s->call, s->call_cap, s->n_call + 1))
        return;
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

/* Makes room for what is known of all frames: nothing, of new ones. */
static void hold_frame_states(struct automaton *a)
{
    const size_t before = a->frame_state_cap;
    if (HOLD(a, a->frame_state, a->frame_state_cap, a->frames.n) && a->frame_state_cap > before)
        memset(a->frame_state, 0xff, a->frame_state_cap * sizeof *a->frame_state);
}

/* The frame to return to from the rule whose calls are scratch.call[first..n_call). */
static uint32_t make_frame(struct automaton *a, size_t first)
{
    struct automaton_scratch *s = a->scratch;
    const size_t n = s->n_call - first;
    if (!HOLD(a, s->array, s->array_cap, 2 * n + 2))
        return 0;
    struct automaton_item *to = (struct automaton_item *)(void *)s->array;
    for (size_t i = 0; i < n; i++)
        to[i] = s->call[first + i].to;
    qsort(to, n, sizeof *to, compare_items);
    size_t n_to = 0;
    for (size_t i = 0; i < n; i++)
        if (n_to == 0 || is_before(&to[n_to - 1], &to[i]))
            to[n_to++] = to[i];
    const uint32_t frame = intern(a, &a->frames, s->array, 2 * n_to);
    hold_frame_states(a);
    return a->failed ? 0 : frame;
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
    if (HOLD(a, a->item, a->items_cap, a->n_items + 1))
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

static void add_state(struct automaton *a, const struct state_info *info)
{
    const size_t id = a->states.n - 1, classes = a->nfa.classes;
    if (!HOLD(a, a->state_info, a->state_info_cap, id + 1) ||
        !HOLD(a, a->state_next, a->state_next_cap, (id + 1) * classes))
        return;
    a->state_info[id] = *info;
    memset(a->state_next + id * classes, id == AUTOMATON_DEAD ? 0 : 0xff,
           classes * sizeof *a->state_next);
}

/* Makes the scratch items a state: an array of the flags, then the items. */
/* Makes the scratch items a state, unless it is one: interns an array of the flags, then the items. */
static uint32_t automaton_intern_state(struct automaton *a, uint32_t flags)
{
    struct automaton_scratch *s = a->scratch;
    const size_t n = s->n_items, before = a->states.n;
    if (!HOLD(a, s->array, s->array_cap, 2 * n + 2))
        return AUTOMATON_DEAD;
    s->array[0] = flags;
    if (n)
        memcpy(s->array + 1, s->item, n * sizeof *s->item);
    const uint32_t id = intern(a, &a->states, s->array, 1 + 2 * n);
    if (a->failed || a->states.n == before)
        return a->failed ? AUTOMATON_DEAD : id;
    struct state_info info = {flags, (uint32_t)a->n_items, (uint32_t)n, 0};
    for (size_t i = 0; i < n; i++)
        push_item(a, &s->item[i]);
    push_called(a, &info);
    info.n_items = (uint32_t)(a->n_items - info.items);
    if (!a->failed)
        add_state(a, &info);
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

/* ---- opening an automaton, and forgetting states that are not needed any more ---- */

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

/* Adds what has fixed numbers: the two special frames, the dead state, and the empty set as local state 0. */
static void add_fixed(struct automaton *a)
{
    static const uint32_t special[][2] = {{UINT32_MAX, 0}, {UINT32_MAX, 1}};
    static const uint32_t dead[] = {0};
    for (size_t i = 0; i < ARRAY_LEN(special); i++)
        (void)intern(a, &a->frames, special[i], 2);
    (void)intern(a, &a->states, dead, 1);
    if (!a->failed)
        add_state(a, &(struct state_info){0});
    local_begin(a);
    (void)local_intern(a);
}

int automaton_open(struct automaton *a, struct nfa *nfa, struct err *err)
{
    *a = (struct automaton){.nfa = *nfa, .most_work = SIZE_MAX};
    *nfa = (struct nfa){0};
    int rc = open_scratch(a, err);
    if (rc == 0)
        add_fixed(a);
    if (a->failed) {
        *err = a->why;
        rc = -1;
    }
    if (rc < 0)
        automaton_close(a);
    return rc;
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
static void move_frames(struct automaton *a, const struct automaton *before, uint32_t *frame_new)
{
    const struct array_pool *old = &before->frames;
    struct automaton_scratch *s = a->scratch;
    size_t n;
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
        if (!HOLD(a, s->array, s->array_cap, n))
            return;
        for (size_t i = 0; i < n; i++)
            s->array[i] = i % 2 ? frame_new[edge[i]] : move_local(a, &before->locals, edge[i]);
        frame_new[f] = intern(a, &a->frames, s->array, n);
    }
    hold_frame_states(a);
}

/* Enters the states again, with their frames' new numbers. */
static void move_states(struct automaton *a, const struct automaton *old, const uint32_t *frame_new,
                        uint32_t **state, size_t n)
{
    struct automaton_scratch *s = a->scratch;
    for (size_t i = 0; i < n && !a->failed; i++) {
        size_t n_items;
        const struct automaton_item *item = automaton_items(old, *state[i], &n_items);
        if (!HOLD(a, s->item, s->items_cap, n_items))
            return;
        for (size_t k = 0; k < n_items; k++)
            s->item[k] = (struct automaton_item){move_local(a, &old->locals, item[k].local),
                                                 frame_new[item[k].frame]};
        s->n_items = n_items;
        const uint32_t moved = automaton_intern_state(a, old->state_info[*state[i]].flags);
        if (!a->failed)
            *state[i] = moved;
    }
}

int automaton_collect(struct automaton *a, uint32_t **state, size_t n, struct err *err)
{
    struct automaton old = *a;
    uint32_t *frame_new = mem_zalloc(old.frames.n, sizeof *frame_new);
    if (!frame_new)
        return err_no_memory(err, "%zu states of a constraint", old.frames.n);
    for (size_t i = 0; i < n; i++)
        mark_frames(&old, *state[i], frame_new);
    begin_states(a);
    a->scratch->n_calls = 0;
    memset(a->rule_local, 0xff, a->nfa.n_rules * sizeof *a->rule_local);
    add_fixed(a);
    move_frames(a, &old, frame_new);
    if (!a->failed)
        move_states(a, &old, frame_new, state, n);
    forget_states(&old);
    free(frame_new);
    if (a->failed)
        *err = a->why;
    return a->failed ? -1 : 0;
}
