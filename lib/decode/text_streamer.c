/* Streaming detokenizer that holds back whatever may be the start of a stop string. */
#include "decode/text_streamer.h"

enum { SHOWN, HIDDEN_FIRST, HIDDEN_REST }; /* bytes of the tail: of the text, or of a special token */

void text_streamer_init(struct text_streamer *s, const struct tokenizer *tok,
                        const struct gen_request *request)
{
    *s = (struct text_streamer){0};
    detok_init(&s->detok, tok, request && request->keep_special);
    s->detok.started = true; /* a leading space is part of the text: it follows the prompt */
    if (!request)
        return;
    s->stop[0] = request->stop;
    s->stop[1] = request->turn_end.stop;
}

void text_streamer_release(struct text_streamer *s)
{
    buf_release(&s->text);
    buf_release(&s->tail);
    buf_release(&s->hidden);
}

/* The i-th stop string, or NULL. */
static const char *stop_at(const struct text_streamer *s, size_t i)
{
    const size_t n_request = s->stop[0].n;
    return i < n_request                  ? s->stop[0].text[i]
           : i - n_request < s->stop[1].n ? s->stop[1].text[i - n_request]
                                          : NULL;
}

/* True if a range of the tail has no part of a special token without the rest. */
static bool is_whole(const struct text_streamer *s, size_t from, size_t to)
{
    return s->hidden.data[from] != HIDDEN_REST &&
           (to == s->hidden.len || s->hidden.data[to] != HIDDEN_REST);
}

/* Offset of the first stop string in the text or the tail, at or after `from`. */
static size_t find_stop(const struct text_streamer *s, const struct buf *text, size_t from)
{
    const char *stop;
    size_t cut = SIZE_MAX;
    for (size_t i = 0; text->data && (stop = stop_at(s, i)); i++) {
        const size_t len = strlen(stop);
        const char *at = text->data + from, *end = text->data + text->len;
        while (len && (at = memmem(at, (size_t)(end - at), stop, len))) {
            const size_t found = (size_t)(at++ - text->data);
            if (text != &s->tail || is_whole(s, found, found + len)) {
                cut = size_min(cut, found);
                break;
            }
        }
    }
    return cut;
}

/* Number of bytes at the end of the text or the tail, at or after `from`, that may be the start of a stop
 * string. */
static size_t held_back(const struct text_streamer *s, const struct buf *text, size_t from)
{
    const char *stop;
    size_t held = 0;
    for (size_t i = 0; (stop = stop_at(s, i)); i++) {
        const size_t len = strlen(stop);
        size_t n = size_min(len ? len - 1 : 0, text->len - from);
        while (n > held && memcmp(text->data + text->len - n, stop, n) != 0)
            n--;
        held = size_max(held, n);
    }
    return held;
}

/* The offset in the text of byte `at` of the tail. */
static size_t in_text(const struct text_streamer *s, size_t at)
{
    size_t n = s->tail_at;
    for (size_t i = 0; i < at; i++)
        n += s->hidden.data[i] == SHOWN;
    return n;
}

/* Drops the first n bytes of the tail. */
static void drop_tail(struct text_streamer *s, size_t n)
{
    s->tail_at = in_text(s, n);
    if (!n)
        return;
    s->tail.len -= n;
    s->hidden.len -= n;
    memmove(s->tail.data, s->tail.data + n, s->tail.len);
    memmove(s->hidden.data, s->hidden.data + n, s->hidden.len);
}

static void advance_ready(struct text_streamer *s, bool last)
{
    const size_t in_tail = find_stop(s, &s->tail, 0), shown = s->ready;
    const size_t cut =
        size_min(find_stop(s, &s->text, shown), in_tail == SIZE_MAX ? SIZE_MAX : in_text(s, in_tail));
    s->stopped = s->stopped || cut != SIZE_MAX;
    if (cut < s->text.len) {
        s->text.len = cut;
        s->text.data[cut] = 0;
    }
    s->ready = s->text.len;
    if (last || s->stopped || !stop_at(s, 0))
        return;
    drop_tail(s, s->tail.len - held_back(s, &s->tail, 0));
    s->ready = size_min(s->text.len - held_back(s, &s->text, shown), s->tail_at);
}

/* Adds the text from `from` on to the tail, or the token that the text leaves out. */
static int add_to_tail(struct text_streamer *s, uint32_t id, size_t from, struct err *err)
{
    const size_t before = s->tail.len;
    const bool hidden = !s->detok.keep_special && tokenizer_is_special(s->detok.tok, id);
    int rc = hidden ? detok_piece(s->detok.tok, id, false, &s->tail, err)
                    : buf_add(&s->tail, buf_text(&s->text) + from, s->text.len - from, err);
    for (size_t i = before; i < s->tail.len && rc == 0; i++) {
        const char kind = !hidden ? SHOWN : i == before ? HIDDEN_FIRST : HIDDEN_REST;
        rc = buf_add(&s->hidden, &kind, 1, err);
    }
    return rc;
}

int text_streamer_add(struct text_streamer *s, uint32_t id, struct err *err)
{
    const size_t before = s->text.len;
    if (detok_add(&s->detok, id, &s->text, err) < 0 ||
        (stop_at(s, 0) && add_to_tail(s, id, before, err) < 0))
        return -1;
    advance_ready(s, false);
    return 0;
}

int text_streamer_resume(struct text_streamer *s, const uint32_t *id, size_t n, struct err *err)
{
    enum { CHARACTER = 4 }; /* bytes of the longest UTF-8 character; tokens may have none */
    AUTO(buf_release) struct buf bytes = {0};
    size_t from = n;
    int rc = 0;
    while (from > 0 && bytes.len < CHARACTER && rc == 0)
        if (!tokenizer_is_special(s->detok.tok, id[--from]) || s->detok.keep_special)
            rc = tokenizer_piece(s->detok.tok, id[from], &bytes, err);
    for (; from < n && rc == 0; from++)
        rc = detok_add(&s->detok, id[from], &bytes, err);
    return rc;
}

int text_streamer_finish(struct text_streamer *s, bool hold_partial_utf8, struct err *err)
{
    if (!s->stopped && !hold_partial_utf8 && detok_finish(&s->detok, &s->text, err) < 0)
        return -1;
    advance_ready(s, true);
    return 0;
}
