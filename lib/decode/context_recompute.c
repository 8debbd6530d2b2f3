/* Context shift with recomputation: when the context is full, the kept tokens (session_kept_tokens())
 * and the newer half of the others are prefilled again, at positions from 0. */
#include "base/clock.h"
#include "decode/loop.h"

size_t loop_processed(const struct loop *loop, const struct slot *slot)
{
    return session_length(loop->session, slot->seq) + slot->n_discarded;
}

/* Prefills tokens from .. to - 1 of the slot's request, in chunks. */
static int prefill_ids(struct loop *loop, const struct slot *slot, size_t from, size_t to,
                       struct err *err)
{
    struct session *session = loop->session;
    for (size_t at = from, n; at < to; at += n) {
        n = size_min(to - at, size_min(session_options(session)->chunk, batch_space(session)));
        batch_add(session, slot->seq, slot->ids->id + at, n);
        if (session_run(session, session_options(session)->threads_prefill, err) < 0)
            return -1;
        loop->stats->prefill_tokens += n;
        loop->stats->prefill_steps++;
    }
    return 0;
}

static int recompute(struct loop *loop, struct slot *slot, struct err *err)
{
    const struct session_options *o = session_options(loop->session);
    const size_t end = slot->ids->len - 1; /* the newest token has no KV entry yet */
    const size_t keep = session_kept_tokens(loop->session, slot->ids->id, slot->ids->len);
    const size_t half = (o->context - keep) / 2;
    const double start = clock_ms();
    session_clear(loop->session, slot->seq);
    slot->n_discarded = end - half - keep;
    if (prefill_ids(loop, slot, 0, keep, err) < 0 || prefill_ids(loop, slot, end - half, end, err) < 0)
        return -1;
    loop->stats->prefill_ms += clock_ms() - start;
    return 0;
}

/* Shifts the slot's context if it is full; not while the newest token has a KV entry already: the
 * next token is then still to be chosen from its logits. */
int context_recompute_slot(struct loop *loop, struct slot *slot, struct err *err)
{
    const struct session *session = loop->session;
    const bool full = session_options(session)->recompute && slot->busy &&
                      session_remaining(session, slot->seq) == 0 &&
                      loop_processed(loop, slot) < slot->ids->len;
    return full ? recompute(loop, slot, err) : 0;
}

int context_recompute(struct loop *loop, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < loop->n_slots && rc == 0; i++)
        rc = context_recompute_slot(loop, &loop->slot[i], err);
    return rc;
}
