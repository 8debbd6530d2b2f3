/* Chooses draft lengths to begin with, and adapts them by algorithm 1 of the BASS paper. */
#include "decode/length/draft_length.h"

#include <string.h>

size_t draft_length_limit(size_t free_rows, size_t batch) { return size_max(free_rows / batch, 2) - 1; }

size_t draft_default_knee(const struct kernels *kernels, enum precision precision)
{
    enum { KNEE = 16, KNEE_BF16 = 24, KNEE_AMX = 32 };
    const bool bf16_products = precision == PRECISION_BF16;
    if (strcmp(kernels->isa, "amx") == 0 && (bf16_products || precision == PRECISION_BF16X2))
        return KNEE_AMX;
    return bf16_products ? KNEE_BF16 : KNEE;
}

struct draft_length draft_length_choose(const struct draft_length_params *p)
{
    struct draft_length length = {.increment = p->increment ? p->increment : 2,
                                  .modulus = p->modulus ? p->modulus : 10,
                                  .limit = p->k,
                                  .now = p->k,
                                  .fixed = p->fixed,
                                  .measured = !p->fixed && !p->bass && !p->tree};
    if (p->fixed)
        return length;
    /* Lengths by measured gain stop where they cost too much. Those of algorithm 1 follow from
     * acceptance alone. */
    const size_t rows = length.measured && !p->knee_fixed ? DRAFT_KNEE_FACTOR * p->knee : p->knee;
    length.limit = size_min(p->limit, p->context - size_min(p->context, DRAFT_WINDOW_REST));
    length.now = p->start;
    if (p->batch > 1 || p->knee_measured || p->knee_fixed)
        length.limit = size_min(length.limit, draft_length_limit(rows, p->batch));
    if (p->batch > 1) /* batches begin at the knee */
        length.now = size_min(length.now, draft_length_limit(p->knee, p->batch));
    length.now = size_min(length.now, length.limit);
    return length;
}

void draft_length_update(struct draft_length *length, size_t offered, size_t accepted)
{
    const size_t l = length->now;
    if (length->fixed || offered == 0)
        return;
    if (accepted >= l) {
        length->now = size_min(l + length->increment, length->limit);
        length->shrank = false;
        return;
    }
    /* all of a draft shorter than `now` was accepted: says nothing about longer drafts */
    if (accepted >= offered)
        return;
    const size_t less = div_up(l, length->modulus) + length->shrank;
    length->now = size_max(size_max(1, accepted), l > less ? l - less : 0);
    length->shrank = true;
}
