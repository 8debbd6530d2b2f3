/* How many candidates a step has, and whether there are any. */
#include "decode/pace.h"

void draft_length_update(struct draft_length *length, size_t offered, size_t accepted)
{
    const size_t l = length->now;
    if (length->fixed || offered == 0)
        return;
    if (accepted >= offered) {
        length->now = size_min(l + length->increment, length->limit);
        length->shrank = false;
        return;
    }
    const size_t less = div_up(l, length->modulus) + length->shrank;
    length->now = size_max(size_max(1, accepted), l > less ? l - less : 0);
    length->shrank = true;
}

size_t draft_length_limit(size_t free_rows, size_t batch) { return size_max(free_rows / batch, 2) - 1; }

void pace_begin(struct pace *pace, bool always)
{
    *pace = (struct pace){.always = always, .next_wait = PACE_PAUSE};
    pace->plain = always ? 0 : PACE_PLAIN;
    pace->settle = 1;
}

bool pace_wants_draft(const struct pace *pace) { return pace->always || pace->plain == 0; }

static void begin_window(struct pace *pace)
{
    pace->steps = 0;
    pace->tokens = pace->ms = 0;
}

static void begin_pause(struct pace *pace)
{
    pace->plain = pace->next_wait;
    pace->next_wait = size_min(2 * pace->next_wait, PACE_PAUSE_MAX);
    pace->settle = 1;
    pace->pauses++;
    begin_window(pace);
}

/* A plain step: what gains are measured against. */
static void take_plain(struct pace *pace, double ms)
{
    pace->plain -= pace->plain > 0;
    pace->plain_ms = pace->plain_ms > 0 ? 0.75 * pace->plain_ms + 0.25 * ms : ms;
    if (pace->plain == 0)
        begin_window(pace);
}

void pace_update(struct pace *pace, bool drafted, double tokens, double ms)
{
    if (pace->always)
        return;
    if (pace->settle > 0) {
        pace->settle--;
        pace->plain -= !drafted && pace->plain > 1;
        return;
    }
    if (!drafted) {
        const bool last = pace->plain == 1;
        take_plain(pace, ms);
        pace->settle = last;
        return;
    }
    pace->steps++;
    pace->tokens += tokens;
    pace->ms += ms;
    const double lost = pace->ms - pace->tokens * pace->plain_ms;
    if (lost > PACE_LOSS * pace->plain_ms || (pace->steps >= PACE_STEPS && lost > 0)) {
        begin_pause(pace);
    } else if (pace->steps >= PACE_STEPS) {
        pace->next_wait = PACE_PAUSE;
        begin_window(pace);
    }
}
