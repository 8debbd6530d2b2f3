/* Generated ids -> text that may be shown: whole characters, and nothing of a stop string. */
#ifndef BMC_EMITTER_H
#define BMC_EMITTER_H

#include "text/detok.h"

struct emitter {
    struct detok detok;
    char *const *stop;
    size_t n_stops;
    struct buf text; /* all text so far; ends before the stop string once one was met */
    size_t shown;    /* of it, bytes that may be shown: no stop string can begin in them */
    bool stopped;
};

void emitter_init(struct emitter *emitter, const struct tokenizer *tok, char *const *stop,
                  size_t n_stops);

/* Takes one id. `shown` moves forward; `stopped` says that a stop string was met. */
int emitter_add(struct emitter *emitter, uint32_t id, struct err *err) MUST_USE;

/* What stands before: a character that its ids end within is completed by those that are added. */
int emitter_follow(struct emitter *emitter, const uint32_t *id, size_t n, struct err *err) MUST_USE;

/* No more ids: all of the text may be shown. When the text is `to_go_on`, who goes on shows the character that it ends
 * within. */
int emitter_finish(struct emitter *emitter, bool to_go_on, struct err *err) MUST_USE;
void emitter_release(struct emitter *emitter);

#endif
