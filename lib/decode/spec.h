/* Speculative steps: a drafter proposes, one pass of the target verifies, what is accepted stays in the cache.
 *
 * Candidates stand in the cache's rows behind the committed ones, under an ancestor mask (BMC paper
 * VI-A). The accepted path is moved down in place; the rest is padding again. When fewer rows are free than
 * there would be candidates, there are fewer candidates: the cache never grows for their sake.
 *
 * Greedy: a candidate is accepted when it is the target's own choice, so the output is that of plain decoding.
 * Sampling: by rejection (rejection.h), so the output has the distribution of plain decoding. */
#ifndef BMC_SPEC_H
#define BMC_SPEC_H

#include "decode/drafter.h"
#include "decode/pace.h"
#include "decode/step.h"

enum { SPEC_HISTORY = 65536 }; /* steps whose draft length is remembered */

struct spec_options {
    struct draft_length length; /* of chains */
    size_t tree;                /* candidates of a tree; 0: chains */
    size_t tree_levels;         /* with the root's; 0: chosen by the cost of drafting */
    double accept[TREE_RANKS]; /* for trees: probability that a node's child of that rank is accepted */
    size_t ranks;
    double simulate;   /* a drafted token is accepted with this probability, whatever it is; < 0: off */
    bool always;       /* never pause */
    bool record;       /* a fan of candidates at every step: which rank is accepted */
    verify_rule *rule; /* NULL: verify_choice(); tests put wrong ones here, to see that they notice */
};

struct spec_stats {
    size_t steps;  /* passes of the target over a sequence */
    size_t tokens; /* that they gave */
    size_t drafted, accepted;
    size_t offered_at[TREE_NODES],
        accepted_at[TREE_NODES];             /* by depth: candidates were there; one was accepted */
    size_t record_steps, record[TREE_RANKS]; /* with options.record */
    double draft_ms, verify_ms, compact_ms;
    double attention_ms; /* of verify_ms: the target's attention, without growth of the cache */
    size_t pauses;
    size_t
        ended; /* sequences, with a per-token latency each: the shortest, the longest, and their sum */
    double first_ptl_ms, last_ptl_ms, sum_ptl_ms;
    uint16_t *history; /* draft length of every step of the batch: candidates of a sequence at most */
    size_t n_history;
};

struct spec;

/* `session` is the target's; batch * (1 + spec_most()) rows must fit a step of it. The drafter stays the caller's. */
int spec_open(struct spec **spec, const struct session *session, struct drafter *drafter,
              const struct spec_options *options, struct err *err) MUST_USE;
void spec_close(struct spec *spec);

/* What generate() takes, and what it has done so far. NULL is a run without speculation. */
const struct step_strategy *spec_strategy(const struct spec *spec);
const struct spec_stats *spec_stats(const struct spec *spec);

/* Candidates of a sequence at most. */
size_t spec_most(const struct spec_options *options);

#endif
