/* Beam search as a decoding strategy. */
#include "decode/step_beam.h"

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"
#include "decode/sample/dry.h"

enum { BEAM_MOST = 4096 }; /* beams */

struct step_beam {
    struct step_strategy strategy; /* strategy.arg points to this struct */
    size_t width, n_best, n_slots;
    struct beam_search *search;   /* [slots]; max_length is 0 in slots without a search */
    size_t *seq;                  /* [slots][W]: the KV cache sequence of each path */
    float *logits;                /* [slots * W][vocab]: after the newest token of each path */
    size_t *row;                  /* [slots * W]: index in the batch of that token */
    struct constraint_cursor *at; /* [slots * W]: of constrained requests: after each path */
    struct token_mask *mask;      /* [W]: scratch */
};

static size_t slot_index(const struct loop *loop, const struct slot *slot)
{
    return (size_t)(slot - loop->slot);
}

/* Appends the best beam's tokens to the request. `logits`, those of the last step, are recorded as
 * the logits of each of them. */
static int append_best(struct step_beam *b, struct loop *loop, struct slot *slot, const float *logits,
                       struct err *err)
{
    struct beam_search *search = &b->search[slot_index(loop, slot)];
    slot->beams = search->finished;
    slot->n_beams = size_min(search->n_finished, b->n_best);
    search->max_length = 0;
    for (size_t i = 0; i < b->width; i++)
        constraint_end(&b->at[slot_index(loop, slot) * b->width + i]);
    /* KV entries after the prompt may be another path's; after evictions all must be dropped */
    const size_t kept = kv_is_untrimmed(session_kv(loop->session), slot->seq) ? slot->n_prompt : 0;
    session_truncate(loop->session, slot->seq, session_rewind(loop->session, slot->seq, kept));
    for (size_t i = 0; slot->n_beams && slot->busy && i < slot->beams[0].ids.len; i++)
        if (loop_append(loop, slot, slot->beams[0].ids.id[i], logits, err) < 0)
            return -1;
    return 0;
}

static int finish_search(struct step_beam *b, struct loop *loop, struct slot *slot, const float *logits,
                         struct err *err)
{
    const bool by_eos = b->search[slot_index(loop, slot)].finished[0].by_eos;
    if (append_best(b, loop, slot, logits, err) < 0)
        return -1;
    return slot->busy ? loop_finish(loop, slot, by_eos ? FINISHED_EOS : FINISHED_LENGTH, NULL, err) : 0;
}

/* Ends the search early with the best beam so far. */
static int drain_search(void *arg, struct loop *loop, struct slot *slot, struct err *err)
{
    struct step_beam *b = arg;
    struct beam_search *search = &b->search[slot_index(loop, slot)];
    if (!search->max_length)
        return 0;
    return beam_finalize(search, err) < 0 ? -1 : append_best(b, loop, slot, b->logits, err);
}

/* Ends a cancelled request. */
static int cancel_search(struct step_beam *b, struct loop *loop, struct slot *slot, struct err *err)
{
    if (drain_search(b, loop, slot, err) < 0)
        return -1;
    b->search[slot_index(loop, slot)].max_length = 0;
    return slot->busy ? loop_finish(loop, slot, FINISHED_CANCELLED, NULL, err) : 0;
}

/* The argument of is_end(): the request whose end tokens count. */
struct end_query {
    const struct loop *loop;
    const struct gen_request *request;
};

static bool is_end(const void *arg, uint32_t id)
{
    const struct end_query *a = arg;
    return loop_is_end_token(a->loop, a->request, id);
}

static size_t count_ends(const struct loop *loop, const struct gen_request *request)
{
    return request->ignore_eos ? 0
                               : request->turn_end.n_ids + session_model(loop->session)->config.n_eos;
}

/* Sets b->mask to the tokens that may follow each path; fails if there are none for any of them. */
static int constrain_paths(struct step_beam *b, const struct slot *slot, size_t index, struct err *err)
{
    const struct constraint_cursor *at = &b->at[index * b->width];
    bool any = false;
    for (size_t i = 0; i < b->search[index].n_paths; i++) {
        if (token_mask_set(&b->mask[i], at[i].constraint, at[i].state, &slot->ends, err) < 0)
            return -1;
        any = any || b->mask[i].any;
    }
    return any ? 0
               : err_set(err, "no token of the vocabulary continues a beam as the constraint asks for");
}

/* Moves the cursors of a slot's paths over their newest tokens. */
static int follow_constraint(struct step_beam *b, size_t index, struct err *err)
{
    const struct beam_search *search = &b->search[index];
    struct constraint_cursor *at = &b->at[index * b->width];
    uint32_t state[BEAM_MOST];
    for (size_t i = 0; i < search->n_paths; i++)
        state[i] = at[search->parent[i]].state;
    for (size_t i = 0; i < search->n_paths; i++)
        constraint_set(&at[i], state[i]);
    for (size_t i = 0; i < search->n_paths; i++)
        if (constraint_advance(&at[i], search->id[i], err) < 0)
            return -1;
    return 0;
}

/* Extends the slot's paths by a token each; then reorders their KV cache sequences accordingly, or
 * finishes the request if the search is done. */
static int advance_paths(struct step_beam *b, struct loop *loop, struct slot *slot, const float *logits,
                         struct err *err)
{
    const struct gen_request *request = slot->request;
    const struct end_query query = {loop, request};
    const size_t index = slot_index(loop, slot), vocab = session_vocab(loop->session);
    struct beam_search *search = &b->search[index];
    const bool constrained = request->constraint != NULL;
    struct err why;
    if (loop_ask(loop, slot, err) < 0)
        return -1;
    if (loop_is_cancelled(request))
        return cancel_search(b, loop, slot, err);
    for (size_t i = 0; i < search->n_paths; i++)
        if (!logits_finite(logits + i * vocab, vocab)) {
            search->max_length = 0;
            return loop_finish_damaged(loop, slot, err);
        }
    if (constrained && constrain_paths(b, slot, index, &why) < 0) {
        search->max_length = 0;
        return loop_refuse(loop, slot, &why, err);
    }
    if (beam_step(search, logits, vocab, constrained ? b->mask : NULL, is_end, &query,
                  count_ends(loop, request), err) < 0 ||
        (constrained && follow_constraint(b, index, err) < 0))
        return -1;
    return search->n_paths ? session_reorder(loop->session, b->seq + index * b->width, search->parent,
                                             b->width, err)
                           : finish_search(b, loop, slot, logits, err);
}

static const char *beam_conflict(const void *arg, const struct loop *loop, const struct slot *slot)
{
    const struct step_beam *b = arg;
    const struct sampler_options *o = loop_sampling(loop, slot);
    const struct gen_request *request = slot->request;
    const size_t n_ends = count_ends(loop, request);
    if (o->temp > 0)
        return "beam search is deterministic: it needs temperature 0";
    if (o->repeat_penalty != 1 || o->presence_penalty != 0 || o->frequency_penalty != 0 ||
        dry_is_on(o) || o->n_biases)
        return "beam search does not support penalties or logit biases";
    if (request->stop.n || request->turn_end.stop.n)
        return "beam search does not support stop strings";
    if (request->constraint && n_ends == 0)
        return "a constraint under beam search needs tokens that end the text: leave ignore_eos out";
    if (request->logprobs)
        return "beam search does not report log-probabilities of tokens: each beam has a score";
    if ((2 + n_ends) * b->width > session_vocab(loop->session))
        return "there are too many beams for the size of the vocabulary";
    return NULL;
}

static int first_beam_step(void *arg, struct loop *loop, struct slot *slot, const float *logits,
                           struct err *err)
{
    struct step_beam *b = arg;
    const size_t index = slot_index(loop, slot);
    for (size_t i = 0; i < b->width; i++)
        b->seq[index * b->width + i] = loop_first_seq(loop, slot) + i;
    beam_begin(&b->search[index], size_min(slot->request->n, loop_remaining(loop, slot)));
    for (size_t i = 0; i < b->width; i++) {
        b->search[index].parent[i] = 0;
        if (constraint_begin(&b->at[index * b->width + i], slot->request->constraint, err) < 0)
            return -1;
    }
    return advance_paths(b, loop, slot, logits, err);
}

/* Computes the slot's paths again, but for their newest tokens, as their rotary frequencies change. */
static int recompute_paths(const struct step_beam *b, struct loop *loop, const struct slot *slot,
                           struct err *err)
{
    const size_t index = slot_index(loop, slot);
    const struct beam_search *search = &b->search[index];
    const size_t *seq = b->seq + index * b->width, total = slot->n_prompt + search->length;
    AUTO(ids_release) struct ids path = {0};
    int rc = 0;
    for (size_t i = 0; i < b->width; i++) {
        session_clear(loop->session, seq[i]);
        session_begin(loop->session, seq[i], total, loop_planned(loop, slot));
    }
    for (size_t i = 0; i < b->width && rc == 0; i++) {
        path.len = 0;
        rc = beam_path_ids(search, i, &path, err);
        if (rc == 0)
            rc = i ? session_fork(loop->session, seq[i], seq[0], slot->n_prompt, err)
                   : loop_feed(loop, seq[0], slot->ids->id, slot->n_prompt, err);
        if (rc == 0)
            rc = loop_feed(loop, seq[i], path.id, path.len - 1, err);
    }
    return rc;
}

/* Runs a forward pass over the newest token of every path; sets b->logits, slot by slot. */
static int compute_paths(struct step_beam *b, struct loop *loop, struct err *err)
{
    size_t n = 0;
    for (size_t p = 0; p < loop->n_slots; p++)
        if (loop->slot[p].busy && session_unscaled(loop->session, b->seq[p * b->width]) == 0 &&
            recompute_paths(b, loop, &loop->slot[p], err) < 0)
            return -1;
    for (size_t p = 0; p < loop->n_slots; p++)
        for (size_t i = 0; loop->slot[p].busy && i < b->width; i++)
            b->row[n++] = batch_add(loop->session, b->seq[p * b->width + i], &b->search[p].id[i], 1);
    if (session_run(loop->session, session_options(loop->session)->threads, err) < 0 ||
        session_logits(loop->session, b->row, n, b->logits, err) < 0)
        return -1;
    loop->stats->decode_tokens += n;
    loop->stats->decode_steps++;
    return 0;
}

static int beam_step_all(void *arg, struct loop *loop, struct err *err)
{
    struct step_beam *b = arg;
    const float *logits = b->logits;
    const double start = clock_ms();
    if (compute_paths(b, loop, err) < 0)
        return -1;
    const double computed = clock_ms();
    for (size_t p = 0; p < loop->n_slots; p++) {
        if (!loop->slot[p].busy)
            continue;
        if (advance_paths(b, loop, &loop->slot[p], logits, err) < 0)
            return -1;
        logits += b->width * session_vocab(loop->session);
    }
    loop->stats->decode_ms += computed - start;
    loop->stats->sample_ms += clock_ms() - computed;
    return 0;
}

static int alloc_buffers(struct step_beam *b, const struct session *session,
                         const struct beam_options *options, struct err *err)
{
    const size_t rows = b->n_slots * b->width, vocab = session_vocab(session);
    size_t logits;
    b->search = mem_zalloc(b->n_slots, sizeof *b->search);
    b->seq = mem_zalloc(rows, sizeof *b->seq);
    b->row = mem_zalloc(rows, sizeof *b->row);
    b->at = mem_zalloc(rows, sizeof *b->at);
    b->mask = mem_zalloc(b->width, sizeof *b->mask);
    if (size_mul(rows, vocab * sizeof *b->logits, &logits))
        b->logits = mem_alloc(1, logits);
    if (!b->search || !b->seq || !b->row || !b->logits || !b->at || !b->mask)
        return err_no_memory(err, "the logits of %zu beams", rows);
    for (size_t p = 0; p < b->n_slots; p++)
        if (beam_open(&b->search[p], options, err) < 0)
            return -1;
    return 0;
}

int step_beam_open(struct step_beam **out, const struct session *session,
                   const struct beam_options *options, size_t n_best, struct err *err)
{
    struct step_beam *b = *out = mem_zalloc(1, sizeof *b);
    if (!b)
        return err_no_memory(err, "beams");
    if (options->width > BEAM_MOST) {
        free(b);
        *out = NULL;
        return err_set(err, "%zu beams: at most %d are supported", options->width, BEAM_MOST);
    }
    *b = (struct step_beam){
        .strategy = {.name = "beam",
                     .revises = true,
                     .width = options->width,
                     .conflict = beam_conflict,
                     .first = first_beam_step,
                     .step = beam_step_all,
                     .drain = drain_search,
                     .arg = b},
        .width = options->width,
        .n_best = n_best,
        .n_slots = session_options(session)->batch / options->width,
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
    for (size_t p = 0; b->search && p < b->n_slots; p++)
        beam_close(&b->search[p]);
    for (size_t i = 0; b->at && i < b->n_slots * b->width; i++)
        constraint_end(&b->at[i]);
    for (size_t i = 0; b->mask && i < b->width; i++)
        token_mask_release(&b->mask[i]);
    free(b->at);
    free(b->mask);
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
