/* The generation loop. */
#include "decode/loop.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"

/* ---- requests ---- */

static size_t count_busy(const struct loop *loop)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        n += loop->slot[i].busy;
    return n;
}

/* The one that waits for memory, or the next one that comes. */
static int next_request(struct loop *loop, const struct gen_request **request, struct err *err)
{
    const struct gen_callbacks *cb = loop->callbacks;
    *request = loop->held;
    loop->held = NULL;
    if (*request)
        return GEN_REQUEST;
    const int got = loop->input_ended ? GEN_END : cb->next(cb->arg, !count_busy(loop), request, err);
    loop->input_ended = loop->input_ended || got == GEN_END;
    return got;
}

/* Requests into a free place: one that ends at once leaves it free for the next. GEN_LATER: there is none that could
 * begin now. */
static int fill_slot(struct loop *loop, struct slot *slot, struct err *err)
{
    int got = GEN_REQUEST;
    while (!slot->busy && got == GEN_REQUEST && !loop->failed && !*loop->interrupted) {
        const struct gen_request *request;
        got = next_request(loop, &request, err);
        if (got == GEN_REQUEST && !loop_admit(loop, slot, request)) {
            loop->held = request;
            got = GEN_LATER;
        }
        if (got == GEN_REQUEST && loop_begin(loop, slot, request, err) < 0)
            got = -1;
    }
    return got;
}

/* As long as there are any at hand; waits only when there is nothing else to do. */
static int fill_slots(struct loop *loop, struct err *err)
{
    int got = GEN_REQUEST;
    for (size_t i = 0; i < loop->n_slots && got == GEN_REQUEST; i++)
        got = fill_slot(loop, &loop->slot[i], err);
    loop->stats->at_once = size_max(loop->stats->at_once, count_busy(loop));
    return got < 0 ? -1 : 0;
}

static int end_slot(struct loop *loop, struct slot *slot, const char *why, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    if (strategy->settle && !loop->torn && strategy->settle(strategy->arg, loop, slot, err) < 0)
        return -1;
    return slot->busy ? loop_finish(loop, slot, FINISHED_ERROR, why, err) : 0;
}

/* A request that waits for memory takes a free place: there is one. */
static int begin_held(struct loop *loop, struct err *err)
{
    const struct gen_request *request = loop->held;
    loop->held = NULL;
    for (size_t i = 0; request && i < loop->n_slots; i++)
        if (!loop->slot[i].busy)
            return loop_begin(loop, &loop->slot[i], request, err);
    return 0;
}

/* Sequences under way go out with what they have. */
static int end_slots(struct loop *loop, const char *why, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && end_slot(loop, &loop->slot[i], why, err) < 0)
            return -1;
    return 0;
}

/* What made the run end is its error, whatever comes of it. */
static int end_early(struct loop *loop, struct err *err)
{
    char text[sizeof loop->failure.text + 32];
    const char *why = loop->failed ? text : GEN_INTERRUPTED;
    if (loop->failed)
        snprintf(text, sizeof text, "the run ended: %s", loop->failure.text);
    const int rc = begin_held(loop, err) < 0 ? -1 : end_slots(loop, why, err);
    if (!loop->failed)
        return rc;
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
        if (loop_rows(loop, slot) < slot->n_prompt)
            return WORK_PREFILL;
        work = WORK_DECODE;
    }
    return work;
}

static int do_work(struct loop *loop, enum work work, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    if (work == WORK_PREFILL)
        return loop_prefill(loop, err);
    return loop_make_room(loop, err) < 0 ? -1 : strategy->step(strategy->arg, loop, err);
}

/* At least one of these changes with every step. */
struct progress {
    size_t results, ids, rows;
};

static struct progress progress_of(const struct loop *loop)
{
    struct progress p = {.results = loop->stats->sequences};
    for (size_t i = 0; i < loop->n_slots; i++)
        p.ids += loop->slot[i].busy ? loop->slot[i].ids->len : 0;
    for (size_t seq = 0; seq < loop->session->options.batch; seq++)
        p.rows += session_rows(loop->session, seq);
    return p;
}

static bool stands_still(const struct loop *loop, const struct progress *before)
{
    const struct progress now = progress_of(loop);
    return now.results == before->results && now.ids == before->ids && now.rows == before->rows;
}

/* A step that changes nothing would be repeated for ever. */
static int run_step(struct loop *loop, enum work work, struct err *err)
{
    const struct progress before = progress_of(loop);
    if (do_work(loop, work, err) < 0)
        return -1;
    if (loop->failed || !stands_still(loop, &before))
        return 0;
    return err_set(err,
                   "a step (%s, %zu requests in flight) made no progress: this is a bug in bmc, please "
                   "report it with the command and its input",
                   work == WORK_PREFILL ? "prefill" : loop->strategy->name, count_busy(loop));
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
        loop->torn = run_step(loop, work, err) < 0;
        if (loop->torn && !loop->failed) {
            loop->failed = true;
            loop->failure = *err;
        }
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
