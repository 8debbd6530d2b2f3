/* How tokens come behind a prompt: one token of each sequence a step, speculation, and what else there may be.
 *
 * A strategy is a file (step_NAME.c; spec.c speculates) with a struct step_strategy, which generate() takes. Its functions
 * work on the inside of the loop, loop.h. To add one, write that file, and give a program an option that opens it. */
#ifndef BMC_STEP_H
#define BMC_STEP_H

#include "base/err.h"

struct loop;
struct session;
struct slot;

struct step_strategy {
    const char *name;
    /* Sequences of the cache that each place in the batch has: `width` in a row, of which the first, slot->seq, gets the
     * prompt's rows. The strategy may use the others, and make another one that begins with those rows slot->seq; all are
     * dropped when the request ends. */
    size_t width;
    /* The prompt's last token has given logits, finite ones, for the first token. NULL: the one that the sampler chooses is
     * taken. */
    int (*first)(void *arg, struct loop *loop, struct slot *slot, const float *logits, struct err *err);
    /* One step of all slots that are busy: their prompts are in the cache, and first() was there. Tokens are taken by
     * loop_take(), now or when it is settled which ones they are; the newest one is not in the cache yet. It ends the
     * request where that ends: slot->busy is false then. What was done goes into loop->stats. */
    int (*step)(void *arg, struct loop *loop, struct err *err);
    /* The run ends early, with the slot's sequence as it is, maybe before first(): takes what was not taken yet, so that no
     * rows of the cache are left without their tokens. NULL: all is taken always. */
    int (*settle)(void *arg, struct loop *loop, struct slot *slot, struct err *err);
    /* Another session whose cache has the texts, too, each in the sequence of its place's number: requests wait until there is
     * room in that, as well. NULL: there is none. */
    struct session *beside;
    void *arg;
};

/* One token of each sequence. */
extern const struct step_strategy step_plain;

#endif
