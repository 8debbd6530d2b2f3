/* What steps are made of, and the steps that read prompts. */
#include "base/clock.h"
#include "decode/loop.h"

static size_t vocab(const struct loop *loop) { return loop->session->model->config.vocab; }

/* ---- any step ---- */

int loop_sample(struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    return loop_take(loop, slot, loop_choose(loop, slot, logits), logits, err);
}

/* After a step: log-probabilities of the prompt tokens that follow the slot's rows in it. */
static int score_rows(struct loop *loop, struct slot *slot, struct err *err)
{
    const size_t next = slot->step_from + 1, n = size_min(slot->step_rows, slot->n_prompt - next);
    return logprobs_of_rows(&loop->scratch, slot->step_first, slot->ids->id + next, n,
                            slot->n_prompt_best,
                            slot->prompt_logprobs + next * (slot->n_prompt_best + 1), err);
}

/* Prompts of which log-probabilities are asked for. */
static int score_prompts(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        struct err why;
        if (slot->busy && slot->prompt_logprobs && slot->step_rows &&
            score_rows(loop, slot, &why) < 0 &&
            loop_finish(loop, slot, FINISHED_ERROR, why.text, err) < 0)
            return -1;
        slot->step_rows = 0;
    }
    return 0;
}

/* The logits of the slots' rows, in the order of slots. */
static int make_logits(struct loop *loop, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && loop->slot[i].row != SIZE_MAX)
            loop->logits_row[n++] = loop->slot[i].row;
    return n ? session_logits(loop->session, loop->logits_row, n, loop->logits, err) : 0;
}

int loop_hand_out(struct loop *loop, loop_use *use, struct err *err)
{
    const float *logits = loop->logits;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (!slot->busy || slot->row == SIZE_MAX)
            continue;
        slot->row = SIZE_MAX;
        const int rc = logits_finite(logits, vocab(loop))
                           ? use(loop, slot, logits, err)
                           : loop_finish(loop, slot, FINISHED_ERROR, NO_FINITE_LOGITS, err);
        if (rc < 0)
            return -1;
        logits += vocab(loop);
    }
    return 0;
}

int loop_step(struct loop *loop, int threads, loop_use *use, double *step_ms, struct err *err)
{
    const double start = clock_ms();
    if (session_run(loop->session, threads, err) < 0 || score_prompts(loop, err) < 0 ||
        make_logits(loop, err) < 0)
        return -1;
    const double computed = clock_ms();
    *step_ms += computed - start;
    if (loop_hand_out(loop, use, err) < 0)
        return -1;
    loop->stats->sample_ms += clock_ms() - computed;
    return 0;
}

/* ---- prompts ---- */

/* How far the prompts are: rows of all of them. */
struct prefill {
    const struct gen_callbacks *callbacks;
    size_t before; /* this step */
    size_t done, total;
};

/* As many of the slot's prompt rows behind the first `have` as the step takes. */
static void add_rows(struct loop *loop, struct slot *slot, size_t have, struct prefill *prefill)
{
    struct session *session = loop->session;
    const size_t space = session->options.chunk - size_min(session->n_rows, session->options.chunk);
    const size_t n = size_min(slot->n_prompt - have, space);
    if (n == 0)
        return;
    slot->step_first = session_add(session, slot->seq, slot->ids->id + have, n);
    slot->step_from = have;
    slot->step_rows = n;
    prefill->done += n;
    if (have + n < slot->n_prompt)
        return;
    if (slot->request->n > 0 && loop_left(loop, slot) > 0)
        slot->row = slot->step_first + n - 1;
    else
        slot->silent = true;
}

/* Puts the step together. */
static int add_prompts(struct loop *loop, struct prefill *prefill, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        bool ready;
        if (!slot->busy)
            continue;
        if (loop_share(loop, slot, &ready, err) < 0)
            return -1;
        const size_t have = loop_rows(loop, slot);
        prefill->total += slot->n_prompt;
        prefill->done += size_min(have, slot->n_prompt);
        if (have < slot->n_prompt && ready)
            add_rows(loop, slot, have, prefill);
    }
    return 0;
}

static int end_silent(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy && slot->silent && loop_finish(loop, slot, FINISHED_LENGTH, NULL, err) < 0)
            return -1;
    }
    return 0;
}

static int first_token(struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    return strategy->first ? strategy->first(strategy->arg, loop, slot, logits, err)
                           : loop_sample(loop, slot, logits, err);
}

/* `layers` of `all` layers of the step are done. */
static void tell_prefill(void *arg, size_t layers, size_t all)
{
    const struct prefill *p = arg;
    if (p->callbacks->prefill)
        p->callbacks->prefill(p->callbacks->arg, p->before + (p->done - p->before) * layers / all,
                              p->total);
}

/* The step of prompts, its layers reported. */
static int run_prefill(struct loop *loop, struct prefill *prefill, struct err *err)
{
    struct session *session = loop->session;
    session->forward.layer_done = tell_prefill;
    session->forward.layer_arg = prefill;
    tell_prefill(prefill, 0, 1);
    const int rc =
        loop_step(loop, session->options.threads_prefill, first_token, &loop->stats->prefill_ms, err);
    session->forward.layer_done = NULL;
    return rc;
}

int loop_prefill(struct loop *loop, struct err *err)
{
    const struct session *session = loop->session;
    struct prefill prefill = {.callbacks = loop->callbacks};
    if (add_prompts(loop, &prefill, err) < 0)
        return -1;
    prefill.before = prefill.done - session->n_rows;
    loop->stats->prefill_tokens += session->n_rows;
    loop->stats->prefill_steps++;
    if (run_prefill(loop, &prefill, err) < 0)
        return -1;
    tell_prefill(&prefill, 1, 1);
    return end_silent(loop, err);
}
