/* Plain decoding: one token per sequence and step. */
#include "decode/loop.h"

static int step(void *arg, struct loop *loop, struct err *err)
{
    (void)arg;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (!slot->busy)
            continue;
        slot->row = batch_add(loop->session, slot->seq, &slot->ids->id[slot->ids->len - 1], 1);
        loop->stats->decode_tokens++;
    }
    loop->stats->decode_steps++;
    return loop_step(loop, session_options(loop->session)->threads, loop_append_sampled,
                     &loop->stats->decode_ms, err);
}

const struct step_strategy step_plain = {.name = "plain", .width = 1, .step = step};
