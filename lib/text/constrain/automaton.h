/* The automaton of a grammar: which bytes may come next, and whether the text may end. It is made
 * deterministic while it runs, and everything computed is kept.
 *
 * A local state is a set of NFA states. A frame stands for the calls that are to be returned to: a
 * set of (local state to go on in, frame below it); calls of the same rule at the same byte share a
 * frame, so that ambiguous grammars stay small. A state is a set of (local state, frame). All three
 * are interned: equal ones have the same number.
 *
 * Frame FRAME_UNKNOWN is for texts inside a rule whose callers are not known; a state from there has
 * `returned` set where that rule may have ended. */
#pragma once

#include "text/array_pool.h"
#include "text/constrain/nfa.h"

/* A local state in a frame. */
struct automaton_item {
    uint32_t local, frame;
};

#define AUTOMATON_DEAD      0u         /* the state and the local state from which nothing is allowed */
#define AUTOMATON_NOT_KNOWN UINT32_MAX /* in tables: not computed yet */

struct automaton {
    struct nfa nfa;
    struct array_pool locals, frames, states;
    uint32_t *local_next; /* [locals][classes] */
    uint32_t *state_next; /* [states][classes] */
    struct local_info *local_info;
    struct state_info *state_info;
    uint32_t *rule_local;  /* [rules]: local state at the start of each */
    uint32_t *frame_state; /* [frames]: state after a return from the frame */
    struct automaton_item *item;
    size_t n_items, items_cap; /* states' items, calls included */
    size_t local_next_cap, state_next_cap, local_info_cap, state_info_cap, frame_state_cap;
    struct automaton_scratch *scratch;
    size_t work, most_work; /* time spent, which callers set to 0, and the longest until then */
    bool failed; /* out of memory, too large, or too slow: all states are dead from then on */
    struct err why;
};

/* Takes over `nfa`. */
int automaton_open(struct automaton *automaton, struct nfa *nfa, struct err *err) MUST_USE;
void automaton_close(struct automaton *automaton);

/* Grows an array to hold `count` elements, of which new ones are zero; false: the automaton has failed. */
bool automaton_hold(struct automaton *automaton, void *array, size_t *cap, size_t count, size_t size);
#define HOLD(a, array, cap, count) automaton_hold(a, &(array), &(cap), count, sizeof *(array))

/* The state before the first byte. */
uint32_t automaton_start(struct automaton *automaton);

/* The state of a text inside a rule whose callers are not known, which has reached `local`. */
uint32_t automaton_inside(struct automaton *automaton, uint32_t local);

/* The state in which a rule that was called in `frame` has just ended. */
uint32_t automaton_return(struct automaton *automaton, uint32_t frame);

/* Computes what automaton_step() looks up. */
uint32_t automaton_compute_step(struct automaton *automaton, uint32_t state, uint8_t cls);

/* The state after a byte. */
static inline uint32_t automaton_step(struct automaton *a, uint32_t state, uint8_t byte)
{
    const uint8_t cls = a->nfa.cls[byte];
    const uint32_t next = a->state_next[state * a->nfa.classes + cls];
    return next == AUTOMATON_NOT_KNOWN ? automaton_compute_step(a, state, cls) : next;
}

/* True if the text may end in this state. */
bool automaton_accepts(const struct automaton *automaton, uint32_t state);

/* True if the rule whose callers are not known may have ended. */
bool automaton_returned(const struct automaton *automaton, uint32_t state);

/* The items of a state, without those of rules that it calls: *n of them, valid until the next call. */
const struct automaton_item *automaton_items(const struct automaton *automaton, uint32_t state,
                                             size_t *n);

/* Bytes of memory in use. */
size_t automaton_bytes(const struct automaton *automaton);

/* True if it is time to forget states. */
bool automaton_is_full(const struct automaton *automaton);

/* Forgets all states, local states and frames but those of state[0..n), which get new numbers. */
int automaton_collect(struct automaton *automaton, uint32_t **state, size_t n,
                      struct err *err) MUST_USE;

struct local_info {
    bool final;              /* the rule may end here */
    bool calls_known;        /* the calls below were computed */
    uint32_t calls, n_calls; /* index in scratch.calls */
};

struct state_info {
    uint32_t flags;
    uint32_t items, n_kernel, n_items; /* index in automaton.item; those after n_kernel are called */
};
