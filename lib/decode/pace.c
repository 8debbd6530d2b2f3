/* How many candidates a step has, and whether there are any. */
#include "decode/pace.h"

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
    if (accepted >= offered)
        return; /* cut short by rows or by the end, and accepted as a whole: longer drafts were not tried */
    const size_t less = div_up(l, length->modulus) + length->shrank;
    length->now = size_max(size_max(1, accepted), l > less ? l - less : 0);
    length->shrank = true;
}

size_t draft_length_limit(size_t free_rows, size_t batch) { return size_max(free_rows / batch, 2) - 1; }

static void begin_window(struct pace *pace)
{
    pace->steps = 0;
    pace->tokens = pace->ms = 0;
}

static void begin_trial(struct pace *pace)
{
    pace->allowed = PACE_FIRST;
    pace->cold = true;
    pace->windows = 0;
    begin_window(pace);
}

void pace_begin(struct pace *pace, bool always)
{
    *pace = (struct pace){.always = always, .next_wait = PACE_PAUSE};
    begin_trial(pace);
}

size_t pace_candidates(struct pace *pace, size_t busy)
{
    if (pace->always)
        return SIZE_MAX;
    if (busy != pace->busy) {
        pace->plain = size_max(pace->plain, pace->busy ? PACE_AGAIN : PACE_PLAIN);
        pace->busy = busy;
        pace->n_recent = 0;
        begin_window(pace);
    }
    if (pace->plain > 0)
        return 0;
    return pace_ramps(pace) ? pace->allowed : SIZE_MAX;
}

bool pace_ramps(const struct pace *pace) { return !pace->always && pace->allowed <= PACE_RAMP; }

static void take_plain(struct pace *pace, double ms)
{
    pace->plain -= pace->plain > 0;
    if (pace->plain > 0 && pace->n_recent > 0 && ms < PACE_QUICKER * pace->plain_ms)
        pace->plain = size_max(pace->plain, PACE_PLAIN);
    pace->recent[pace->n_recent++ % PACE_PLAIN] = ms;
    pace->plain_ms = pace->recent[0];
    for (size_t i = 1; i < size_min(pace->n_recent, PACE_PLAIN); i++)
        pace->plain_ms = pace->recent[i] < pace->plain_ms ? pace->recent[i] : pace->plain_ms;
}

static void pause_drafting(struct pace *pace)
{
    pace->plain = pace->next_wait;
    pace->next_wait = size_min(2 * pace->next_wait, PACE_PAUSE_MAX);
    pace->pauses++;
    begin_trial(pace);
}

void pace_update(struct pace *pace, bool drafted, double tokens, double ms)
{
    if (pace->always)
        return;
    if (!drafted) {
        take_plain(pace, ms);
        return;
    }
    if (!pace->cold) { /* that of the drafter, in a trial's first step */
        pace->steps++;
        pace->tokens += tokens;
        pace->ms += ms;
    }
    pace->cold = false;
    const double lost = pace->ms - pace->tokens * pace->plain_ms;
    if (lost > PACE_LOSS * pace->plain_ms || (pace->steps >= PACE_STEPS && lost > 0)) {
        pause_drafting(pace);
        return;
    }
    if (pace_ramps(pace) && lost <= 0)
        pace->allowed *= 2;
    if (pace->steps >= PACE_STEPS) {
        pace->next_wait = PACE_PAUSE;
        if (++pace->windows % PACE_WINDOWS == 0)
            pace->plain = PACE_AGAIN;
        begin_window(pace);
    }
}
