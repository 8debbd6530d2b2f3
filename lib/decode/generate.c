/* The generation loop. */
#include "decode/generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "decode/logprobs.h"
#include "decode/loop.h"
#include "decode/rng.h"

enum { LOGITS_HASH_BYTES = 8 };

static const char INTERRUPTED[] = "interrupted"; /* the error of sequences that a signal ended */

const char *gen_finish_name(enum gen_finish finish)
{
    static const char *const names[] = {"length", "eos", "stop", "error"};
    return names[finish];
}

static size_t vocab(const struct loop *loop) { return loop->session->model->config.vocab; }

size_t loop_generated(const struct slot *slot) { return slot->all.len - slot->request.n_prompt; }

const struct sampler_options *loop_sampling(const struct loop *loop, const struct slot *slot)
{
    return slot->request.sampling ? slot->request.sampling : &loop->sampling;
}

uint32_t loop_choose(struct loop *loop, const struct slot *slot, const float *logits)
{
    const struct gen_request *request = &slot->request;
    const double u = rng_uniform(request->seed, request->stream, (uint32_t)slot->all.len, 0);
    loop->sampler.options = *loop_sampling(loop, slot);
    return sampler_choose(&loop->sampler, logits, slot->all.id, slot->all.len, u);
}

/* ---- beginnings and ends ---- */

static int set_line_hash(struct loop *loop, uint64_t line, const struct hash *hash, struct err *err)
{
    while (loop->n_lines <= line) {
        if (mem_grow(&loop->line_hash, &loop->lines_cap, loop->n_lines, sizeof *loop->line_hash, err) <
            0)
            return -1;
        loop->line_hash[loop->n_lines++] = (struct hash){0};
    }
    loop->line_hash[line] = *hash;
    return 0;
}

/* Rows that are complete may be saved. A failure ends the run, but only behind this step: its results go out. */
static void keep(struct loop *loop, size_t seq, const struct gen_result *result)
{
    const struct gen_callbacks *cb = loop->callbacks;
    if (!cb->keep || loop->failed || !session_rows(loop->session, seq) ||
        (result->finish == FINISHED_ERROR && !*loop->interrupted))
        return;
    loop->failed = cb->keep(cb->arg, seq, result, &loop->failure) < 0;
}

int loop_finish(struct loop *loop, struct slot *slot, enum gen_finish finish, const char *error,
                struct err *err)
{
    const size_t n = loop_generated(slot), seq = (size_t)(slot - loop->slot);
    int rc = -1;
    /* A text that has ended can be continued, too: its last bytes belong to whoever goes on. */
    if (emitter_finish(&slot->emitter, slot->request.to_go_on, err) < 0)
        goto out;
    const struct hash hash =
        n ? hash_of(slot->last_logits, vocab(loop) * sizeof(float)) : (struct hash){0};
    if (set_line_hash(loop, slot->request.line, &hash, err) < 0)
        goto out;
    const struct gen_result result = {
        .request = &slot->request,
        .finish = finish,
        .error = error,
        .full = finish == FINISHED_LENGTH && n < slot->request.n,
        .ids = slot->all.id + slot->request.n_prompt,
        .n_ids = n,
        .text = slot->emitter.text.data ? slot->emitter.text.data : "",
        .text_len = slot->emitter.text.len,
        .logprobs = slot->logprobs,
        .prompt_logprobs = slot->prompt_logprobs,
    };
    const struct gen_callbacks *cb = loop->callbacks;
    if (cb->progress && (n || finish != FINISHED_ERROR) &&
        cb->progress(cb->arg, &slot->request, result.text + slot->told_text,
                     result.text_len - slot->told_text, result.ids + slot->told_ids, n - slot->told_ids,
                     err) < 0)
        goto out;
    loop->stats->sequences++;
    loop->stats->interrupted += error == INTERRUPTED;
    loop->stats->finished[finish] += error != INTERRUPTED;
    loop->stats->context_full += result.full;
    keep(loop, seq, &result);
    rc = cb->done(cb->arg, &result, err);
out:
    free(slot->prompt_logprobs);
    slot->prompt_logprobs = NULL;
    emitter_release(&slot->emitter);
    slot->all.len = 0;
    slot->busy = false;
    session_drop(loop->session, seq);
    return rc;
}

/* The first bias of an id that there is not; NULL when there is none. */
static const struct logit_bias *find_stray_bias(const struct loop *loop,
                                                const struct gen_request *request)
{
    const struct sampler_options *o = request->sampling ? request->sampling : &loop->sampling;
    for (size_t i = 0; i < o->n_biases; i++)
        if (o->bias[i].id >= vocab(loop))
            return &o->bias[i];
    return NULL;
}

/* What makes a request impossible; NULL when nothing does. */
static const char *find_fault(const struct loop *loop, const struct gen_request *request, char *text,
                              size_t size)
{
    const size_t context = loop->session->options.context;
    const struct logit_bias *bias = find_stray_bias(loop, request);
    if (request->n_prompt == 0)
        snprintf(text, size, "the prompt is empty: there is nothing to continue");
    else if (bias)
        snprintf(text, size, "a logit bias is given for id %u, the vocabulary has %zu", bias->id,
                 vocab(loop));
    else if (request->n_prompt > context)
        snprintf(text, size, "the prompt has %zu tokens%s, the context holds %zu: shorten it%s",
                 request->n_prompt, request->from ? " with those of the snapshot" : "", context,
                 context < loop->session->model->config.context ? " or raise -c"
                                                                : "; the model takes no more");
    else {
        for (size_t i = 0; i < request->n_prompt; i++)
            if (request->prompt[i] >= vocab(loop)) {
                snprintf(text, size, "prompt id %u is outside the vocabulary of %zu",
                         request->prompt[i], vocab(loop));
                return text;
            }
        return NULL;
    }
    return text;
}

/* The rows that a snapshot has; all of a prompt's rows only where no token is to be chosen. */
static int load_rows(struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct gen_request *request = &slot->request;
    const size_t rows = size_min(request->from_rows, request->n_prompt - (request->n > 0));
    const double start = clock_ms();
    if (!request->from || !rows)
        return 0;
    if (snapshot_load(loop->session, (size_t)(slot - loop->slot), request->from, request->from_seq,
                      rows, err) < 0)
        return -1;
    loop->stats->loaded_tokens += rows;
    loop->stats->load_kv_ms += clock_ms() - start;
    return 0;
}

static int begin_slot(struct loop *loop, struct slot *slot, const struct gen_request *request,
                      struct err *err)
{
    char fault[256];
    slot->busy = true;
    slot->request = *request;
    slot->request.logprobs = size_min(request->logprobs, vocab(loop));
    slot->request.prompt_logprobs = size_min(request->prompt_logprobs, vocab(loop));
    slot->told_text = slot->told_ids = 0;
    slot->row = SIZE_MAX;
    slot->all.len = 0;
    session_begin(loop->session, (size_t)(slot - loop->slot),
                  request->n_prompt + size_min(request->n, loop->session->options.context));
    emitter_init(&slot->emitter, loop->session->model->tok, slot->request.stop, slot->request.n_stops);
    const char *error = find_fault(loop, request, fault, sizeof fault);
    if (error) {
        slot->request.n_prompt = 0;
        return loop_finish(loop, slot, FINISHED_ERROR, error, err);
    }
    for (size_t i = 0; i < request->n_prompt; i++)
        if (ids_add(&slot->all, request->prompt[i], err) < 0)
            return -1;
    if (emitter_follow(&slot->emitter, slot->all.id, slot->all.len, err) < 0)
        return -1;
    struct err why;
    if (logprobs_begin_prompt(slot, &why) < 0 || load_rows(loop, slot, &why) < 0)
        return loop_finish(loop, slot, FINISHED_ERROR, why.text, err);
    if (session_rows(loop->session, (size_t)(slot - loop->slot)) == request->n_prompt)
        return loop_finish(loop, slot, FINISHED_LENGTH, NULL, err); /* nothing to compute */
    return 0;
}

static bool any_busy(const struct loop *loop)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy)
            return true;
    return false;
}

/* Requests into free places, as long as there are any at hand; waits only when there is nothing else to do. */
static int fill_slots(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        /* A request that ends at once leaves the place free for the next. */
        while (!loop->slot[i].busy && !loop->input_ended && !loop->failed && !*loop->interrupted) {
            struct gen_request request;
            const int got = loop->callbacks->next(loop->callbacks->arg, !any_busy(loop), &request, err);
            if (got < 0)
                return -1;
            if (got == GEN_LATER)
                return 0;
            loop->input_ended = got == GEN_END;
            if (got == GEN_REQUEST && begin_slot(loop, &loop->slot[i], &request, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* ---- tokens ---- */

int loop_take(struct loop *loop, struct slot *slot, uint32_t id, const float *logits, struct err *err)
{
    const struct gen_callbacks *cb = loop->callbacks;
    const struct gen_request *request = &slot->request;
    loop->stats->sampled_tokens++;
    if (model_is_eos(loop->session->model, id) && !request->ignore_eos)
        return loop_finish(loop, slot, FINISHED_EOS, NULL, err);
    memcpy(slot->last_logits, logits, vocab(loop) * sizeof *logits);
    if (ids_add(&slot->all, id, err) < 0 ||
        (request->logprobs && logprobs_add(loop, slot, logits, err) < 0) ||
        emitter_add(&slot->emitter, id, err) < 0)
        return -1;
    if (slot->emitter.stopped)
        return loop_finish(loop, slot, FINISHED_STOP, NULL, err);
    if (loop_generated(slot) >= request->n || slot->all.len >= loop->session->options.context)
        return loop_finish(loop, slot, FINISHED_LENGTH, NULL, err);
    if (!cb->progress)
        return 0;
    const size_t text = slot->told_text, ids = slot->told_ids;
    slot->told_text = slot->emitter.shown;
    slot->told_ids = loop_generated(slot);
    return cb->progress(cb->arg, request, slot->emitter.text.data ? slot->emitter.text.data + text : "",
                        slot->told_text - text, slot->all.id + request->n_prompt + ids,
                        slot->told_ids - ids, err);
}

/* Logits have come for a slot: the sampler chooses. */
static int take_token(struct loop *loop, struct slot *slot, const float *logits, struct err *err)
{
    if (!logits_finite(logits, vocab(loop)))
        return loop_finish(loop, slot, FINISHED_ERROR, NO_FINITE_LOGITS, err);
    return loop_take(loop, slot, loop_choose(loop, slot, logits), logits, err);
}

/* Prompts of which log-probabilities are asked for. */
static int score_prompts(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        struct err why;
        if (slot->busy && slot->prompt_logprobs && slot->step_rows &&
            logprobs_of_step(loop, slot, &why) < 0 &&
            loop_finish(loop, slot, FINISHED_ERROR, why.text, err) < 0)
            return -1;
        slot->step_rows = 0;
    }
    return 0;
}

/* Runs the step that was put together, and chooses a token for every slot that has a row of it. */
static int run_step(struct loop *loop, int threads, double *step_ms, struct err *err)
{
    size_t n = 0;
    const double start = clock_ms();
    if (session_run(loop->session, threads, err) < 0 || score_prompts(loop, err) < 0)
        return -1;
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && loop->slot[i].row != SIZE_MAX)
            loop->logits_row[n++] = loop->slot[i].row;
    if (n)
        session_logits(loop->session, loop->logits_row, n, loop->logits);
    const double computed = clock_ms();
    *step_ms += computed - start;
    n = 0;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (!slot->busy || slot->row == SIZE_MAX)
            continue;
        slot->row = SIZE_MAX;
        if (take_token(loop, slot, loop->logits + n++ * vocab(loop), err) < 0)
            return -1;
    }
    loop->stats->sample_ms += clock_ms() - computed;
    return 0;
}

/* A slot before slot i with the very same prompt and length, whose rows can be had by forking; NULL when there is none. */
static const struct slot *find_twin(const struct loop *loop, size_t i)
{
    const struct gen_request *request = &loop->slot[i].request;
    for (size_t j = 0; j < i; j++) {
        const struct slot *slot = &loop->slot[j];
        if (slot->busy && slot->request.prompt == request->prompt &&
            slot->request.n_prompt == request->n_prompt && slot->request.n == request->n)
            return slot;
    }
    return NULL;
}

/* Samples of one prompt: it is computed once, but for its last token, whose logits each of them needs. *ready is
 * false when the slot must wait for its twin. */
static int share_prompt(struct loop *loop, size_t i, bool *ready, struct err *err)
{
    const struct slot *twin = find_twin(loop, i);
    const size_t rows = loop->slot[i].request.n_prompt - 1;
    *ready = true;
    if (!twin || session_rows(loop->session, i) || rows == 0 || loop->slot[i].prompt_logprobs)
        return 0;
    const size_t from = (size_t)(twin - loop->slot);
    *ready = session_rows(loop->session, from) >= rows;
    return *ready ? kv_fork(loop->session->kv, i, from, rows, err) : 0;
}

/* Prompt rows of all slots that have any left, up to a chunk. */
static int prefill_step(struct loop *loop, struct err *err)
{
    struct session *session = loop->session;
    size_t done = 0, total = 0, ready = 0;
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        bool ready_now;
        if (!slot->busy)
            continue;
        if (share_prompt(loop, i, &ready_now, err) < 0)
            return -1;
        const size_t have = session_rows(session, i);
        total += slot->request.n_prompt;
        done += size_min(have, slot->request.n_prompt);
        if (have >= slot->request.n_prompt || !ready_now)
            continue;
        const size_t space = session->options.chunk - size_min(session->n_rows, session->options.chunk);
        const size_t n = size_min(slot->request.n_prompt - have, space);
        if (n == 0)
            continue;
        const size_t first = session_add(session, i, slot->request.prompt + have, n);
        slot->step_first = first;
        slot->step_from = have;
        slot->step_rows = n;
        done += n;
        if (have + n == slot->request.n_prompt && slot->request.n > 0 &&
            slot->all.len < session->options.context)
            slot->row = first + n - 1;
        ready += have + n == slot->request.n_prompt && slot->row == SIZE_MAX;
    }
    loop->stats->prefill_tokens += session->n_rows;
    loop->stats->prefill_steps++;
    if (run_step(loop, session->options.threads_prefill, &loop->stats->prefill_ms, err) < 0)
        return -1;
    if (loop->callbacks->prefill)
        loop->callbacks->prefill(loop->callbacks->arg, done, total);
    /* Nothing is to be generated for these: -n 0, or a prompt that fills the context. */
    for (size_t i = 0; i < loop->n_slots && ready; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy && session_rows(session, i) == slot->request.n_prompt &&
            loop_generated(slot) == 0)
            if (loop_finish(loop, slot, FINISHED_LENGTH, NULL, err) < 0)
                return -1;
    }
    return 0;
}

/* The newest token of every slot. */
static int decode_step(struct loop *loop, struct err *err)
{
    if (loop->spec)
        return spec_step(loop->spec, loop, err);
    for (size_t i = 0; i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (!slot->busy)
            continue;
        slot->row = session_add(loop->session, i, &slot->all.id[slot->all.len - 1], 1);
        loop->stats->decode_tokens++;
    }
    loop->stats->decode_steps++;
    return run_step(loop, loop->session->options.threads, &loop->stats->decode_ms, err);
}

/* ---- the loop ---- */

enum work { WORK_NONE, WORK_PREFILL, WORK_DECODE };

static enum work find_work(const struct loop *loop)
{
    enum work work = WORK_NONE;
    for (size_t i = 0; i < loop->n_slots; i++) {
        if (!loop->slot[i].busy)
            continue;
        if (session_rows(loop->session, i) < loop->slot[i].request.n_prompt)
            return WORK_PREFILL;
        work = WORK_DECODE;
    }
    return work;
}

/* Sequences under way go out with what they have. */
static int end_early(struct loop *loop, struct err *err)
{
    char text[sizeof loop->failure.text + 32];
    const char *why = loop->failed ? text : INTERRUPTED;
    if (loop->failed)
        snprintf(text, sizeof text, "the run ended: %s", loop->failure.text);
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && loop_finish(loop, &loop->slot[i], FINISHED_ERROR, why, err) < 0)
            return -1;
    if (!loop->failed)
        return 0;
    *err = loop->failure;
    return -1;
}

static int run_loop(struct loop *loop, struct err *err)
{
    for (;;) {
        if (fill_slots(loop, err) < 0)
            return -1;
        if (loop->failed || *loop->interrupted)
            return end_early(loop, err);
        const enum work work = find_work(loop);
        if (work == WORK_NONE)
            return 0;
        if ((work == WORK_PREFILL ? prefill_step(loop, err) : decode_step(loop, err)) < 0)
            return -1;
    }
}

/* The run's hash: of the 64-bit hashes, in input order, of the sequences that have a token. */
static void hash_run(struct loop *loop)
{
    static const struct hash none;
    struct hasher hasher;
    hasher_init(&hasher);
    for (size_t i = 0; i < loop->n_lines; i++)
        if (!hash_equal(&loop->line_hash[i], &none))
            hasher_add(&hasher, loop->line_hash[i].byte, LOGITS_HASH_BYTES);
    loop->stats->logits_hash = hasher_result(&hasher);
}

static int alloc_loop(struct loop *loop, struct err *err)
{
    const size_t n = loop->n_slots;
    loop->slot = mem_zalloc(n, sizeof *loop->slot);
    loop->logits_row = mem_alloc(n, sizeof *loop->logits_row);
    loop->logits = mem_alloc(n * vocab(loop), sizeof *loop->logits);
    bool ok = loop->slot && loop->logits_row && loop->logits;
    for (size_t i = 0; ok && i < n; i++) {
        loop->slot[i].last_logits = mem_alloc(vocab(loop), sizeof(float));
        ok = loop->slot[i].last_logits != NULL;
    }
    return ok ? 0 : err_set(err, "out of memory for logits of %zu sequences", n);
}

static void free_loop(struct loop *loop)
{
    for (size_t i = 0; loop->slot && i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy)
            emitter_release(&slot->emitter);
        ids_release(&slot->all);
        free(slot->logprobs);
        free(slot->prompt_logprobs);
        free(slot->last_logits);
    }
    free(loop->slot);
    free(loop->logits_row);
    free(loop->logits);
    free(loop->prompt_logits);
    free(loop->best);
    free(loop->line_hash);
    sampler_close(&loop->sampler);
}

int generate(struct session *session, const struct sampler_options *sampling, struct spec *spec,
             const struct gen_callbacks *callbacks, const volatile sig_atomic_t *interrupted,
             struct gen_stats *stats, struct err *err)
{
    struct loop loop = {
        .session = session,
        .sampling = *sampling,
        .spec = spec,
        .callbacks = callbacks,
        .interrupted = interrupted,
        .stats = stats,
        .n_slots = session->options.batch,
    };
    int rc = -1;
    *stats = (struct gen_stats){0};
    if (sampler_open(&loop.sampler, sampling, session->model->config.vocab, err) < 0)
        return -1;
    if (alloc_loop(&loop, err) == 0)
        rc = run_loop(&loop, err);
    hash_run(&loop);
    free_loop(&loop);
    return rc;
}
