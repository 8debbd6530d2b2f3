/* How tokens come behind a prompt: one token of each sequence a step, speculation, and what else there may be.
 *
 * A strategy is a file (step_NAME.c; spec.c speculates) with a struct step_strategy, which generate() takes. Its functions
 * work on the inside of the loop, loop.h. To add one, write that file, and give a program an option that opens it. */
#ifndef BMC_STEP_H
#define BMC_STEP_H

#include "base/err.h"

struct loop;
struct slot;

struct step_strategy {
    const char *name;
    /* Sequences of the cache that each place in the batch has: `width` in a row, of which the first, slot->seq, gets the
     * prompt's rows. The strategy may use the others, and make another one of them slot->seq; all are dropped when the
     * request ends. */
    size_t width;
    /* The prompt's last token has given logits, finite ones: the first token is to be taken, by loop_take(). NULL: it
     * is what the sampler chooses. */
    int (*first)(void *arg, struct loop *loop, struct slot *slot, const float *logits, struct err *err);
    /* One step of all slots that are busy: their prompts are in the cache, and each has a token at least, of which the newest
     * is not in the cache yet. Tokens are taken by loop_take(), which ends sequences; what time was spent on goes into
     * loop->stats. */
    int (*step)(void *arg, struct loop *loop, struct err *err);
    void *arg;
};

/* One token of each sequence. */
extern const struct step_strategy step_plain;

#endif
