/* The generation loop: starts requests in free slots, prefills and decodes until all have ended. */
#include "decode/generate.h"

#include <poll.h>

#include "base/mem.h"
#include "decode/loop.h"

static bool is_free(const struct slot *slot) { return !slot->busy && !slot->suspended; }

/* Gets the request that waits for admission, or else the next one of the input. Returns
 * GEN_REQUEST, GEN_END, GEN_LATER or -1, as callbacks->next() does. */
static int next_request(struct loop *loop, const struct gen_request **request, struct err *err)
{
    const struct gen_callbacks *cb = loop->callbacks;
    *request = loop->waiting;
    loop->waiting = NULL;
    if (*request)
        return GEN_REQUEST;
    int got = loop->input_ended ? GEN_END : cb->next(cb->arg, false, request, err);
    if (got == GEN_LATER && !loop_in_flight(loop)) {
        kv_give_back(session_kv(loop->session));
        got = cb->next(cb->arg, true, request, err);
    }
    loop->input_ended = loop->input_ended || got == GEN_END;
    return got;
}

/* Starts requests in a free slot until one stays in flight: some end at once, as with an error.
 * Returns GEN_LATER if no request can start now. */
static int fill_slot(struct loop *loop, struct slot *slot, struct err *err)
{
    int got = GEN_REQUEST;
    while (is_free(slot) && got == GEN_REQUEST && !loop->failed &&
           !__atomic_load_n(loop->interrupted, __ATOMIC_RELAXED)) {
        const struct gen_request *request;
        got = next_request(loop, &request, err);
        if (got == GEN_REQUEST &&
            (prefix_store_await(loop, slot, request) || !pressure_admits(loop, request) ||
             !admission_try(loop, slot, request))) {
            prefix_store_unclaim(loop, slot);
            loop->waiting = request;
            got = GEN_LATER;
        }
        if (got == GEN_REQUEST && loop_begin(loop, slot, request, err) < 0)
            got = -1;
    }
    return got;
}

/* Starts requests in all free slots; waits for input only if no request is in flight. */
static int fill_slots(struct loop *loop, struct err *err)
{
    int got = GEN_REQUEST;
    for (size_t i = 0; i < loop->n_slots && got == GEN_REQUEST; i++)
        got = fill_slot(loop, &loop->slot[i], err);
    loop->stats->max_in_flight = size_max(loop->stats->max_in_flight, loop_in_flight(loop));
    return got < 0 ? -1 : 0;
}

static int end_slot(struct loop *loop, struct slot *slot, const struct err *why, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    if (strategy->drain && !loop->step_failed && strategy->drain(strategy->arg, loop, slot, err) < 0)
        return -1;
    return slot->busy ? loop_finish(loop, slot, FINISHED_ERROR, why, err) : 0;
}

/* Starts the request that waits for admission, if any, so that end_slots() gives it a result. It
 * waited although a slot was free. */
static int begin_waiting(struct loop *loop, struct err *err)
{
    const struct gen_request *request = loop->waiting;
    loop->waiting = NULL;
    for (size_t i = 0; request && i < loop->n_slots; i++)
        if (is_free(&loop->slot[i]))
            return loop_begin(loop, &loop->slot[i], request, err);
    return 0;
}

/* Ends all sequences in flight with the tokens they have. */
static int end_slots(struct loop *loop, const struct err *why, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++) {
        loop->slot[i].busy |= loop->slot[i].suspended;
        loop->slot[i].suspended = false;
        if (loop->slot[i].busy && end_slot(loop, &loop->slot[i], why, err) < 0)
            return -1;
    }
    return 0;
}

/* Ends the run after an interruption or a failure. *err reports that failure, even if ending the
 * sequences fails as well. */
static int end_early(struct loop *loop, struct err *err)
{
    struct err why = loop->failed ? loop->failure : err_interrupted;
    if (loop->failed)
        err_prefix(&why, "the run ended");
    const int rc = begin_waiting(loop, err) < 0 ? -1 : end_slots(loop, &why, err);
    if (!loop->failed)
        return rc;
    *err = loop->failure;
    return -1;
}

enum loop_work { WORK_NONE, WORK_PREFILL, WORK_DECODE };

static enum loop_work find_work(const struct loop *loop)
{
    enum loop_work work = WORK_NONE;
    for (size_t i = 0; i < loop->n_slots; i++) {
        const struct slot *slot = &loop->slot[i];
        if (!slot->busy)
            continue;
        if (loop_processed(loop, slot) < slot->n_prompt)
            return WORK_PREFILL;
        work = WORK_DECODE;
    }
    return work;
}

static int do_work(struct loop *loop, enum loop_work work, struct err *err)
{
    const struct step_strategy *strategy = loop->strategy;
    if (work == WORK_PREFILL)
        return loop_prefill(loop, err);
    if (context_recompute(loop, err) < 0 || strategy->step(strategy->arg, loop, err) < 0)
        return -1;
    prefix_store_step(loop);
    return 0;
}

/* Counters to detect an endless loop: every step must change at least one of them. */
struct progress {
    size_t results, ids, entries;
};

static struct progress progress_of(const struct loop *loop)
{
    struct progress p = {.results = loop->stats->sequences};
    for (size_t i = 0; i < loop->n_slots; i++)
        p.ids += loop->slot[i].busy ? loop->slot[i].ids->len : 0;
    for (size_t seq = 0; seq < session_options(loop->session)->batch; seq++)
        p.entries += session_length(loop->session, seq);
    return p;
}

static bool is_stuck(const struct loop *loop, const struct progress *before)
{
    const struct progress now = progress_of(loop);
    return now.results == before->results && now.ids == before->ids && now.entries == before->entries;
}

/* Runs a prefill pass or a decoding step; fails if that changes no counter of struct progress. */
static int run_step(struct loop *loop, enum loop_work work, struct err *err)
{
    const struct progress before = progress_of(loop);
    if (do_work(loop, work, err) < 0)
        return -1;
    if (loop->failed || !is_stuck(loop, &before))
        return 0;
    return err_set(err,
                   "a step (%s, %zu requests in flight) made no progress: this is a bug in bmc, please "
                   "report it with the command and its input",
                   work == WORK_PREFILL ? "prefill" : loop->strategy->name, loop_in_flight(loop));
}

/* Notes the first failure of a step. */
static void note_failure(struct loop *loop, bool failed, const struct err *err)
{
    loop->step_failed = failed;
    if (!failed || loop->failed)
        return;
    loop->failed = true;
    loop->failure = *err;
}

static int run_loop(struct loop *loop, struct err *err)
{
    enum { PAUSE_MS = 2 };
    for (;;) {
        if (session_options(loop->session)->pressure)
            note_failure(loop, pressure_relieve(loop, err) < 0, err);
        if (fill_slots(loop, err) < 0)
            return -1;
        if (loop->failed || __atomic_load_n(loop->interrupted, __ATOMIC_RELAXED))
            return end_early(loop, err);
        const enum loop_work work = find_work(loop);
        if (work == WORK_NONE && !loop->waiting)
            return 0;
        if (work == WORK_NONE) { /* for another process: prefix_store_await() */
            poll(NULL, 0, PAUSE_MS);
            continue;
        }
        note_failure(loop, run_step(loop, work, err) < 0, err);
    }
}

static int alloc_buffers(struct loop *loop, struct err *err)
{
    const size_t n = loop->n_slots, vocab = session_vocab(loop->session);
    loop->slot = mem_zalloc(n, sizeof *loop->slot);
    loop->logits_row = mem_alloc(n, sizeof *loop->logits_row);
    loop->logits = mem_alloc(n * vocab, sizeof *loop->logits);
    bool ok = loop->slot && loop->logits_row && loop->logits;
    for (size_t i = 0; ok && i < n; i++) {
        loop->slot[i].last_logits = mem_alloc(vocab, sizeof(float));
        ok = loop->slot[i].last_logits != NULL;
    }
    return ok ? 0 : err_no_memory(err, "logits of %zu sequences", n);
}

static int open_loop(struct loop *loop, struct err *err)
{
    const struct session *session = loop->session;
    loop->scratch.session = loop->session;
    loop->n_slots = session_options(session)->batch / loop->strategy->width;
    if (loop->n_slots == 0)
        return err_set(err, "%s decoding takes %zu sequences per request, the batch has %zu: raise it",
                       loop->strategy->name, loop->strategy->width, session_options(session)->batch);
    if (sampler_open(&loop->sampler, loop->sampling, session_vocab(session), err) < 0)
        return -1;
    return alloc_buffers(loop, err);
}

void loop_close(struct loop *loop)
{
    for (size_t i = 0; loop->slot && i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy || slot->suspended)
            text_streamer_release(&slot->text_streamer);
        free(slot->logprobs);
        free(slot->prompt_logprobs);
        free(slot->last_logits);
        ids_release(&slot->cached);
        ids_release(&slot->ends);
        loop_phase_end(slot);
    }
    free(loop->slot);
    free(loop->logits_row);
    free(loop->logits);
    free(loop->line_hash);
    logprobs_release(&loop->scratch);
    token_mask_release(&loop->mask);
    sampler_close(&loop->sampler);
    *loop = (struct loop){0};
}

static void swap_ids(struct ids *a, struct ids *b)
{
    const struct ids kept = *a;
    *a = *b;
    *b = kept;
}

/* Lets the slots retain the entries of sequences with the given tokens. */
static void begin_cached(struct loop *loop, struct ids *cached)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        swap_ids(&loop->slot[i].cached, &cached[i]);
}

/* Returns the tokens of retained entries; drops entries of requests that a failure left in flight. */
static void end_cached(struct loop *loop, struct ids *cached)
{
    for (size_t i = 0; loop->slot && i < loop->n_slots; i++) {
        swap_ids(&loop->slot[i].cached, &cached[i]);
        if (loop->slot[i].busy || session_length(loop->session, i) != cached[i].len) {
            cached[i].len = 0;
            session_clear(loop->session, i);
        }
    }
}

int generate(struct session *session, const struct sampler_options *sampling,
             const struct step_strategy *strategy, const struct gen_callbacks *callbacks,
             const volatile sig_atomic_t *interrupted, struct gen_stats *stats, struct err *err)
{
    return generate_cached(session, sampling, strategy, callbacks, interrupted, NULL, stats, err);
}

int generate_cached(struct session *session, const struct sampler_options *sampling,
                    const struct step_strategy *strategy, const struct gen_callbacks *callbacks,
                    const volatile sig_atomic_t *interrupted, struct ids *cached,
                    struct gen_stats *stats, struct err *err)
{
    struct loop loop = {
        .session = session,
        .sampling = sampling,
        .strategy = strategy ? strategy : &step_plain,
        .callbacks = callbacks,
        .interrupted = interrupted,
        .stats = stats,
    };
    *stats = (struct gen_stats){0};
    session_pass(session)->work = &stats->decode;
    int rc = open_loop(&loop, err);
    if (rc == 0) {
        if (cached)
            begin_cached(&loop, cached);
        rc = run_loop(&loop, err);
        if (cached)
            end_cached(&loop, cached);
    }
    stats->logits_hash = gen_run_hash(loop.line_hash, loop.n_lines);
    loop_close(&loop);
    session_pass(session)->work = NULL;
    return rc;
}

/* ---- names of the reasons for which sequences end, and the hash of a run ---- */

const char *gen_finish_name(enum gen_finish finish)
{
    static const char *const names[] = {"length", "eos", "stop", "repetition", "cancelled", "error"};
    return names[finish];
}

enum { LOGITS_HASH_BYTES = 8 };

struct hash gen_run_hash(const struct hash *line, size_t n)
{
    static const struct hash none;
    struct hasher hasher;
    hasher_init(&hasher);
    for (size_t i = 0; i < n; i++)
        if (!hash_equal(&line[i], &none))
            hasher_add(&hasher, line[i].byte, LOGITS_HASH_BYTES);
    return hasher_result(&hasher);
}
