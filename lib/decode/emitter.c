/* Generated ids -> text that may be shown. */
#include "decode/emitter.h"

#include <string.h>

void emitter_init(struct emitter *e, const struct tokenizer *tok, char *const *stop, size_t n_stops)
{
    *e = (struct emitter){.stop = stop, .n_stops = n_stops};
    detok_init(&e->detok, tok, false);
    e->detok.started = true; /* the prompt stands before: a leading space is a space */
}

void emitter_release(struct emitter *e) { buf_release(&e->text); }

/* Cuts the text at the first place, at or after `from`, where a stop string begins. */
static void cut_at_stop(struct emitter *e, size_t from)
{
    size_t cut = SIZE_MAX;
    for (size_t i = 0; i < e->n_stops; i++) {
        const size_t len = strlen(e->stop[i]);
        const char *at = len ? memmem(e->text.data + from, e->text.len - from, e->stop[i], len) : NULL;
        if (at)
            cut = size_min(cut, (size_t)(at - e->text.data));
    }
    if (cut == SIZE_MAX)
        return;
    e->stopped = true;
    e->text.len = cut;
    e->text.data[cut] = 0;
}

/* Bytes at the end of the text that may be the beginning of a stop string. */
static size_t held_back(const struct emitter *e)
{
    size_t held = 0;
    for (size_t i = 0; i < e->n_stops; i++) {
        const size_t len = strlen(e->stop[i]);
        size_t n = size_min(len ? len - 1 : 0, e->text.len - e->shown);
        while (n > held && memcmp(e->text.data + e->text.len - n, e->stop[i], n) != 0)
            n--;
        held = size_max(held, n);
    }
    return held;
}

static void advance(struct emitter *e, bool last)
{
    if (!e->text.data)
        return;
    cut_at_stop(e, e->shown);
    e->shown = last || e->stopped ? e->text.len : e->text.len - held_back(e);
}

int emitter_add(struct emitter *e, uint32_t id, struct err *err)
{
    if (detok_add(&e->detok, id, &e->text, err) < 0)
        return -1;
    advance(e, false);
    return 0;
}

int emitter_follow(struct emitter *e, const uint32_t *id, size_t n, struct err *err)
{
    enum { ENOUGH = 16 }; /* a character has 4 bytes at most */
    struct buf shown = {0};
    int rc = 0;
    for (size_t i = n - size_min(n, ENOUGH); i < n && rc == 0; i++)
        rc = detok_add(&e->detok, id[i], &shown, err);
    buf_release(&shown);
    return rc;
}

int emitter_finish(struct emitter *e, bool to_go_on, struct err *err)
{
    if (!e->stopped && !to_go_on && detok_finish(&e->detok, &e->text, err) < 0)
        return -1;
    advance(e, true);
    return 0;
}
