/* Sets that the automaton is made of, while they are built. */
#ifndef BMC_AUTOMATON_SETS_H
#define BMC_AUTOMATON_SETS_H

#include "text/constrain/automaton.h"

/* A call of a rule: where to go on afterwards. */
struct rule_call {
    uint32_t rank, rule;
    struct automaton_item to;
};

struct local_info {
    bool final;              /* the rule may end here */
    bool calls_known;        /* the calls below were computed */
    uint32_t calls, n_calls; /* index in scratch.calls */
};

enum { STATE_ACCEPTS = 1, STATE_RETURNED = 2 };

struct state_info {
    uint32_t flags;
    uint32_t items, n_kernel, n_items; /* index in automaton.item; those after n_kernel are called */
};

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

/* Sets a->failed with a sentence. */
void automaton_fail(struct automaton *a, const struct err *err);
void automaton_too_large(struct automaton *a);

/* Makes the scratch items a state, unless it is one: interns an array of the flags, then the items. */
uint32_t automaton_intern_state(struct automaton *a, uint32_t flags);

/* Interns scratch.set as a local state. */
uint32_t local_intern(struct automaton *a);

/* Starts a set of NFA states; adds a state and those reached from it without reading. */
void local_begin(struct automaton *a);
void local_add(struct automaton *a, uint32_t nfa_state);

/* The local state after a byte of a class; the calls of a local state; the union of two. */
uint32_t local_step(struct automaton *a, uint32_t local, uint8_t cls);
const struct local_call *local_calls(struct automaton *a, uint32_t local, size_t *n);
uint32_t local_union(struct automaton *a, uint32_t x, uint32_t y);

#endif
