/* Streaming detokenizer that holds back whatever may be the start of a stop string. */
#include "decode/text_streamer.h"

#include <string.h>

void text_streamer_init(struct text_streamer *s, const struct tokenizer *tok, char *const *stop,
                        size_t n_stops)
{
    *s = (struct text_streamer){.stop = stop, .n_stops = n_stops};
    detok_init(&s->detok, tok, false);
    s->detok.started = true; /* a leading space is part of the text: it follows the prompt */
}

void text_streamer_release(struct text_streamer *s) { buf_release(&s->text); }

/* Truncates the text at the first stop string at or after `from`. */
static void cut_at_stop(struct text_streamer *s, size_t from)
{
    size_t cut = SIZE_MAX;
    for (size_t i = 0; i < s->n_stops; i++) {
        const size_t len = strlen(s->stop[i]);
        const char *at = len ? memmem(s->text.data + from, s->text.len - from, s->stop[i], len) : NULL;
        if (at)
            cut = size_min(cut, (size_t)(at - s->text.data));
    }
    if (cut == SIZE_MAX)
        return;
    s->stopped = true;
    s->text.len = cut;
    s->text.data[cut] = 0;
}

/* Number of bytes at the end of the text that may be the start of a stop string. */
static size_t held_back(const struct text_streamer *s)
{
    size_t held = 0;
    for (size_t i = 0; i < s->n_stops; i++) {
        const size_t len = strlen(s->stop[i]);
        size_t n = size_min(len ? len - 1 : 0, s->text.len - s->ready);
        while (n > held && memcmp(s->text.data + s->text.len - n, s->stop[i], n) != 0)
            n--;
        held = size_max(held, n);
    }
    return held;
}

static void advance(struct text_streamer *s, bool last)
{
    if (!s->text.data)
        return;
    cut_at_stop(s, s->ready);
    s->ready = last || s->stopped ? s->text.len : s->text.len - held_back(s);
}

int text_streamer_add(struct text_streamer *s, uint32_t id, struct err *err)
{
    if (detok_add(&s->detok, id, &s->text, err) < 0)
        return -1;
    advance(s, false);
    return 0;
}

int text_streamer_resume(struct text_streamer *s, const uint32_t *id, size_t n, struct err *err)
{
    enum { ENOUGH = 16 }; /* tokens; a UTF-8 character has at most 4 bytes */
    struct buf shown = {0};
    int rc = 0;
    for (size_t i = n - size_min(n, ENOUGH); i < n && rc == 0; i++)
        rc = detok_add(&s->detok, id[i], &shown, err);
    buf_release(&shown);
    return rc;
}

int text_streamer_finish(struct text_streamer *s, bool hold_partial_utf8, struct err *err)
{
    if (!s->stopped && !hold_partial_utf8 && detok_finish(&s->detok, &s->text, err) < 0)
        return -1;
    advance(s, true);
    return 0;
}
