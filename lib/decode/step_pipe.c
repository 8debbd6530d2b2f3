/* Groups of sequences that follow each other through the ranks. */
#include "decode/step_pipe.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"

struct group {
    size_t question; /* for the logits of its step */
    size_t n;        /* of its rows; 0: no step is under way */
};

struct step_pipe {
    struct step_strategy strategy; /* its arg is this */
    struct group *group;
    size_t n_groups;
    bool *flies; /* [slots]: a row of it is in its group's step */
    size_t *row; /* [slots] */
};

/* The newest token of each of the group's sequences sets out. */
static int send_out(struct step_pipe *pipe, struct loop *loop, size_t g, struct err *err)
{
    struct group *group = &pipe->group[g];
    for (size_t i = g; i < loop->n_slots; i += pipe->n_groups)
        if (loop_make_room_for(loop, &loop->slot[i], err) < 0)
            return -1;
    for (size_t i = g; i < loop->n_slots; i += pipe->n_groups) {
        const struct slot *slot = &loop->slot[i];
        pipe->flies[i] = slot->busy;
        if (slot->busy)
            pipe->row[group->n++] =
                session_add(loop->session, slot->seq, &slot->ids->id[slot->ids->len - 1], 1);
    }
    if (!group->n)
        return 0;
    loop->stats->decode_tokens += group->n;
    loop->stats->decode_steps++;
    return session_run(loop->session, loop->session->options.threads, err) < 0
               ? -1
               : session_ask(loop->session, pipe->row, group->n, &group->question, err);
}

/* Its logits have come: each sequence takes a token. */
static int bring_in(struct step_pipe *pipe, struct loop *loop, size_t g, double *sample_ms,
                    struct err *err)
{
    struct group *group = &pipe->group[g];
    const size_t n = group->n;
    if (!n)
        return 0;
    group->n = 0;
    if (session_take(loop->session, group->question, n, loop->logits, err) < 0)
        return -1;
    const double start = clock_ms();
    for (size_t i = g; i < loop->n_slots; i += pipe->n_groups)
        loop->slot[i].row = pipe->flies[i] ? 0 : SIZE_MAX;
    const int rc = loop_hand_out(loop, loop_sample, err);
    *sample_ms += clock_ms() - start;
    return rc;
}

static int step(void *arg, struct loop *loop, struct err *err)
{
    struct step_pipe *pipe = arg;
    const double start = clock_ms();
    double sample_ms = 0;
    for (size_t g = 0; g < pipe->n_groups; g++)
        if (bring_in(pipe, loop, g, &sample_ms, err) < 0 || send_out(pipe, loop, g, err) < 0)
            return -1;
    loop->stats->sample_ms += sample_ms;
    loop->stats->decode_ms += clock_ms() - start - sample_ms;
    return 0;
}

int step_pipe_open(struct step_pipe **out, const struct session *session, size_t groups,
                   struct err *err)
{
    const size_t slots = session->options.batch;
    struct step_pipe *pipe = *out = mem_zalloc(1, sizeof *pipe);
    if (!pipe)
        return err_set(err, "out of memory for steps");
    *pipe = (struct step_pipe){.strategy = {.name = "pipe", .width = 1, .step = step, .arg = pipe},
                               .n_groups = size_min(groups, slots)};
    pipe->group = mem_zalloc(pipe->n_groups, sizeof *pipe->group);
    pipe->flies = mem_zalloc(slots, sizeof *pipe->flies);
    pipe->row = mem_zalloc(slots, sizeof *pipe->row);
    if (pipe->group && pipe->flies && pipe->row)
        return 0;
    step_pipe_close(pipe);
    *out = NULL;
    return err_set(err, "out of memory for steps of %zu sequences", slots);
}

void step_pipe_close(struct step_pipe *pipe)
{
    if (!pipe)
        return;
    free(pipe->group);
    free(pipe->flies);
    free(pipe->row);
    free(pipe);
}

const struct step_strategy *step_pipe_strategy(const struct step_pipe *pipe) { return &pipe->strategy; }
