/* Plain steps: the newest token of every sequence in, one more out. */
#include "decode/loop.h"

static int step(void *arg, struct loop *loop, struct err *err)
{
    (void)arg;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (!slot->busy)
            continue;
        slot->row = session_add(loop->session, slot->seq, &slot->ids->id[slot->ids->len - 1], 1);
        loop->stats->decode_tokens++;
    }
    loop->stats->decode_steps++;
    return loop_step(loop, loop->session->options.threads, loop_sample, &loop->stats->decode_ms, err);
}

const struct step_strategy step_plain = {.name = "plain", .width = 1, .step = step};
