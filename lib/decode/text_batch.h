/* Runs texts through a session, as many at a time as its batch has sequences: scoring and embedding. */
#pragma once

#include <signal.h>

#include "decode/gen_types.h"
#include "decode/session.h"

/* A text as token ids. The caller owns these; they must stay valid until its result. */
struct text_ids {
    const uint32_t *id;
    size_t n;
    void *user;
    const volatile sig_atomic_t *cancelled; /* NULL, or once not 0, the text ends without a result */
    size_t second; /* of a pair: index of the second text's first token; 0: it is none */
};

/* Sets *text to the next text; returns the same values as gen_callbacks.next(). */
typedef int text_next(void *arg, bool wait, struct text_ids *text, struct err *err);

/* A text_next() for a single text, whose `arg` begins with this struct. */
struct text_once {
    struct text_ids text;
    bool given;
};
text_next text_once_next;

/* A slot of the batch, and the text in it while `busy`. */
struct text_slot {
    bool busy;
    size_t seq; /* KV cache sequence of the slot, and its index */
    struct text_ids text;
    size_t at;                /* tokens processed */
    size_t first_row, n_rows; /* its tokens in the last pass: batch index of the first; number */
};

/* Callers set the members up to `ms`. */
struct text_batch {
    struct session *session;
    const volatile sig_atomic_t *interrupted; /* once not 0, texts in flight end with err_interrupted */
    text_next *next;
    void *arg; /* of next() */
    /* Starts the slot's text: one that cannot be served is finished with an error at once. */
    int (*begin)(struct text_batch *batch, struct text_slot *slot, struct err *err);
    /* Adds the next n_rows tokens of a text, from `at` on, to the batch, of `left` ones that may be in this pass;
     * returns their number. */
    size_t (*add)(struct text_batch *batch, struct text_slot *slot, size_t left);
    /* After a pass with tokens of the slot. */
    int (*passed)(struct text_batch *batch, struct text_slot *slot, struct err *err);
    /* Delivers the result of a text, or the reason why there is none, after text_batch_free_slot(). */
    int (*finish)(struct text_batch *batch, struct text_slot *slot, const struct err *error,
                  struct err *err);
    size_t *tokens; /* counts tokens of all passes, */
    double *ms;     /* and their time */
    struct text_slot *slot;
    size_t n_slots;
    size_t first_slot; /* the slot served first in the next pass: round robin */
    bool input_ended;
};

/* Runs until there are no more texts, or until *interrupted is not 0. */
int text_batch_run(struct text_batch *batch, struct err *err) MUST_USE;

/* Frees the slot and its cache sequence. */
void text_batch_free_slot(struct text_batch *batch, struct text_slot *slot);

/* Fails if an id of the text is outside the vocabulary. */
int text_batch_check_ids(const struct text_batch *batch, const struct text_ids *text,
                         struct err *err) MUST_USE;
