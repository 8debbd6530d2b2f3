/* Replay: forward passes over expected tokens, as over a prompt; tokens are drawn from the logits of each row. */
#include "decode/step_replay.h"

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"

enum { LOGIT_ROWS = 32 }; /* tokens whose logits are computed at a time */

/* A slot's tokens in the current pass. */
struct replayed {
    size_t row, n; /* index in the batch of the first; 0: none */
    size_t drawn;  /* rows from whose logits a token was drawn */
};

struct step_replay {
    struct step_strategy strategy; /* strategy.arg points to this struct */
    struct replayed *slot;         /* [slots] */
    float *logits;                 /* [LOGIT_ROWS][vocab] */
};

/* Draws the next token, and ends the request if it is not the expected one. */
static int draw(void *arg, struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    const struct ids *expected = slot->request->expected, *ids = slot->ids;
    const size_t at = loop_generated(slot), next = ids->len;
    (void)arg;
    if (!logits_finite(logits, session_vocab(loop->session)))
        return loop_finish_damaged(loop, slot, err);
    if (loop_append_sampled(loop, slot, logits, err) < 0)
        return -1;
    return slot->busy && (at >= expected->len || ids->id[next] != expected->id[at])
               ? loop_finish(loop, slot, FINISHED_CANCELLED, NULL, err)
               : 0;
}

/* Adds the slot's newest token and the expected ones after it to the batch, as many as fit. */
static struct replayed add_expected(struct loop *loop, const struct slot *slot)
{
    struct session *session = loop->session;
    const size_t at = loop_generated(slot) - 1, most = session_options(session)->chunk;
    const size_t entries =
        size_min(session_remaining(session, slot->seq), session_unscaled(session, slot->seq));
    const size_t space = size_min(batch_space(session), most - size_min(most, batch_tokens(session)));
    const size_t n = size_min(slot->request->expected->len - at, size_min(space, entries));
    if (!n)
        return (struct replayed){0};
    return (struct replayed){.row = batch_add(session, slot->seq, slot->request->expected->id + at, n),
                             .n = n};
}

/* Draws a token from each of the slot's rows, until the request ends. */
static int draw_all(struct step_replay *replay, struct loop *loop, struct slot *slot,
                    struct replayed *rows, struct err *err)
{
    size_t row[LOGIT_ROWS];
    while (slot->busy && rows->drawn < rows->n) {
        const size_t n = size_min(LOGIT_ROWS, rows->n - rows->drawn);
        for (size_t i = 0; i < n; i++)
            row[i] = rows->row + rows->drawn + i;
        if (session_logits(loop->session, row, n, replay->logits, err) < 0)
            return -1;
        for (size_t i = 0; i < n && slot->busy; i++, rows->drawn++)
            if (draw(NULL, loop, slot, replay->logits + i * session_vocab(loop->session), err) < 0)
                return -1;
    }
    return 0;
}

static int replay_step(void *arg, struct loop *loop, struct err *err)
{
    struct step_replay *replay = arg;
    const struct session_options *o = session_options(loop->session);
    const double start = clock_ms();
    for (size_t i = 0; i < loop->n_slots; i++) {
        replay->slot[i] =
            loop->slot[i].busy ? add_expected(loop, &loop->slot[i]) : (struct replayed){0};
        loop->stats->decode_tokens += replay->slot[i].n;
    }
    loop->stats->decode_steps++;
    if (session_forward(loop->session, o->threads_prefill, err) < 0)
        return -1;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (draw_all(replay, loop, slot, &replay->slot[i], err) < 0)
            return -1;
        if (slot->busy && replay->slot[i].n) /* KV entries of a request that ended are gone already */
            session_commit(loop->session, slot->seq, replay->slot[i].n);
    }
    loop->stats->decode_ms += clock_ms() - start;
    return 0;
}

int step_replay_open(struct step_replay **out, const struct session *session, struct err *err)
{
    struct step_replay *replay = *out = mem_zalloc(1, sizeof *replay);
    if (!replay)
        return err_no_memory(err, "a replay");
    replay->strategy = (struct step_strategy){
        .name = "replay", .width = 1, .first = draw, .step = replay_step, .arg = replay};
    replay->slot = mem_alloc(session_options(session)->batch, sizeof *replay->slot);
    replay->logits = mem_alloc(LOGIT_ROWS, session_vocab(session) * sizeof *replay->logits);
    if (replay->slot && replay->logits)
        return 0;
    step_replay_close(replay);
    *out = NULL;
    return err_no_memory(err, "%d rows of logits", LOGIT_ROWS);
}

void step_replay_close(struct step_replay *replay)
{
    if (!replay)
        return;
    free(replay->slot);
    free(replay->logits);
    free(replay);
}

const struct step_strategy *step_replay_strategy(const struct step_replay *replay)
{
    return &replay->strategy;
}
