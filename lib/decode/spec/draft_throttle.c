/* Adapts draft lengths, and pauses drafting while it is slower than plain decoding. */
#include "decode/spec/draft_throttle.h"

#include <string.h>

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

size_t draft_length_limit(size_t free_rows, size_t batch) { return size_max(free_rows / batch, 2) - 1; }

static void begin_window(struct throttle *throttle)
{
    throttle->steps = 0;
    throttle->tokens = throttle->ms = 0;
}

size_t draft_default_knee(const struct kernels *kernels, enum precision precision)
{
    enum { KNEE = 16, KNEE_BF16 = 24, KNEE_AMX = 32 };
    const bool bf16_products = precision == PRECISION_BF16;
    if (strcmp(kernels->isa, "amx") == 0 && (bf16_products || precision == PRECISION_BF16X2))
        return KNEE_AMX;
    return bf16_products ? KNEE_BF16 : KNEE;
}

static void begin_trial(struct throttle *throttle)
{
    throttle->allowed = THROTTLE_FIRST;
    throttle->cold = true;
    throttle->windows = 0;
    begin_window(throttle);
}

void throttle_begin(struct throttle *throttle, bool always)
{
    *throttle = (struct throttle){.always = always, .next_pause = THROTTLE_PAUSE};
    begin_trial(throttle);
}

size_t throttle_draft_limit(struct throttle *throttle, size_t busy)
{
    if (throttle->always)
        return SIZE_MAX;
    if (busy != throttle->busy) {
        throttle->plain =
            size_max(throttle->plain, throttle->busy ? THROTTLE_PLAIN_AGAIN : THROTTLE_PLAIN);
        throttle->busy = busy;
        throttle->n_recent = 0;
        begin_window(throttle);
    }
    if (throttle->plain > 0)
        return 0;
    return throttle_is_ramping(throttle) ? throttle->allowed : SIZE_MAX;
}

bool throttle_is_ramping(const struct throttle *throttle)
{
    return !throttle->always && throttle->allowed <= THROTTLE_RAMP;
}

static void take_plain(struct throttle *throttle, double ms)
{
    throttle->plain -= throttle->plain > 0;
    if (throttle->plain > 0 && throttle->n_recent > 0 && ms < THROTTLE_FASTER * throttle->plain_ms)
        throttle->plain = size_max(throttle->plain, THROTTLE_PLAIN);
    throttle->recent[throttle->n_recent++ % THROTTLE_PLAIN] = ms;
    throttle->plain_ms = throttle->recent[0];
    for (size_t i = 1; i < size_min(throttle->n_recent, THROTTLE_PLAIN); i++)
        throttle->plain_ms =
            throttle->recent[i] < throttle->plain_ms ? throttle->recent[i] : throttle->plain_ms;
}

static void pause_drafting(struct throttle *throttle)
{
    throttle->plain = throttle->next_pause;
    throttle->next_pause = size_min(2 * throttle->next_pause, THROTTLE_PAUSE_MAX);
    throttle->pauses++;
    begin_trial(throttle);
}

void throttle_update(struct throttle *throttle, bool drafted, double tokens, double ms)
{
    if (throttle->always)
        return;
    if (!drafted) {
        take_plain(throttle, ms);
        return;
    }
    if (!throttle->cold) { /* a trial's first step warms up the drafter's memory */
        throttle->steps++;
        throttle->tokens += tokens;
        throttle->ms += ms;
    }
    throttle->cold = false;
    const double lost = throttle->ms - throttle->tokens * throttle->plain_ms;
    if (lost > THROTTLE_LOSS * throttle->plain_ms || (throttle->steps >= THROTTLE_STEPS && lost > 0)) {
        pause_drafting(throttle);
        return;
    }
    if (throttle_is_ramping(throttle) && lost <= 0)
        throttle->allowed *= 2;
    if (throttle->steps >= THROTTLE_STEPS) {
        throttle->next_pause = THROTTLE_PAUSE;
        if (++throttle->windows % THROTTLE_RECHECK == 0)
            throttle->plain = THROTTLE_PLAIN_AGAIN;
        begin_window(throttle);
    }
}
