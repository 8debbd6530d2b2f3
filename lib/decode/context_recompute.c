/* Sequences that are computed again. Context shift with recomputation: when the context is full, the kept
 * tokens (session_kept_tokens()) and the newer half of the others are prefilled again, at positions from 0.
 * A sequence that outgrows the original context of dynamic or LongRoPE scaling: all of its tokens are
 * prefilled again with the rotary frequencies of longer ones, as transformers does. */
#include "base/clock.h"
#include "decode/loop.h"

size_t loop_planned(const struct loop *loop, const struct slot *slot)
{
    return slot->n_prompt + size_min(slot->request->n, session_options(loop->session)->context);
}

int loop_feed(struct loop *loop, size_t seq, const uint32_t *id, size_t n, struct err *err)
{
    struct session *session = loop->session;
    for (size_t at = 0, count; at < n; at += count) {
        count = size_min(n - at, size_min(session_options(session)->chunk, batch_space(session)));
        batch_add(session, seq, id + at, count);
        session_pass(session)->work = &loop->stats->prefill;
        const int rc = session_run(session, session_options(session)->threads_prefill, err);
        session_pass(session)->work = &loop->stats->decode;
        if (rc < 0)
            return -1;
        loop->stats->prefill_tokens += count;
        loop->stats->prefill_steps++;
    }
    return 0;
}

/* Prefills the next n tokens of the slot's sequence, and converts it where it is to be. */
static int feed_slot(struct loop *loop, struct slot *slot, const uint32_t *id, size_t n,
                     struct err *err)
{
    for (size_t at = 0, count; at < n; at += count) {
        count = size_min(n - at, pressure_left(loop, slot));
        if (loop_feed(loop, slot->seq, id + at, count, err) < 0 ||
            pressure_convert(loop, slot, err) < 0)
            return -1;
    }
    return 0;
}

/* Computes the slot's sequence again: its first `keep` tokens, then those behind n_discarded others but for
 * the newest, which has no KV entry yet. */
static int recompute_sequence(struct loop *loop, struct slot *slot, size_t keep, size_t n_discarded,
                              struct err *err)
{
    const struct ids *ids = slot->ids;
    const size_t from = keep + n_discarded, end = ids->len - 1;
    const double start = clock_ms();
    session_clear(loop->session, slot->seq);
    session_begin(loop->session, slot->seq, ids->len - n_discarded, loop_planned(loop, slot));
    slot->n_discarded = n_discarded;
    if (feed_slot(loop, slot, ids->id, keep, err) < 0 ||
        feed_slot(loop, slot, ids->id + from, end - from, err) < 0)
        return -1;
    loop->stats->prefill_ms += clock_ms() - start;
    return 0;
}

int loop_compute_again(struct loop *loop, struct slot *slot, struct err *err)
{
    const size_t keep = session_kept_tokens(loop->session, slot->ids->id, slot->ids->len);
    return recompute_sequence(loop, slot, size_min(keep, slot->ids->len - 1), slot->n_discarded, err);
}

/* Not while the newest token has a KV entry already: the next token is then still to be chosen from its
 * logits. */
int context_recompute_slot(struct loop *loop, struct slot *slot, struct err *err)
{
    const struct session *session = loop->session;
    const struct session_options *o = session_options(session);
    if (!slot->busy || loop_processed(loop, slot) >= slot->ids->len)
        return 0;
    const size_t keep = session_kept_tokens(session, slot->ids->id, slot->ids->len);
    const bool full = o->recompute && session_remaining(session, slot->seq) == 0;
    if (!full && session_unscaled(session, slot->seq) > 0)
        return 0;
    pressure_restart(loop, slot, loop_processed(loop, slot));
    if (full)
        return recompute_sequence(loop, slot, keep, slot->ids->len - 1 - (o->context - keep) / 2 - keep,
                                  err);
    return loop_compute_again(loop, slot, err);
}

int context_recompute(struct loop *loop, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < loop->n_slots && rc == 0; i++)
        rc = context_recompute_slot(loop, &loop->slot[i], err);
    return rc;
}
