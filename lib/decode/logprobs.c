/* Log-probabilities that requests ask for. */
#include "decode/logprobs.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

enum { PROMPT_ROWS = 32 }; /* rows of a prompt whose logits are made at a time: [32][vocab] floats */

static size_t vocab(const struct loop *loop) { return loop->session->model->config.vocab; }

/* The token and the k best ones. */
static int fill(struct loop *loop, const float *logits, uint32_t id, size_t k, struct logprob *out,
                struct err *err)
{
    const double norm = log_sum_exp(logits, vocab(loop));
    while (loop->best_cap < k)
        if (mem_grow(&loop->best, &loop->best_cap, loop->best_cap, sizeof *loop->best, err) < 0)
            return -1;
    out[0] = (struct logprob){id, (float)(logits[id] - norm)};
    top_logits(logits, vocab(loop), k, loop->best);
    for (size_t i = 0; i < k; i++)
        out[1 + i] = (struct logprob){loop->best[i].id, (float)(loop->best[i].logit - norm)};
    return 0;
}

int logprobs_add(struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    const size_t k = slot->request.logprobs, per_token = k + 1;
    const size_t at = (loop_generated(slot) - 1) * per_token;
    while (slot->logprobs_cap < at + per_token)
        if (mem_grow(&slot->logprobs, &slot->logprobs_cap, slot->logprobs_cap, sizeof *slot->logprobs,
                     err) < 0)
            return -1;
    return fill(loop, logits, slot->all.id[slot->all.len - 1], k, slot->logprobs + at, err);
}

int logprobs_begin_prompt(struct slot *slot, struct err *err)
{
    const size_t per_token = slot->request.prompt_logprobs + 1, n = slot->request.n_prompt;
    size_t total;
    if (per_token == 1)
        return 0;
    slot->prompt_logprobs =
        size_mul(n, per_token, &total) ? mem_alloc(total, sizeof *slot->prompt_logprobs) : NULL;
    if (!slot->prompt_logprobs)
        return err_set(err, "out of memory for log-probabilities of %zu prompt tokens", n);
    for (size_t i = 0; i < total; i++)
        slot->prompt_logprobs[i] = (struct logprob){slot->request.prompt[i / per_token], NAN};
    return 0;
}

int logprobs_of_step(struct loop *loop, struct slot *slot, struct err *err)
{
    const size_t k = slot->request.prompt_logprobs;
    const size_t n = size_min(slot->step_rows, slot->request.n_prompt - 1 - slot->step_from);
    size_t row[PROMPT_ROWS];
    if (!loop->prompt_logits)
        loop->prompt_logits = mem_alloc(PROMPT_ROWS, vocab(loop) * sizeof(float));
    if (!loop->prompt_logits)
        return err_set(err, "out of memory for %d rows of %zu logits", PROMPT_ROWS, vocab(loop));
    for (size_t done = 0, rows; done < n; done += rows) {
        rows = size_min(PROMPT_ROWS, n - done);
        for (size_t i = 0; i < rows; i++)
            row[i] = slot->step_first + done + i;
        session_logits(loop->session, row, rows, loop->prompt_logits);
        for (size_t i = 0; i < rows; i++) {
            const float *logits = loop->prompt_logits + i * vocab(loop);
            const size_t at = slot->step_from + done + i + 1;
            if (!logits_finite(logits, vocab(loop)))
                return err_set(err, NO_FINITE_LOGITS);
            if (fill(loop, logits, slot->request.prompt[at], k, slot->prompt_logprobs + at * (k + 1),
                     err) < 0)
                return -1;
        }
    }
    return 0;
}
