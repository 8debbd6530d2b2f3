/* Forward passes of the generation loop, and prefill. */
#include "base/clock.h"
#include "decode/loop.h"

static size_t vocab_of(const struct loop *loop) { return session_vocab(loop->session); }

int loop_append_sampled(struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    struct err why;
    if (loop_constrain(loop, slot, &why) < 0)
        return loop_refuse(loop, slot, &why, err);
    return loop_append(loop, slot, loop_sample_token(loop, slot, logits), logits, err);
}

/* Stores log-probabilities of prompt tokens: the tokens of the slot's prefill chunk in the last
 * pass predict those at the next positions. */
static int score_chunk(struct loop *loop, struct slot *slot, struct err *err)
{
    const size_t next = slot->chunk_from + 1, n = size_min(slot->chunk_len, slot->n_prompt - next);
    return logprobs_of_rows(&loop->scratch, slot->chunk_row, slot->ids->id + next, n,
                            slot->n_prompt_best,
                            slot->prompt_logprobs + next * (slot->n_prompt_best + 1), err);
}

/* After a prefill pass: stores prompt log-probabilities in the slots whose request wants them. */
static int score_prompts(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        struct err why;
        if (slot->busy && slot->prompt_logprobs && slot->chunk_len &&
            score_chunk(loop, slot, &why) < 0 && loop_finish(loop, slot, FINISHED_ERROR, &why, err) < 0)
            return -1;
        slot->chunk_len = 0;
    }
    return 0;
}

/* Calls the strategy's prefilled() for all slots with a chunk. */
static int call_prefilled(struct loop *loop, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    for (size_t i = 0; i < loop->n_slots && strategy->prefilled; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy && slot->chunk_len && strategy->prefilled(strategy->arg, loop, slot, err) < 0)
            return -1;
    }
    return 0;
}

/* Sets loop->logits to the logits of the slots whose `row` is set, in order of slots. */
static int compute_logits(struct loop *loop, struct err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && loop->slot[i].row != SIZE_MAX)
            loop->logits_row[n++] = loop->slot[i].row;
    return n ? session_logits(loop->session, loop->logits_row, n, loop->logits, err) : 0;
}

int loop_dispatch_logits(struct loop *loop, loop_logits_fn *use, struct err *err)
{
    const float *logits = loop->logits;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (!slot->busy || slot->row == SIZE_MAX)
            continue;
        slot->row = SIZE_MAX;
        const int rc = logits_finite(logits, vocab_of(loop)) ? use(loop, slot, logits, err)
                                                             : loop_finish_damaged(loop, slot, err);
        if (rc < 0)
            return -1;
        logits += vocab_of(loop);
    }
    return 0;
}

/* Runs a forward pass over the batch, commits all its KV entries and calls `use` for each slot
 * whose `row` is set. A slot whose logits are not finite ends with an error instead. Adds the time
 * of the pass, without `use`, to *step_ms. */
static int loop_step(struct loop *loop, int threads, loop_logits_fn *use, double *step_ms,
                     struct err *err)
{
    const double start = clock_ms();
    if (session_run(loop->session, threads, err) < 0 || call_prefilled(loop, err) < 0 ||
        score_prompts(loop, err) < 0 || compute_logits(loop, err) < 0)
        return -1;
    const double computed = clock_ms();
    *step_ms += computed - start;
    if (loop_dispatch_logits(loop, use, err) < 0)
        return -1;
    loop->stats->sample_ms += clock_ms() - computed;
    return 0;
}

/* Progress of prefill, in prompt tokens of all slots. */
struct prefill {
    const struct gen_callbacks *callbacks;
    size_t before; /* value of `done` before this pass */
    size_t done, total;
};

/* Adds the slot's prompt tokens from index `have` on to the batch, as many as the prefill chunk
 * still has room for. */
static void add_chunk(struct loop *loop, struct slot *slot, size_t have, struct prefill *prefill)
{
    struct session *session = loop->session;
    const size_t space = session_options(session)->chunk -
                         size_min(batch_tokens(session), session_options(session)->chunk);
    const size_t n = size_min(size_min(slot->n_prompt - have, space), pressure_left(loop, slot));
    if (n == 0)
        return;
    slot->n_cached = size_min(slot->n_cached, have);
    slot->chunk_row = batch_add(session, slot->seq, slot->ids->id + have, n);
    slot->chunk_from = have;
    slot->chunk_len = n;
    prefill->done += n;
    if (have + n < slot->n_prompt)
        return;
    if (slot->request->n > 0 && loop_remaining(loop, slot) > 0)
        slot->row = slot->chunk_row + n - 1;
    else
        slot->prefill_only = true;
}

static int add_prompts(struct loop *loop, struct prefill *prefill, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        bool ready;
        if (!slot->busy)
            continue;
        if (loop_is_cancelled(slot->request) && loop_processed(loop, slot) < slot->n_prompt) {
            if (loop_finish(loop, slot, FINISHED_CANCELLED, NULL, err) < 0)
                return -1;
            continue;
        }
        if (prefix_cache_use(loop, slot, &ready, err) < 0 ||
            (ready && prefix_store_use(loop, slot, err) < 0) || pressure_convert(loop, slot, err) < 0)
            return -1;
        const size_t have = loop_processed(loop, slot);
        prefill->total += slot->n_prompt;
        prefill->done += size_min(have, slot->n_prompt);
        if (have < slot->n_prompt && ready)
            add_chunk(loop, slot, have, prefill);
    }
    return 0;
}

/* Stores what a pass over prompts has computed; requests that ended have done so themselves. */
static void store_prompts(struct loop *loop)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy)
            prefix_store_advance(loop, &loop->slot[i]);
}

static int end_prefill_only(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy && slot->prefill_only && loop_finish(loop, slot, FINISHED_LENGTH, NULL, err) < 0)
            return -1;
    }
    return 0;
}

static int first_token(struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    return strategy->first ? strategy->first(strategy->arg, loop, slot, logits, err)
                           : loop_append_sampled(loop, slot, logits, err);
}

/* Reports prefill progress to the caller once `layers` of the model's `all` layers are computed. */
static void report_prefill(void *arg, size_t layers, size_t all)
{
    const struct prefill *p = arg;
    if (p->callbacks->prefill)
        p->callbacks->prefill(p->callbacks->arg, p->before + (p->done - p->before) * layers / all,
                              p->total);
}

/* The last layer's outputs are needed from the first row on that has logits, unless a strategy reads hidden states. */
static void skip_outputs(const struct loop *loop)
{
    size_t first = batch_tokens(loop->session) - 1;
    for (size_t i = 0; i < loop->n_slots; i++) {
        const struct slot *slot = &loop->slot[i];
        if (slot->busy && slot->chunk_len && slot->prompt_logprobs)
            first = size_min(first, slot->chunk_row);
        else if (slot->busy)
            first = size_min(first, slot->row);
    }
    if (!loop->strategy->prefilled)
        session_skip_outputs(loop->session, first);
}

static int run_prefill(struct loop *loop, struct prefill *prefill, struct err *err)
{
    struct session *session = loop->session;
    struct forward *pass = session_pass(session);
    pass->layer_done = report_prefill;
    pass->layer_arg = prefill;
    pass->work = &loop->stats->prefill;
    report_prefill(prefill, 0, 1);
    const int rc = loop_step(loop, session_options(session)->threads_prefill, first_token,
                             &loop->stats->prefill_ms, err);
    pass->layer_done = NULL;
    pass->work = &loop->stats->decode;
    return rc;
}

int loop_prefill(struct loop *loop, struct err *err)
{
    const struct session *session = loop->session;
    struct prefill prefill = {.callbacks = loop->callbacks};
    if (add_prompts(loop, &prefill, err) < 0)
        return -1;
    if (!batch_tokens(session)) /* all were cancelled */
        return 0;
    skip_outputs(loop);
    prefill.before = prefill.done - batch_tokens(session);
    loop->stats->prefill_tokens += batch_tokens(session);
    loop->stats->prefill_steps++;
    if (run_prefill(loop, &prefill, err) < 0)
        return -1;
    report_prefill(&prefill, 1, 1);
    store_prompts(loop);
    return end_prefill_only(loop, err);
}

/* ---- plain decoding: one token per sequence and step ---- */

static int plain_step(void *arg, struct loop *loop, struct err *err)
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

const struct step_strategy step_plain = {.name = "plain", .width = 1, .step = plain_step};
