/* Conversions of sequences to a smaller type under memory pressure: each at an exact number of tokens, so that a log of them
 * can be replayed. */
#include "decode/loop.h"

size_t loop_processed(const struct loop *loop, const struct slot *slot)
{
    return session_length(loop->session, slot->seq) + slot->n_discarded;
}

size_t pressure_left(const struct loop *loop, const struct slot *slot)
{
    return slot->convert_at == SIZE_MAX ? SIZE_MAX : slot->convert_at - loop_processed(loop, slot);
}

void pressure_restart(struct loop *loop, struct slot *slot, size_t processed)
{
    struct pressure *p = pressure_of(loop);
    slot->converted_at = SIZE_MAX;
    slot->convert_at = p ? pressure_log_next(&p->log, slot->number, processed) : SIZE_MAX;
}

void pressure_begin(struct loop *loop, struct slot *slot)
{
    struct pressure *p = pressure_of(loop);
    slot->number = p ? p->n_begun++ : 0;
    pressure_restart(loop, slot, 0);
}

int pressure_convert(struct loop *loop, struct slot *slot, struct err *err)
{
    struct pressure *p = pressure_of(loop);
    if (slot->convert_at != loop_processed(loop, slot))
        return 0;
    if (kv_convert(session_kv(loop->session), slot->seq, err) < 0) {
        const bool may_be_later = slot->converted_at == SIZE_MAX && !p->log.n_events;
        slot->convert_at = may_be_later ? SIZE_MAX : slot->convert_at;
        return may_be_later ? 0 : -1;
    }
    if (slot->converted_at == SIZE_MAX) {
        loop->stats->converted++;
        if (pressure_log_add(&p->log, "convert", slot->number, slot->convert_at, err) < 0)
            return -1;
    }
    slot->converted_at = slot->convert_at;
    slot->convert_at = SIZE_MAX;
    return 0;
}
