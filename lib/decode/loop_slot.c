/* The life of a slot: a request begins, takes tokens and ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"
#include "decode/rng.h"

static size_t vocab(const struct loop *loop) { return loop->session->model->config.vocab; }

size_t loop_generated(const struct slot *slot) { return slot->ids->len - slot->n_prompt; }

size_t loop_left(const struct loop *loop, const struct slot *slot)
{
    const size_t rows = session_rows(loop->session, slot->seq);
    const bool again = loop->session->options.recompute;
    const size_t left = again ? SIZE_MAX : session_left(loop->session, slot->seq);
    return left - size_min(left, slot->ids->len - size_min(slot->ids->len, rows));
}

const struct sampler_options *loop_sampling(const struct loop *loop, const struct slot *slot)
{
    return slot->request->sampling ? slot->request->sampling : loop->sampling;
}

/* ---- the end ---- */

static int set_line_hash(struct loop *loop, const struct slot *slot, struct err *err)
{
    const uint64_t line = slot->request->line;
    while (loop->n_lines <= line) {
        if (mem_grow(&loop->line_hash, &loop->lines_cap, loop->n_lines, sizeof *loop->line_hash, err) <
            0)
            return -1;
        loop->line_hash[loop->n_lines++] = (struct hash){0};
    }
    if (loop_generated(slot))
        loop->line_hash[line] = hash_of(slot->last_logits, vocab(loop) * sizeof(float));
    return 0;
}

static struct gen_result result_of(const struct loop *loop, const struct slot *slot,
                                   enum gen_finish finish, const char *error)
{
    const size_t n = loop_generated(slot);
    return (struct gen_result){
        .request = slot->request,
        .finish = finish,
        .error = error,
        .full = finish == FINISHED_LENGTH && n < slot->request->n,
        .ids = slot->ids->id + slot->n_prompt,
        .n_ids = n,
        .n_prompt = slot->n_prompt,
        .text = buf_text(&slot->emitter.text),
        .text_len = slot->emitter.text.len,
        .logprobs = slot->logprobs,
        .n_best = slot->n_best,
        .prompt_logprobs = slot->prompt_logprobs,
        .n_prompt_best = slot->n_prompt_best,
        .beams = slot->beams,
        .n_beams = slot->n_beams,
        .logits_hash = loop->line_hash[slot->request->line],
    };
}

/* Text and ids up to there, as far as they were not told yet. */
static int tell(struct loop *loop, struct slot *slot, size_t text, size_t n_ids, struct err *err)
{
    const struct gen_callbacks *cb = loop->callbacks;
    const size_t from = slot->told_text, first = slot->told_ids;
    if (!cb->progress)
        return 0;
    slot->told_text = text;
    slot->told_ids = n_ids;
    return cb->progress(cb->arg, slot->request,
                        slot->emitter.text.data ? slot->emitter.text.data + from : "", text - from,
                        slot->ids->id + slot->n_prompt + first, n_ids - first, err);
}

static void count_end(struct gen_stats *stats, const struct gen_result *result)
{
    const bool interrupted = gen_interrupted(result->error);
    stats->sequences++;
    stats->interrupted += interrupted;
    stats->finished[result->finish] += !interrupted;
    stats->context_full += result->full;
}

/* Rows that are complete may be saved. A failure ends the run, but only behind this step: its results go out. */
static void keep(struct loop *loop, const struct slot *slot, const struct gen_result *result)
{
    const struct gen_callbacks *cb = loop->callbacks;
    if (!cb->keep || loop->failed || !session_rows(loop->session, slot->seq) ||
        (result->finish == FINISHED_ERROR && !*loop->interrupted))
        return;
    loop->failed = cb->keep(cb->arg, slot->seq, result, &loop->failure) < 0;
}

/* The place is free. */
static void clear(struct loop *loop, struct slot *slot)
{
    loop_leave(loop, slot);
    free(slot->prompt_logprobs);
    slot->prompt_logprobs = NULL;
    slot->beams = NULL;
    slot->n_beams = 0;
    emitter_release(&slot->emitter);
    slot->busy = false;
    slot->request = NULL;
    slot->ids = NULL;
}

int loop_finish(struct loop *loop, struct slot *slot, enum gen_finish finish, const char *error,
                struct err *err)
{
    int rc = -1;
    /* A text that has ended can be continued, too: its last bytes belong to whoever goes on. */
    if (emitter_finish(&slot->emitter, slot->request->to_go_on, err) < 0 ||
        set_line_hash(loop, slot, err) < 0)
        goto out;
    const struct gen_result result = result_of(loop, slot, finish, error);
    if ((result.n_ids || finish != FINISHED_ERROR) &&
        tell(loop, slot, result.text_len, result.n_ids, err) < 0)
        goto out;
    count_end(loop->stats, &result);
    keep(loop, slot, &result);
    if (finish != FINISHED_ERROR)
        loop_remember(loop, slot); /* done() may free the ids */
    rc = loop->callbacks->done(loop->callbacks->arg, &result, err);
out:
    clear(loop, slot);
    return rc;
}

/* ---- the beginning ---- */

/* The first bias of an id that there is not; NULL when there is none. */
static const struct logit_bias *find_stray_bias(const struct loop *loop, const struct slot *slot)
{
    const struct sampler_options *o = loop_sampling(loop, slot);
    for (size_t i = 0; i < o->n_biases; i++)
        if (o->bias[i].id >= vocab(loop))
            return &o->bias[i];
    return NULL;
}

/* Of a request that the budget of memory does not hold. */
static void tell_too_large(const struct loop *loop, const struct slot *slot, char *text, size_t size)
{
    const size_t width = loop->strategy->width;
    char beams[48] = "";
    if (width > 1)
        snprintf(beams, sizeof beams, " in %zu beams", width);
    snprintf(
        text, size,
        "a prompt of %zu token%s and what may follow%s need %zu bytes of cache, --memory holds %zu: "
        "ask for fewer tokens%s, or raise it",
        slot->n_prompt, slot->n_prompt == 1 ? "" : "s", beams, loop_too_large(loop, slot->request),
        loop->session->options.memory_bytes, width > 1 ? " or beams" : "");
}

/* Of one whose prompt the cache's own limit does not hold. */
static void tell_beyond_limit(const struct slot *slot, size_t bytes, struct kv_need need, char *text,
                              size_t size)
{
    snprintf(text, size,
             "a prompt of %zu token%s needs %zu bytes of memory for its cache at least, and up to "
             "%zu with what may follow; ram=%zu allows less: give more, shorten it, or compute fewer "
             "of its tokens at a time",
             slot->n_prompt, slot->n_prompt == 1 ? "" : "s", bytes, need.least, need.most);
}

/* What makes a request impossible; NULL when nothing does. */
static const char *find_fault(const struct loop *loop, const struct slot *slot, char *text, size_t size)
{
    const size_t context = loop->session->options.context;
    const struct logit_bias *bias = find_stray_bias(loop, slot);
    struct kv_need need;
    const size_t beyond = loop_beyond_limit(loop, slot->request, &need);
    if (slot->n_prompt == 0)
        snprintf(text, size,
                 "the prompt is empty, without even a begin-of-text token: give some text to continue");
    else if (bias)
        snprintf(text, size, "a logit bias is given for id %u, the vocabulary has %zu", bias->id,
                 vocab(loop));
    else if (slot->n_prompt - session_rows(loop->session, slot->seq) >
             session_left(loop->session, slot->seq))
        snprintf(text, size, "the prompt has %zu tokens%s, the context holds %zu: shorten it%s",
                 slot->n_prompt, slot->request->from ? " with those of the snapshot" : "", context,
                 context < loop->session->model->config.context ? " or raise -c"
                                                                : "; the model takes no more");
    else if (loop_too_large(loop, slot->request))
        tell_too_large(loop, slot, text, size);
    else if (beyond)
        tell_beyond_limit(slot, beyond, need, text, size);
    else if (kv_setup(loop->session->kv)->window && session_ends(loop->session) &&
             !loop->session->options.recompute && slot->request->n != GENERATE_NO_LIMIT &&
             slot->request->n > context + 1 - slot->n_prompt)
        snprintf(text, size,
                 "prompt and answer become %zu tokens, and the model has learned positions for a "
                 "context of %zu: only --shift recompute, where they begin anew, goes beyond",
                 slot->n_prompt + slot->request->n, context);
    else {
        for (size_t i = 0; i < slot->n_prompt; i++)
            if (slot->ids->id[i] >= vocab(loop)) {
                snprintf(text, size, "prompt id %u is outside the vocabulary of %zu", slot->ids->id[i],
                         vocab(loop));
                return text;
            }
        return NULL;
    }
    return text;
}

/* The rows that a snapshot has; all of a prompt's rows only where no token is to be chosen. Those that cannot be used are computed
 * again. */
static int load_rows(struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct gen_request *request = slot->request;
    const size_t wanted = size_min(request->from_rows, slot->n_prompt - (request->n > 0));
    const double start = clock_ms();
    const size_t rows =
        request->from ? snapshot_tokens_of_rows(loop->session, request->from, request->from_seq, wanted)
                      : 0;
    if (!rows)
        return 0;
    if (snapshot_load(loop->session, slot->seq, request->from, request->from_seq, rows, err) < 0)
        return -1;
    loop->stats->loaded_tokens += rows;
    loop->stats->load_kv_ms += clock_ms() - start;
    return 0;
}

/* What a request needs before its first step. */
static int prepare(struct loop *loop, struct slot *slot, struct err *err)
{
    if (slot->n_prompt_best && !(slot->prompt_logprobs = logprobs_unknown(slot->ids->id, slot->n_prompt,
                                                                          slot->n_prompt_best, err)))
        return -1;
    return load_rows(loop, slot, err);
}

int loop_begin(struct loop *loop, struct slot *slot, const struct gen_request *request, struct err *err)
{
    char fault[256];
    struct err why;
    slot->busy = true;
    slot->silent = false;
    slot->seq = loop_first_seq(loop, slot);
    slot->request = request;
    slot->ids = request->ids;
    slot->n_prompt = request->ids->len;
    slot->n_best = size_min(request->logprobs, vocab(loop));
    slot->n_prompt_best = size_min(request->prompt_logprobs, vocab(loop));
    slot->told_text = slot->told_ids = 0;
    slot->row = SIZE_MAX;
    slot->dropped = 0;
    const size_t length = slot->n_prompt + size_min(request->n, loop->session->options.context);
    for (size_t i = 0; i < loop->strategy->width; i++)
        session_begin(loop->session, slot->seq + i, length);
    loop_reuse(loop, slot);
    emitter_init(&slot->emitter, loop->session->model->tok, request->stop, request->n_stops);
    const char *error = find_fault(loop, slot, fault, sizeof fault);
    if (error)
        return loop_finish(loop, slot, FINISHED_ERROR, error, err);
    if (emitter_follow(&slot->emitter, slot->ids->id, slot->n_prompt, err) < 0)
        return -1;
    if (prepare(loop, slot, &why) < 0)
        return loop_finish(loop, slot, FINISHED_ERROR, why.text, err);
    if (session_rows(loop->session, slot->seq) == slot->n_prompt)
        return loop_finish(loop, slot, FINISHED_LENGTH, NULL, err); /* nothing to compute */
    return 0;
}

/* ---- tokens ---- */

uint32_t loop_choose(struct loop *loop, const struct slot *slot, const float *logits)
{
    const struct gen_request *request = slot->request;
    const double u = rng_uniform(request->seed, request->stream, (uint32_t)slot->ids->len, 0);
    loop->sampler.options = *loop_sampling(loop, slot);
    return sampler_choose(&loop->sampler, logits, slot->ids->id, slot->ids->len, u);
}

/* Of the token that the slot has just got: its own log-probability and the best ones'. */
static int add_logprobs(struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    const size_t k = slot->n_best, at = (loop_generated(slot) - 1) * (k + 1);
    while (slot->logprobs_cap < at + k + 1)
        if (mem_grow(&slot->logprobs, &slot->logprobs_cap, slot->logprobs_cap, sizeof *slot->logprobs,
                     err) < 0)
            return -1;
    return logprobs_of(&loop->scratch, logits, slot->ids->id[slot->ids->len - 1], k,
                       slot->logprobs + at, err);
}

bool loop_ends(const struct loop *loop, const struct gen_request *request, uint32_t id)
{
    for (size_t i = 0; i < request->n_ends; i++)
        if (request->end[i] == id)
            return !request->ignore_eos;
    return !request->ignore_eos && model_is_eos(loop->session->model, id);
}

int loop_take(struct loop *loop, struct slot *slot, uint32_t id, const float *logits, struct err *err)
{
    const struct gen_request *request = slot->request;
    loop->stats->sampled_tokens++;
    if (loop_ends(loop, request, id))
        return loop_finish(loop, slot, FINISHED_EOS, NULL, err);
    memcpy(slot->last_logits, logits, vocab(loop) * sizeof *logits);
    if (ids_add(slot->ids, id, err) < 0 ||
        (slot->n_best && add_logprobs(loop, slot, logits, err) < 0) ||
        emitter_add(&slot->emitter, id, err) < 0)
        return -1;
    if (slot->emitter.stopped)
        return loop_finish(loop, slot, FINISHED_STOP, NULL, err);
    if (loop_generated(slot) >= request->n || loop_left(loop, slot) == 0)
        return loop_finish(loop, slot, FINISHED_LENGTH, NULL, err);
    return tell(loop, slot, slot->emitter.shown, loop_generated(slot), err);
}
