/* Generated ids -> text that may be shown: whole characters, and nothing of a stop string. */
#ifndef BMC_EMITTER_H
#define BMC_EMITTER_H

#include "text/tokenizer.h"

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

/* No more ids: all of the text may be shown. */
int emitter_finish(struct emitter *emitter, struct err *err) MUST_USE;
void emitter_release(struct emitter *emitter);

#endif
