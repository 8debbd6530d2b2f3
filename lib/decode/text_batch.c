/* Texts in the slots of a batch: starting them, and running passes over their tokens. */
#include "decode/text_batch.h"

#include "base/clock.h"
#include "base/mem.h"

int text_once_next(void *arg, bool wait, struct text_ids *text, struct err *err)
{
    struct text_once *once = arg;
    (void)wait;
    (void)err;
    *text = once->text;
    if (once->given)
        return GEN_END;
    once->given = true;
    return GEN_REQUEST;
}

static size_t texts_in_flight(const struct text_batch *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n_slots; i++)
        n += b->slot[i].busy;
    return n;
}

void text_batch_free_slot(struct text_batch *b, struct text_slot *slot)
{
    slot->busy = false;
    session_clear(b->session, slot->seq);
}

int text_batch_check_ids(const struct text_batch *b, const struct text_ids *text, struct err *err)
{
    const size_t vocab = session_vocab(b->session);
    for (size_t i = 0; i < text->n; i++)
        if (text->id[i] >= vocab)
            return err_code(err, ERR_INVALID, "id %u is outside the vocabulary of %zu", text->id[i],
                            vocab);
    return 0;
}

/* Other threads may set the flags. */
static bool is_set(const volatile sig_atomic_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED);
}

/* Starts texts in free slots; waits for input only if no text is in flight. */
static int fill_slots(struct text_batch *b, struct err *err)
{
    for (struct text_slot *slot = b->slot; slot < b->slot + b->n_slots; slot++)
        while (!slot->busy && !b->input_ended && !is_set(b->interrupted)) {
            struct text_ids text;
            const int got = b->next(b->arg, !texts_in_flight(b), &text, err);
            if (got < 0)
                return -1;
            if (got == GEN_LATER)
                return 0;
            b->input_ended = got == GEN_END;
            if (got != GEN_REQUEST)
                continue;
            *slot = (struct text_slot){.busy = true, .seq = slot->seq, .text = text};
            if (b->begin(b, slot, err) < 0)
                return -1;
        }
    return 0;
}

/* Why the slot's text ends without a result; NULL: it goes on. */
static const struct err *end_of(const struct text_batch *b, const struct text_slot *slot)
{
    static const struct err cancelled = {
        "the request took longer than --time-limit allows, or was cancelled", ERR_BUSY};
    const volatile sig_atomic_t *is_cancelled = slot->text.cancelled;
    return is_set(b->interrupted)                 ? &err_interrupted
           : is_cancelled && is_set(is_cancelled) ? &cancelled
                                                  : NULL;
}

/* Runs a pass over tokens of texts in flight, at most a prefill chunk. */
static int run_pass(struct text_batch *b, struct err *err)
{
    const struct session_options *o = session_options(b->session);
    const double start = clock_ms();
    size_t rows = 0;
    for (size_t k = 0; k < b->n_slots; k++) {
        struct text_slot *slot = &b->slot[(b->first_slot + k) % b->n_slots];
        slot->n_rows = slot->busy && rows < o->chunk ? b->add(b, slot, o->chunk - rows) : 0;
        rows += slot->n_rows;
    }
    b->first_slot = (b->first_slot + 1) % b->n_slots;
    if (session_run(b->session, o->threads_prefill, err) < 0)
        return -1;
    for (struct text_slot *slot = b->slot; slot < b->slot + b->n_slots; slot++)
        if (slot->n_rows && b->passed(b, slot, err) < 0)
            return -1;
    *b->tokens += rows;
    *b->ms += clock_ms() - start;
    return 0;
}

static int run_all(struct text_batch *b, struct err *err)
{
    for (;;) {
        if (fill_slots(b, err) < 0)
            return -1;
        if (!texts_in_flight(b))
            return 0;
        for (struct text_slot *slot = b->slot; slot < b->slot + b->n_slots; slot++) {
            const struct err *why = slot->busy ? end_of(b, slot) : NULL;
            if (why && b->finish(b, slot, why, err) < 0)
                return -1;
        }
        if (texts_in_flight(b) && run_pass(b, err) < 0)
            return -1;
    }
}

int text_batch_run(struct text_batch *b, struct err *err)
{
    b->n_slots = session_options(b->session)->batch;
    b->slot = mem_zalloc(b->n_slots, sizeof *b->slot);
    if (!b->slot)
        return err_no_memory(err, "%zu texts", b->n_slots);
    for (size_t i = 0; i < b->n_slots; i++)
        b->slot[i].seq = i;
    const int rc = run_all(b, err);
    free(b->slot);
    return rc;
}
