/* Plain decoding in micro-batches that follow each other through the stages of a pipeline. */
#include "decode/step_pipe.h"

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"

/* A micro-batch: group g of n has slots g, g + n, g + 2n, .. */
struct group {
    size_t request; /* number of its logits request, from session_submit() */
    size_t n;       /* tokens in flight, one per busy slot; 0: none */
};

struct step_pipe {
    struct step_strategy strategy; /* strategy.arg points to this struct */
    struct group *group;
    size_t n_groups;
    bool *in_flight; /* [slots]: true if a token of the slot is in flight */
    size_t *row;     /* [slots]: indices in the batch of a group's tokens */
};

/* Starts a forward pass over the newest token of each sequence in micro-batch g, and requests the
 * logits without waiting for them. */
static int submit_group(struct step_pipe *pipe, struct loop *loop, size_t g, struct err *err)
{
    struct group *group = &pipe->group[g];
    for (size_t i = g; i < loop->n_slots; i += pipe->n_groups)
        if (context_recompute_slot(loop, &loop->slot[i], err) < 0)
            return -1;
    for (size_t i = g; i < loop->n_slots; i += pipe->n_groups) {
        const struct slot *slot = &loop->slot[i];
        pipe->in_flight[i] = slot->busy;
        if (slot->busy)
            pipe->row[group->n++] =
                batch_add(loop->session, slot->seq, &slot->ids->id[slot->ids->len - 1], 1);
    }
    if (!group->n)
        return 0;
    loop->stats->decode_tokens += group->n;
    loop->stats->decode_steps++;
    return session_run(loop->session, session_options(loop->session)->threads, err) < 0
               ? -1
               : session_submit(loop->session, pipe->row, group->n, &group->request, err);
}

/* Waits for the logits of micro-batch g, then samples and appends a token to each sequence. */
static int collect_group(struct step_pipe *pipe, struct loop *loop, size_t g, double *sample_ms,
                         struct err *err)
{
    struct group *group = &pipe->group[g];
    const size_t n = group->n;
    if (!n)
        return 0;
    group->n = 0;
    if (session_collect(loop->session, group->request, n, loop->logits, err) < 0)
        return -1;
    const double start = clock_ms();
    for (size_t i = g; i < loop->n_slots; i += pipe->n_groups)
        loop->slot[i].row = pipe->in_flight[i] ? 0 : SIZE_MAX;
    const int rc = loop_dispatch_logits(loop, loop_append_sampled, err);
    *sample_ms += clock_ms() - start;
    return rc;
}

static int pipelined_step(void *arg, struct loop *loop, struct err *err)
{
    struct step_pipe *pipe = arg;
    const double start = clock_ms();
    double sample_ms = 0;
    for (size_t g = 0; g < pipe->n_groups; g++)
        if (collect_group(pipe, loop, g, &sample_ms, err) < 0 || submit_group(pipe, loop, g, err) < 0)
            return -1;
    loop->stats->sample_ms += sample_ms;
    loop->stats->decode_ms += clock_ms() - start - sample_ms;
    return 0;
}

int step_pipe_open(struct step_pipe **out, const struct session *session, size_t groups,
                   struct err *err)
{
    const size_t slots = session_options(session)->batch;
    struct step_pipe *pipe = *out = mem_zalloc(1, sizeof *pipe);
    if (!pipe)
        return err_no_memory(err, "a pipeline");
    *pipe = (struct step_pipe){
        .strategy = {.name = "pipe", .width = 1, .step = pipelined_step, .arg = pipe},
        .n_groups = size_min(groups, slots)};
    pipe->group = mem_zalloc(pipe->n_groups, sizeof *pipe->group);
    pipe->in_flight = mem_zalloc(slots, sizeof *pipe->in_flight);
    pipe->row = mem_zalloc(slots, sizeof *pipe->row);
    if (pipe->group && pipe->in_flight && pipe->row)
        return 0;
    step_pipe_close(pipe);
    *out = NULL;
    return err_no_memory(err, "a pipeline of %zu sequences", slots);
}

void step_pipe_close(struct step_pipe *pipe)
{
    if (!pipe)
        return;
    free(pipe->group);
    free(pipe->in_flight);
    free(pipe->row);
    free(pipe);
}

const struct step_strategy *step_pipe_strategy(const struct step_pipe *pipe) { return &pipe->strategy; }
