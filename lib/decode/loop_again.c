/* A context that is full begins anew: the text's last part is read again as a prompt. What is kept of its beginning is read
 * before that, and positions are those of a text of that length. */
#include "base/clock.h"
#include "decode/loop.h"

size_t loop_rows(const struct loop *loop, const struct slot *slot)
{
    return session_rows(loop->session, slot->seq) + slot->dropped;
}

/* The ids [from, to), of which the last one's logits are not asked for. */
static int read_ids(struct loop *loop, const struct slot *slot, size_t from, size_t to, struct err *err)
{
    struct session *session = loop->session;
    for (size_t at = from, n; at < to; at += n) {
        n = size_min(to - at, size_min(session->options.chunk, session_space(session)));
        session_add(session, slot->seq, slot->ids->id + at, n);
        if (session_run(session, session->options.threads_prefill, err) < 0)
            return -1;
        loop->stats->prefill_tokens += n;
        loop->stats->prefill_steps++;
    }
    return 0;
}

static int read_again(struct loop *loop, struct slot *slot, struct err *err)
{
    const struct session_options *o = &loop->session->options;
    const size_t end = slot->ids->len - 1; /* the newest has no row yet */
    const size_t half = (o->context - o->keep) / 2;
    const double start = clock_ms();
    session_drop(loop->session, slot->seq);
    slot->dropped = end - half - o->keep;
    if (read_ids(loop, slot, 0, o->keep, err) < 0 || read_ids(loop, slot, end - half, end, err) < 0)
        return -1;
    loop->stats->prefill_ms += clock_ms() - start;
    return 0;
}

/* Where the newest has a row already its logits are on their way: it waits for them. */
int loop_make_room_for(struct loop *loop, struct slot *slot, struct err *err)
{
    const struct session *session = loop->session;
    const bool full = session->options.recompute && slot->busy &&
                      session_left(session, slot->seq) == 0 && loop_rows(loop, slot) < slot->ids->len;
    return full ? read_again(loop, slot, err) : 0;
}

int loop_make_room(struct loop *loop, struct err *err)
{
    int rc = 0;
    for (size_t i = 0; i < loop->n_slots && rc == 0; i++)
        rc = loop_make_room_for(loop, &loop->slot[i], err);
    return rc;
}
