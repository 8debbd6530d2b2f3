/* Requests in slots: starting them, appending their tokens, and delivering their results. */
#include "base/clock.h"
#include "base/mem.h"
#include "decode/loop.h"

static size_t vocab_of(const struct loop *loop) { return session_vocab(loop->session); }

size_t loop_in_flight(const struct loop *loop)
{
    size_t n = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        n += loop->slot[i].busy;
    return n;
}

size_t loop_generated(const struct slot *slot) { return slot->ids->len - slot->n_prompt; }

size_t loop_remaining(const struct loop *loop, const struct slot *slot)
{
    const size_t rows = session_length(loop->session, slot->seq);
    const bool again = session_options(loop->session)->recompute;
    const size_t left = again ? SIZE_MAX : session_remaining(loop->session, slot->seq);
    return left - size_min(left, slot->ids->len - size_min(slot->ids->len, rows));
}

const struct sampler_options *loop_sampling(const struct loop *loop, const struct slot *slot)
{
    return slot->request->sampling ? slot->request->sampling : loop->sampling;
}

/* Sets the hash of the slot's answer, and adds it to that of its line, which it becomes. */
static int set_hash(struct loop *loop, struct slot *slot, struct err *err)
{
    const uint64_t line = slot->request->line;
    slot->hash = loop_generated(slot) ? hash_of(slot->last_logits, vocab_of(loop) * sizeof(float))
                                      : (struct hash){0};
    if (line == GENERATE_NO_LINE)
        return 0;
    while (loop->n_lines <= line) {
        if (mem_grow(&loop->line_hash, &loop->lines_cap, loop->n_lines, sizeof *loop->line_hash, err) <
            0)
            return -1;
        loop->line_hash[loop->n_lines++] = (struct hash){0};
    }
    hash_sum(&loop->line_hash[line], &slot->hash);
    slot->hash = loop->line_hash[line];
    return 0;
}

static struct gen_result result_of(const struct slot *slot, enum gen_finish finish,
                                   const struct err *error)
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
        .n_cached = slot->n_cached,
        .text = buf_text(&slot->text_streamer.text),
        .text_len = slot->text_streamer.text.len,
        .logprobs = slot->logprobs,
        .n_best = slot->n_best,
        .prompt_logprobs = slot->prompt_logprobs,
        .n_prompt_best = slot->n_prompt_best,
        .mirostat_mu = slot->mirostat_mu,
        .beams = slot->beams,
        .n_beams = slot->n_beams,
        .logits_hash = slot->hash,
    };
}

/* Passes new output to the progress() callback: of the first `text` bytes and `n_ids` tokens
 * generated, those that it has not received yet. */
static int stream_output(struct loop *loop, struct slot *slot, size_t text, size_t n_ids,
                         struct err *err)
{
    const struct gen_callbacks *cb = loop->callbacks;
    const size_t from = slot->streamed_text, first = slot->streamed_ids;
    if (!cb->progress)
        return 0;
    slot->streamed_text = text;
    slot->streamed_ids = n_ids;
    const struct gen_result more = {
        .request = slot->request,
        .ids = slot->ids->id + slot->n_prompt + first,
        .n_ids = n_ids - first,
        .text = slot->text_streamer.text.data ? slot->text_streamer.text.data + from : "",
        .text_len = text - from,
        .logprobs = slot->n_best ? slot->logprobs + first * (slot->n_best + 1) : NULL,
        .n_best = slot->n_best,
    };
    return cb->progress(cb->arg, &more, err);
}

int loop_ask(struct loop *loop, struct slot *slot, struct err *err)
{
    return stream_output(loop, slot, slot->streamed_text, slot->streamed_ids, err);
}

static void count_end(struct gen_stats *stats, const struct gen_result *result)
{
    const bool interrupted = result->error && result->error->code == ERR_INTERRUPTED;
    stats->sequences++;
    stats->interrupted += interrupted;
    stats->finished[result->finish] += !interrupted;
    stats->context_full += result->full;
}

/* Calls callbacks->keep(), which may save the sequence as a snapshot. If that fails, the run ends
 * after the results of this step. */
static void keep_sequence(struct loop *loop, const struct slot *slot, const struct gen_result *result)
{
    const struct gen_callbacks *cb = loop->callbacks;
    if (!cb->keep || loop->failed || !session_length(loop->session, slot->seq) ||
        (result->finish == FINISHED_ERROR && !__atomic_load_n(loop->interrupted, __ATOMIC_RELAXED)))
        return;
    loop->failed = cb->keep(cb->arg, slot->seq, result, &loop->failure) < 0;
}

static void free_slot(struct loop *loop, struct slot *slot)
{
    prefix_store_unclaim(loop, slot);
    prefix_cache_release(loop, slot);
    free(slot->prompt_logprobs);
    slot->prompt_logprobs = NULL;
    slot->beams = NULL;
    slot->n_beams = 0;
    text_streamer_release(&slot->text_streamer);
    loop_phase_end(slot);
    slot->busy = false;
    slot->request = NULL;
    slot->ids = NULL;
}

int loop_finish(struct loop *loop, struct slot *slot, enum gen_finish finish, const struct err *error,
                struct err *err)
{
    const struct gen_watch *watch = loop->callbacks->watch;
    int rc = -1;
    if (loop->strategy->commit)
        loop->strategy->commit(loop->strategy->arg, loop, slot);
    if (text_streamer_finish(&slot->text_streamer, slot->request->hold_partial_utf8, err) < 0 ||
        set_hash(loop, slot, err) < 0)
        goto out;
    const struct gen_result result = result_of(slot, finish, error);
    if ((result.n_ids || finish != FINISHED_ERROR) &&
        stream_output(loop, slot, result.text_len, result.n_ids, err) < 0)
        goto out;
    count_end(loop->stats, &result);
    keep_sequence(loop, slot, &result);
    if (finish != FINISHED_ERROR) { /* before done(), which may free the ids */
        prefix_store_add(loop, slot, true);
        prefix_cache_retain(loop, slot);
    }
    if (watch && watch->ended(watch->arg, (size_t)(slot - loop->slot), &result, err) < 0)
        goto out;
    rc = loop->callbacks->done(loop->callbacks->arg, &result, err);
out:
    free_slot(loop, slot);
    return rc;
}

int loop_refuse(struct loop *loop, struct slot *slot, struct err *why, struct err *err)
{
    if (why->code == ERR_FAILED)
        why->code = ERR_INVALID;
    return loop_finish(loop, slot, FINISHED_ERROR, why, err);
}

int loop_finish_damaged(struct loop *loop, struct slot *slot, struct err *err)
{
    struct err why;
    session_refuse_output(loop->session, "the model", "logits", &why);
    return loop_finish(loop, slot, FINISHED_ERROR, &why, err);
}

/* ---- checks of a request: each fails with the reason why it cannot be served ---- */

static int check_prompt(const struct loop *loop, const struct slot *slot, struct err *err)
{
    if (slot->n_prompt == 0)
        return err_set(err, "the prompt is empty, and the model adds no BOS token: give some text");
    for (size_t i = 0; i < slot->n_prompt; i++)
        if (slot->ids->id[i] >= vocab_of(loop))
            return err_set(err, "prompt id %u is outside the vocabulary of %zu", slot->ids->id[i],
                           vocab_of(loop));
    return 0;
}

static int check_biases(const struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct sampler_options *o = loop_sampling(loop, slot);
    for (size_t i = 0; i < o->n_biases; i++)
        if (o->bias[i].id >= vocab_of(loop))
            return err_set(err, "logit bias for id %u, which is outside the vocabulary of %zu",
                           o->bias[i].id, vocab_of(loop));
    return 0;
}

static int check_mirostat(const struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct sampler_options *o = loop_sampling(loop, slot);
    return o->mirostat && o->temp > 0 && loop->strategy->revises
               ? err_set(
                     err,
                     "Mirostat adapts to each token that is sampled: leave --beams, --spec-sampling "
                     "rejection and --simulate-acceptance out")
               : 0;
}

static int check_length(const struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct session *session = loop->session;
    const size_t context = session_options(session)->context;
    if (slot->n_prompt - session_length(session, slot->seq) <= session_remaining(session, slot->seq))
        return 0;
    return err_code(err, ERR_FULL, "the prompt has %zu tokens%s, the context holds %zu: shorten it%s",
                    slot->n_prompt, slot->request->from ? " with those of the snapshot" : "", context,
                    context < session_model(session)->config.context ? " or raise -c"
                                                                     : "; the model takes no more");
}

static int check_budget(const struct loop *loop, const struct slot *slot, struct err *err)
{
    const size_t width = loop->strategy->width, bytes = admission_over_budget(loop, slot->request);
    char beams[48] = "";
    if (!bytes)
        return 0;
    if (width > 1)
        snprintf(beams, sizeof beams, " in %zu beams", width);
    return err_set(
        err,
        "a prompt of %zu token%s and its continuation%s need %zu bytes of KV cache, --memory "
        "allows %zu: ask for fewer tokens%s, or raise it",
        slot->n_prompt, slot->n_prompt == 1 ? "" : "s", beams, bytes,
        session_options(loop->session)->memory_bytes, width > 1 ? " or beams" : "");
}

static int check_cache_limit(const struct loop *loop, const struct slot *slot, struct err *err)
{
    struct kv_footprint need;
    const size_t bytes = admission_over_limit(loop, slot->request, &need);
    return bytes ? err_set(err,
                           "a prompt of %zu token%s needs %zu bytes of memory for its KV cache, and up "
                           "to %zu with its continuation; ram=%zu is too small: raise it, shorten the "
                           "prompt or use a smaller --chunk",
                           slot->n_prompt, slot->n_prompt == 1 ? "" : "s", bytes, need.floor,
                           kv_offload(session_kv(loop->session)).ram)
                 : 0;
}

/* Fails if the request may exceed the context with a rolling cache, but the model has learned
 * position embeddings, which end there. */
static int check_positions(const struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct session *session = loop->session;
    const struct session_options *o = session_options(session);
    const size_t n = slot->request->n;
    if (!kv_setup(session_kv(session))->window || !session_is_bounded(session) || o->recompute ||
        n == GENERATE_NO_LIMIT || n <= o->context + 1 - slot->n_prompt)
        return 0;
    return err_set(err,
                   "prompt and answer have %zu tokens, but the model has learned positions for a "
                   "context of %zu: lower -n, or use bmc-gen --context-shift recompute",
                   slot->n_prompt + n, o->context);
}

static int check_strategy(const struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    const char *conflict = strategy->conflict ? strategy->conflict(strategy->arg, loop, slot) : NULL;
    return conflict ? err_set(err, "%s", conflict) : 0;
}

static int check_markers(const struct loop *loop, const struct slot *slot, struct err *err)
{
    return slot->request->markers && loop->strategy->width > 1
               ? err_set(err, "beam search has neither reasoning budgets nor tool choices")
               : 0;
}

static int check_request(const struct loop *loop, const struct slot *slot, struct err *err)
{
    static int (*const checks[])(const struct loop *, const struct slot *, struct err *) = {
        check_prompt, check_biases, check_mirostat,    check_markers,  check_strategy,
        check_length, check_budget, check_cache_limit, check_positions};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(checks) && rc == 0; i++)
        rc = checks[i](loop, slot, err);
    return rc;
}

/* Loads the prompt's KV entries from the snapshot, except the last token's if its logits are
 * needed. Prefill computes those that cannot be loaded. */
static int load_snapshot(struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct gen_request *request = slot->request;
    const size_t compute = size_max(request->n > 0, loop->strategy->computed);
    const size_t wanted = size_min(size_min(request->from_rows, slot->convert_at),
                                   slot->n_prompt - size_min(slot->n_prompt, compute));
    const double start = clock_ms();
    const bool fits = request->from && !session_scaled(loop->session, slot->seq);
    const size_t rows =
        fits ? snapshot_tokens_of_rows(loop->session, request->from, request->from_seq, wanted) : 0;
    if (!rows)
        return 0;
    if (snapshot_load(loop->session, slot->seq, request->from, request->from_seq, rows, err) < 0)
        return -1;
    loop->stats->loaded_tokens += rows;
    loop->stats->load_kv_ms += clock_ms() - start;
    return 0;
}

/* ---- the life of a slot ---- */

static int prepare_slot(struct loop *loop, struct slot *slot, struct err *err)
{
    if (slot->n_prompt_best && !(slot->prompt_logprobs = logprobs_alloc(slot->ids->id, slot->n_prompt,
                                                                        slot->n_prompt_best, err)))
        return -1;
    return load_snapshot(loop, slot, err);
}

int loop_begin(struct loop *loop, struct slot *slot, const struct gen_request *request, struct err *err)
{
    const struct gen_watch *watch = loop->callbacks->watch;
    struct err why;
    if (watch && watch->begin(watch->arg, (size_t)(slot - loop->slot), request, err) < 0)
        return -1;
    slot->busy = true;
    slot->prefill_only = false;
    slot->seq = loop_first_seq(loop, slot);
    slot->request = request;
    slot->ids = request->ids;
    slot->n_prompt = request->ids->len;
    slot->n_best = size_min(request->logprobs, vocab_of(loop));
    slot->n_prompt_best = size_min(request->prompt_logprobs, vocab_of(loop));
    slot->streamed_text = slot->streamed_ids = 0;
    slot->row = SIZE_MAX;
    slot->n_discarded = 0;
    slot->n_cached = slot->n_prompt;
    pressure_begin(loop, slot);
    prefix_store_start(loop, slot);
    slot->mirostat_mu = sampler_mirostat_begin(loop_sampling(loop, slot));
    const size_t length = loop_planned(loop, slot);
    for (size_t i = 0; i < loop->strategy->width; i++) {
        session_begin(loop->session, slot->seq + i, slot->n_prompt, length);
        session_adapt(loop->session, slot->seq + i, request->lora_factor);
    }
    prefix_cache_reuse(loop, slot);
    text_streamer_init(&slot->text_streamer, session_model(loop->session)->tok, request);
    if (check_request(loop, slot, &why) < 0 || loop_phase_begin(loop, slot, &why) < 0)
        return loop_refuse(loop, slot, &why, err);
    if (text_streamer_resume(&slot->text_streamer, slot->ids->id, slot->n_prompt, err) < 0)
        return -1;
    if (prepare_slot(loop, slot, &why) < 0)
        return loop_finish(loop, slot, FINISHED_ERROR, &why, err);
    if (session_length(loop->session, slot->seq) == slot->n_prompt)
        return loop_finish(loop, slot, FINISHED_LENGTH, NULL, err); /* loaded from the snapshot */
    return 0;
}

uint32_t loop_sample_token(struct loop *loop, struct slot *slot, const float *logits)
{
    const struct gen_request *request = slot->request;
    sampler_begin(&loop->sampler, loop_sampling(loop, slot), request->seed, request->stream,
                  (uint32_t)slot->ids->len);
    loop->sampler.mirostat_mu = slot->mirostat_mu;
    const uint32_t id = sampler_sample(&loop->sampler, logits, slot->ids->id, slot->ids->len);
    slot->mirostat_mu = sampler_mirostat_next(&loop->sampler, id);
    return id;
}

/* Stores the log-probabilities of the slot's newest token and of the n_best most likely ones. */
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

bool loop_is_cancelled(const struct gen_request *request)
{
    return request->cancelled && __atomic_load_n(request->cancelled, __ATOMIC_RELAXED);
}

bool loop_is_end_token(const struct loop *loop, const struct gen_request *request, uint32_t id)
{
    for (size_t i = 0; i < request->turn_end.n_ids; i++)
        if (request->turn_end.id[i] == id)
            return !request->ignore_eos;
    return !request->ignore_eos && model_is_eos(session_model(loop->session), id);
}

/* True if the last tokens are a phrase that is repeated: gen_request.end_repetition. */
static bool repeats_phrase(const uint32_t *id, size_t n)
{
    enum { MOST_PHRASE = 256, LEAST_TIMES = 4, LEAST_TOKENS = 256 };
    for (size_t phrase = 1; phrase <= MOST_PHRASE; phrase++) {
        const size_t len = size_max(LEAST_TOKENS, LEAST_TIMES * phrase);
        if (len > n)
            return false;
        if (memcmp(id + n - len, id + n - len + phrase, (len - phrase) * sizeof *id) == 0)
            return true;
    }
    return false;
}

static bool ends_by_repetition(const struct loop *loop, const struct slot *slot)
{
    const struct gen_request *request = slot->request;
    return request->end_repetition && !request->ignore_eos && !loop_constraint(slot) &&
           loop_sampling(loop, slot)->temp > 0 &&
           repeats_phrase(slot->ids->id + slot->n_prompt, loop_generated(slot));
}

int loop_append(struct loop *loop, struct slot *slot, uint32_t id, const float *logits, struct err *err)
{
    const struct gen_request *request = slot->request;
    const struct gen_watch *watch = loop->callbacks->watch;
    struct err why;
    bool complete;
    loop->stats->sampled_tokens++;
    if (watch && watch->chosen(watch->arg, (size_t)(slot - loop->slot), id, logits, err) < 0)
        return -1;
    if (slot->phase.now != PHASE_CLOSING && loop_is_end_token(loop, request, id))
        return loop_finish(loop, slot, FINISHED_EOS, NULL, err);
    memcpy(slot->last_logits, logits, vocab_of(loop) * sizeof *logits);
    if (ids_add(slot->ids, id, err) < 0)
        return -1;
    if (slot->n_best && add_logprobs(loop, slot, logits, err) < 0) {
        slot->ids->len--; /* results have log-probabilities for every token */
        return -1;
    }
    if (text_streamer_add(&slot->text_streamer, id, err) < 0)
        return -1;
    if (slot->text_streamer.stopped)
        return loop_finish(loop, slot, FINISHED_STOP, NULL, err);
    if (loop_phase_advance(loop, slot, id, &complete, &why) < 0)
        return loop_refuse(loop, slot, &why, err);
    if (complete)
        return loop_finish(loop, slot, FINISHED_EOS, NULL, err);
    if (ends_by_repetition(loop, slot))
        return loop_finish(loop, slot, FINISHED_REPETITION, NULL, err);
    if (loop_generated(slot) >= request->n || loop_remaining(loop, slot) == 0)
        return loop_finish(loop, slot, FINISHED_LENGTH, NULL, err);
    /* tokens of several beams arrive when the search has ended */
    if (loop->strategy->width == 1 && loop_is_cancelled(request))
        return loop_finish(loop, slot, FINISHED_CANCELLED, NULL, err);
    return stream_output(loop, slot, slot->text_streamer.ready, loop_generated(slot), err);
}
