/* Log-probabilities of tokens. */
#include "decode/sample/logprobs.h"

#include "base/mem.h"

enum { PROMPT_ROWS = 32 }; /* prompt tokens whose logits are computed at a time */

static size_t vocab_of(const struct logprobs *scratch) { return session_vocab(scratch->session); }

void logprobs_release(struct logprobs *scratch)
{
    free(scratch->best);
    free(scratch->logits);
    *scratch = (struct logprobs){0};
}

int logprobs_of(struct logprobs *scratch, const float *logits, uint32_t id, size_t k,
                struct logprob *out, struct err *err)
{
    const double norm = log_sum_exp(logits, vocab_of(scratch));
    while (scratch->best_cap < k)
        if (mem_grow(&scratch->best, &scratch->best_cap, scratch->best_cap, sizeof *scratch->best,
                     err) < 0)
            return -1;
    out[0] = (struct logprob){id, logprob_of(logits, id, norm)};
    top_logits(logits, vocab_of(scratch), k, scratch->best);
    for (size_t i = 0; i < k; i++)
        out[1 + i] =
            (struct logprob){scratch->best[i].id, logprob_of(logits, scratch->best[i].id, norm)};
    return 0;
}

/* logprobs_of_rows() for at most PROMPT_ROWS tokens: id[i] follows the token with index row[i] in
 * the batch of the last forward pass. */
static int logprobs_of_chunk(struct logprobs *scratch, const size_t *row, const uint32_t *id, size_t n,
                             size_t k, struct logprob *out, struct err *err)
{
    if (session_logits(scratch->session, row, n, scratch->logits, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const float *logits = scratch->logits + i * vocab_of(scratch);
        if (!logits_finite(logits, vocab_of(scratch)))
            return session_refuse_output(scratch->session, "the model", "logits", err);
        if (logprobs_of(scratch, logits, id[i], k, out + i * (k + 1), err) < 0)
            return -1;
    }
    return 0;
}

int logprobs_of_rows(struct logprobs *scratch, size_t first_row, const uint32_t *id, size_t n, size_t k,
                     struct logprob *out, struct err *err)
{
    size_t row[PROMPT_ROWS];
    if (!scratch->logits)
        scratch->logits = mem_alloc(PROMPT_ROWS, vocab_of(scratch) * sizeof(float));
    if (!scratch->logits)
        return err_no_memory(err, "%d rows of %zu logits", PROMPT_ROWS, vocab_of(scratch));
    for (size_t done = 0, rows; done < n; done += rows) {
        rows = size_min(PROMPT_ROWS, n - done);
        for (size_t i = 0; i < rows; i++)
            row[i] = first_row + done + i;
        if (logprobs_of_chunk(scratch, row, id + done, rows, k, out + done * (k + 1), err) < 0)
            return -1;
    }
    return 0;
}

struct logprob *logprobs_alloc(const uint32_t *id, size_t n, size_t k, struct err *err)
{
    size_t total;
    struct logprob *list = size_mul(n, k + 1, &total) ? mem_alloc(total, sizeof *list) : NULL;
    if (!list) {
        err_no_memory(err, "log-probabilities of %zu prompt tokens", n);
        return NULL;
    }
    for (size_t i = 0; i < total; i++)
        list[i] = (struct logprob){id[i / (k + 1)], NAN};
    return list;
}
