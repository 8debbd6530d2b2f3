/* Streaming detokenizer: turns generated ids into text that may be shown at once, in whole UTF-8
 * characters and without any part of a stop string. */
#pragma once

#include "decode/gen_types.h"
#include "text/tokenizer/detok.h"

struct text_streamer {
    struct detok detok;
    struct stop_strings stop[2]; /* the request's, and those that end the turn */
    struct buf text;             /* all text so far; ends before the stop string once one was found */
    size_t ready;                /* leading bytes that may be shown: no stop string begins in them */
    bool stopped;
    /* The end of the text, from byte tail_at of it on, with special tokens that it leaves out: stop strings
     * may name those. `hidden` says for each byte of the tail whether it is one of theirs. */
    struct buf tail, hidden;
    size_t tail_at;
};

/* For the text of a request, which is borrowed; NULL: of ids alone, without stop strings. */
void text_streamer_init(struct text_streamer *s, const struct tokenizer *tok,
                        const struct gen_request *request);

/* Adds one id and advances `ready`; sets `stopped` if a stop string was found. */
int text_streamer_add(struct text_streamer *s, uint32_t id, struct err *err) MUST_USE;

/* Feeds the prompt's ids without output, before text_streamer_add(): the prompt may end in an
 * incomplete UTF-8 character, which the first generated tokens then complete. */
int text_streamer_resume(struct text_streamer *s, const uint32_t *id, size_t n,
                         struct err *err) MUST_USE;

/* Ends the text: all of it is ready. With `hold_partial_utf8` an incomplete last character is left
 * out, so that a continuation can complete it. */
int text_streamer_finish(struct text_streamer *s, bool hold_partial_utf8, struct err *err) MUST_USE;
void text_streamer_release(struct text_streamer *s);
