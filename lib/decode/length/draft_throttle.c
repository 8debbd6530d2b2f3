/* Pauses drafting while it is slower than plain decoding. */
#include "decode/length/draft_throttle.h"

#include <math.h>

static void begin_window(struct throttle *throttle)
{
    throttle->steps = 0;
    throttle->tokens = throttle->ms = 0;
}

static void begin_trial(struct throttle *throttle, size_t first)
{
    throttle->allowed = first;
    throttle->cold = true;
    throttle->windows = 0;
    begin_window(throttle);
}

void throttle_begin(struct throttle *throttle, bool always, size_t first)
{
    *throttle = (struct throttle){.always = always, .next_pause = THROTTLE_PAUSE};
    begin_trial(throttle, first);
}

size_t throttle_draft_limit(struct throttle *throttle, size_t busy)
{
    if (throttle->always)
        return SIZE_MAX;
    if (busy != throttle->busy) {
        throttle->plain = size_max(throttle->plain, THROTTLE_PLAIN_AGAIN);
        throttle->busy = busy;
        throttle->n_recent = 0;
        throttle->doubted = false;
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
    const double faster = throttle->doubted ? THROTTLE_FASTER : THROTTLE_COLD;
    if (throttle->n_recent > 0 && ms < faster * throttle->plain_ms)
        throttle->plain = size_max(throttle->plain, THROTTLE_PLAIN_AGAIN);
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
    begin_trial(throttle, THROTTLE_FIRST);
}

/* Has more plain steps timed if drafting is not clearly faster than those so far. */
static void doubt(struct throttle *throttle, double lost)
{
    if (throttle->doubted ||
        (throttle->steps < THROTTLE_SURE && lost < THROTTLE_LOSS * throttle->plain_ms) ||
        throttle->tokens * throttle->plain_ms > THROTTLE_CLEAR * throttle->ms)
        return;
    throttle->doubted = true;
    throttle->plain =
        size_max(THROTTLE_PLAIN - size_min(throttle->n_recent, THROTTLE_PLAIN), THROTTLE_PLAIN_AGAIN);
}

void throttle_update(struct throttle *throttle, bool drafted, double tokens, double ms, double most)
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
    const double lost = throttle->ms - throttle->tokens * throttle->plain_ms,
                 most_lost = isinf(most) ? THROTTLE_LOSS : THROTTLE_LUCK;
    const bool hopeless = throttle->steps > 0 && most * throttle->plain_ms < 1;
    doubt(throttle, lost);
    if (hopeless || lost > most_lost * throttle->plain_ms ||
        (throttle->steps >= THROTTLE_STEPS && lost > 0)) {
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
