/* Steps of beam search. */
#include "decode/step_beam.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"

struct step_beam {
    struct step_strategy strategy; /* its arg is this */
    size_t width, n_best, n_places;
    struct beam_search *search; /* [places]; `most` is 0 where none is under way */
    size_t *seq;                /* [places][W]: where each path's rows lie */
    float *logits;              /* [places * W][vocab] */
    size_t *row;                /* [places * W] */
};

static size_t place_of(const struct loop *loop, const struct slot *slot)
{
    return (size_t)(slot - loop->slot);
}

/* ---- the end ---- */

/* The best text's tokens are the request's. `logits` stand for those that chose the last one. */
static int take_best(struct step_beam *b, struct loop *loop, struct slot *slot, const float *logits,
                     struct err *err)
{
    struct beam_search *search = &b->search[place_of(loop, slot)];
    slot->beams = search->ended;
    slot->n_beams = size_min(search->n_ended, b->n_best);
    search->most = 0;
    /* What it has behind is some path's; a window has nothing without it. */
    session_cut(loop->session, slot->seq, kv_whole(loop->session->kv, slot->seq) ? slot->n_prompt : 0);
    for (size_t i = 0; slot->n_beams && slot->busy && i < slot->beams[0].ids.len; i++)
        if (loop_take(loop, slot, slot->beams[0].ids.id[i], logits, err) < 0)
            return -1;
    return 0;
}

static int finish(struct step_beam *b, struct loop *loop, struct slot *slot, const float *logits,
                  struct err *err)
{
    const bool by_end = b->search[place_of(loop, slot)].ended[0].by_end;
    if (take_best(b, loop, slot, logits, err) < 0)
        return -1;
    return slot->busy ? loop_finish(loop, slot, by_end ? FINISHED_EOS : FINISHED_LENGTH, NULL, err) : 0;
}

/* An interrupted run has what there is. */
static int settle(void *arg, struct loop *loop, struct slot *slot, struct err *err)
{
    struct step_beam *b = arg;
    struct beam_search *search = &b->search[place_of(loop, slot)];
    if (!search->most)
        return 0;
    return beam_give_up(search, err) < 0 ? -1 : take_best(b, loop, slot, b->logits, err);
}

/* ---- steps ---- */

/* What the loop says of ends, in the form that the search asks for. */
struct asking {
    const struct loop *loop;
    const struct gen_request *request;
};

static bool is_end(const void *arg, uint32_t id)
{
    const struct asking *a = arg;
    return loop_ends(a->loop, a->request, id);
}

static size_t count_ends(const struct loop *loop, const struct gen_request *request)
{
    return request->ignore_eos ? 0 : request->n_ends + loop->session->model->config.n_eos;
}

/* The paths' logits have come: other paths, whose rows are put in place, or the end. */
static int advance(struct step_beam *b, struct loop *loop, struct slot *slot, const float *logits,
                   struct err *err)
{
    const struct gen_request *request = slot->request;
    const struct asking asking = {loop, request};
    const size_t place = place_of(loop, slot), vocab = loop->session->model->config.vocab;
    struct beam_search *search = &b->search[place];
    for (size_t i = 0; i < search->n_paths; i++)
        if (!logits_finite(logits + i * vocab, vocab)) {
            search->most = 0;
            return loop_finish(loop, slot, FINISHED_ERROR, NO_FINITE_LOGITS, err);
        }
    if (beam_step(search, logits, vocab, is_end, &asking, count_ends(loop, request), err) < 0)
        return -1;
    return search->n_paths ? session_reorder(loop->session, b->seq + place * b->width, search->parent,
                                             b->width, err)
                           : finish(b, loop, slot, logits, err);
}

/* What the search cannot do; NULL: nothing that was asked for. */
static const char *find_conflict(const struct step_beam *b, const struct loop *loop,
                                 const struct slot *slot)
{
    const struct sampler_options *o = loop_sampling(loop, slot);
    const struct gen_request *request = slot->request;
    const size_t least = (2 + count_ends(loop, request)) * b->width;
    if (o->temp > 0)
        return "beams take the most likely texts: they go with temperature 0 only";
    if (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0 || o->n_biases)
        return "beams are ranked by the model's own log-probabilities, without penalties and biases";
    if (request->n_stops)
        return "beams end by tokens, not by stop strings";
    if (request->logprobs)
        return "beams have a score, and no log-probabilities of single tokens";
    if (least > loop->session->model->config.vocab)
        return "there are more beams than the vocabulary has words for";
    return NULL;
}

static int first(void *arg, struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    struct step_beam *b = arg;
    const size_t place = place_of(loop, slot);
    const char *conflict = find_conflict(b, loop, slot);
    if (conflict)
        return loop_finish(loop, slot, FINISHED_ERROR, conflict, err);
    for (size_t i = 0; i < b->width; i++)
        b->seq[place * b->width + i] = loop_first_seq(loop, slot) + i;
    beam_begin(&b->search[place], size_min(slot->request->n, loop_left(loop, slot)));
    for (size_t i = 0; i < b->width; i++)
        b->search[place].parent[i] = 0;
    return advance(b, loop, slot, logits, err);
}

/* The newest token of every path in, all their logits out. Returns how many. */
static int compute(struct step_beam *b, struct loop *loop, struct err *err)
{
    size_t n = 0;
    for (size_t p = 0; p < loop->n_slots; p++)
        for (size_t i = 0; loop->slot[p].busy && i < b->width; i++)
            b->row[n++] = session_add(loop->session, b->seq[p * b->width + i], &b->search[p].id[i], 1);
    if (session_run(loop->session, loop->session->options.threads, err) < 0 ||
        session_logits(loop->session, b->row, n, b->logits, err) < 0)
        return -1;
    loop->stats->decode_tokens += n;
    loop->stats->decode_steps++;
    return 0;
}

static int step(void *arg, struct loop *loop, struct err *err)
{
    struct step_beam *b = arg;
    const float *logits = b->logits;
    const double start = clock_ms();
    if (compute(b, loop, err) < 0)
        return -1;
    const double computed = clock_ms();
    for (size_t p = 0; p < loop->n_slots; p++) {
        if (!loop->slot[p].busy)
            continue;
        if (advance(b, loop, &loop->slot[p], logits, err) < 0)
            return -1;
        logits += b->width * loop->session->model->config.vocab;
    }
    loop->stats->decode_ms += computed - start;
    loop->stats->sample_ms += clock_ms() - computed;
    return 0;
}

/* ---- opening ---- */

static int alloc_buffers(struct step_beam *b, const struct session *session,
                         const struct beam_options *options, struct err *err)
{
    const size_t rows = b->n_places * b->width, vocab = session->model->config.vocab;
    size_t logits;
    b->search = mem_zalloc(b->n_places, sizeof *b->search);
    b->seq = mem_zalloc(rows, sizeof *b->seq);
    b->row = mem_zalloc(rows, sizeof *b->row);
    if (size_mul(rows, vocab * sizeof *b->logits, &logits))
        b->logits = mem_alloc(1, logits);
    if (!b->search || !b->seq || !b->row || !b->logits)
        return err_set(err, "out of memory for the logits of %zu beams", rows);
    for (size_t p = 0; p < b->n_places; p++)
        if (beam_open(&b->search[p], options, err) < 0)
            return -1;
    return 0;
}

int step_beam_open(struct step_beam **out, const struct session *session,
                   const struct beam_options *options, size_t n_best, struct err *err)
{
    struct step_beam *b = *out = mem_zalloc(1, sizeof *b);
    if (!b)
        return err_set(err, "out of memory for beams");
    *b = (struct step_beam){
        .strategy = {.name = "beam",
                     .width = options->width,
                     .first = first,
                     .step = step,
                     .settle = settle,
                     .arg = b},
        .width = options->width,
        .n_best = n_best,
        .n_places = session->options.batch / options->width,
    };
    if (alloc_buffers(b, session, options, err) == 0)
        return 0;
    step_beam_close(b);
    *out = NULL;
    return -1;
}

void step_beam_close(struct step_beam *b)
{
    if (!b)
        return;
    for (size_t p = 0; b->search && p < b->n_places; p++)
        beam_close(&b->search[p]);
    free(b->search);
    free(b->seq);
    free(b->row);
    free(b->logits);
    free(b);
}

const struct step_strategy *step_beam_strategy(const struct step_beam *b)
{
    return b ? &b->strategy : NULL;
}
