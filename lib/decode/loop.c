/* The generation loop. */
#include "decode/loop.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* ---- requests ---- */

static bool any_busy(const struct loop *loop)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy)
            return true;
    return false;
}

/* Requests into free places, as long as there are any at hand; waits only when there is nothing else to do. */
static int fill_slots(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        /* A request that ends at once leaves the place free for the next. */
        while (!loop->slot[i].busy && !loop->input_ended && !loop->failed && !*loop->interrupted) {
            const struct gen_request *request;
            const int got = loop->callbacks->next(loop->callbacks->arg, !any_busy(loop), &request, err);
            if (got < 0)
                return -1;
            if (got == GEN_LATER)
                return 0;
            loop->input_ended = got == GEN_END;
            if (got == GEN_REQUEST && loop_begin(loop, &loop->slot[i], request, err) < 0)
                return -1;
        }
    }
    return 0;
}

static int end_slot(struct loop *loop, struct slot *slot, const char *why, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    if (strategy->settle && strategy->settle(strategy->arg, loop, slot, err) < 0)
        return -1;
    return slot->busy ? loop_finish(loop, slot, FINISHED_ERROR, why, err) : 0;
}

/* Sequences under way go out with what they have. */
static int end_early(struct loop *loop, struct err *err)
{
    char text[sizeof loop->failure.text + 32];
    const char *why = loop->failed ? text : loop_interrupted;
    if (loop->failed)
        snprintf(text, sizeof text, "the run ended: %s", loop->failure.text);
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && end_slot(loop, &loop->slot[i], why, err) < 0)
            return -1;
    if (!loop->failed)
        return 0;
    *err = loop->failure;
    return -1;
}

/* ---- the loop ---- */

enum work { WORK_NONE, WORK_PREFILL, WORK_DECODE };

static enum work find_work(const struct loop *loop)
{
    enum work work = WORK_NONE;
    for (size_t i = 0; i < loop->n_slots; i++) {
        const struct slot *slot = &loop->slot[i];
        if (!slot->busy)
            continue;
        if (session_rows(loop->session, slot->seq) < slot->n_prompt)
            return WORK_PREFILL;
        work = WORK_DECODE;
    }
    return work;
}

static int do_work(struct loop *loop, enum work work, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    return work == WORK_PREFILL ? loop_prefill(loop, err) : strategy->step(strategy->arg, loop, err);
}

int loop_run(struct loop *loop, struct err *err)
{
    for (;;) {
        if (fill_slots(loop, err) < 0)
            return -1;
        if (loop->failed || *loop->interrupted)
            return end_early(loop, err);
        const enum work work = find_work(loop);
        if (work == WORK_NONE)
            return 0;
        if (do_work(loop, work, err) < 0)
            return -1;
    }
}

struct hash loop_hash(const struct loop *loop) { return gen_run_hash(loop->line_hash, loop->n_lines); }

/* ---- opening ---- */

static int alloc_buffers(struct loop *loop, struct err *err)
{
    const size_t n = loop->n_slots, vocab = loop->session->model->config.vocab;
    loop->slot = mem_zalloc(n, sizeof *loop->slot);
    loop->logits_row = mem_alloc(n, sizeof *loop->logits_row);
    loop->logits = mem_alloc(n * vocab, sizeof *loop->logits);
    bool ok = loop->slot && loop->logits_row && loop->logits;
    for (size_t i = 0; ok && i < n; i++) {
        loop->slot[i].last_logits = mem_alloc(vocab, sizeof(float));
        ok = loop->slot[i].last_logits != NULL;
    }
    return ok ? 0 : err_set(err, "out of memory for logits of %zu sequences", n);
}

int loop_open(struct loop *loop, struct err *err)
{
    const struct session *session = loop->session;
    loop->scratch.session = loop->session;
    loop->n_slots = session->options.batch / loop->strategy->width;
    if (loop->n_slots == 0)
        return err_set(err, "%s steps take %zu sequences for each request, the batch has %zu: raise it",
                       loop->strategy->name, loop->strategy->width, session->options.batch);
    if (sampler_open(&loop->sampler, loop->sampling, session->model->config.vocab, err) < 0)
        return -1;
    return alloc_buffers(loop, err);
}

void loop_close(struct loop *loop)
{
    for (size_t i = 0; loop->slot && i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy)
            emitter_release(&slot->emitter);
        free(slot->logprobs);
        free(slot->prompt_logprobs);
        free(slot->last_logits);
        ids_release(&slot->before);
    }
    free(loop->slot);
    free(loop->logits_row);
    free(loop->logits);
    free(loop->line_hash);
    logprobs_release(&loop->scratch);
    sampler_close(&loop->sampler);
    *loop = (struct loop){0};
}
