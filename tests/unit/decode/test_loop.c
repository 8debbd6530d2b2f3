/* The generation loop with test strategies: sequences that move between cache sequences, and tokens
 * that are appended later than they are computed. Ids and logits must be those of plain decoding. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"
#include "tests/unit/check.h"
#include "decode/generate.h"
#include "decode/loop.h"
#include "serve/request.h"
#include "decode/spec/spec.h"
#include "prof/counters.h"
#include "tests/unit/tiny_model.h"

enum { REQUESTS = 7, SLOTS = 3, CONTEXT = 64 };

/* ---- strategies ---- */

/* Moves a sequence to the other one of its slot's two cache sequences. */
static int move(struct loop *loop, struct slot *slot, struct err *err)
{
    const size_t to = slot->seq ^ 1;
    if (kv_fork(session_kv(loop->session), to, slot->seq, session_length(loop->session, slot->seq),
                err) < 0)
        return -1;
    session_clear(loop->session, slot->seq);
    slot->seq = to;
    return 0;
}

static int move_all(struct loop *loop, struct err *err)
{
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy && move(loop, &loop->slot[i], err) < 0)
            return -1;
    return 0;
}

/* Plain decoding; sequences move before every step. */
static int moving_step(void *arg, struct loop *loop, struct err *err)
{
    return move_all(loop, err) < 0 ? -1 : step_plain.step(arg, loop, err);
}

/* Tokens that are held back, with the logits of the newest. */
struct held {
    struct ids ids;
    float *logits;
};

struct late {
    struct held held[SLOTS];
    size_t steps, stop_after; /* interrupts the run after that many steps; 0: never */
    volatile sig_atomic_t interrupted;
};

static int hold(struct late *late, struct loop *loop, struct slot *slot, const float *logits,
                struct err *err)
{
    struct held *held = &late->held[slot - loop->slot];
    memcpy(held->logits, logits, session_vocab(loop->session) * sizeof *logits);
    return ids_add(&held->ids, loop_sample_token(loop, slot, logits), err);
}

static int take_held(void *arg, struct loop *loop, struct slot *slot, struct err *err)
{
    struct held *held = &((struct late *)arg)->held[slot - loop->slot];
    int rc = 0;
    for (size_t i = 0; rc == 0 && slot->busy && i < held->ids.len; i++)
        rc = loop_append(loop, slot, held->ids.id[i], held->logits, err);
    held->ids.len = 0;
    return rc;
}

/* Holds a token back; once it is known to be the last, appends all tokens held back. */
static int hold_or_take(struct late *late, struct loop *loop, struct slot *slot, const float *logits,
                        struct err *err)
{
    const struct ids *ids = &late->held[slot - loop->slot].ids;
    if (hold(late, loop, slot, logits, err) < 0)
        return -1;
    const bool full = slot->n_prompt + ids->len == session_options(loop->session)->context &&
                      session_is_bounded(loop->session);
    const bool last = ids->len == slot->request->n || full;
    return last ? take_held(late, loop, slot, err) : 0;
}

static int late_first(void *arg, struct loop *loop, struct slot *slot, const float *logits,
                      struct err *err)
{
    return hold_or_take(arg, loop, slot, logits, err);
}

static int late_step(void *arg, struct loop *loop, struct err *err)
{
    struct late *late = arg;
    const size_t vocab = session_vocab(loop->session);
    size_t n = 0;
    if (move_all(loop, err) < 0)
        return -1;
    for (size_t i = 0; i < loop->n_slots; i++) {
        const struct ids *ids = &late->held[i].ids;
        if (loop->slot[i].busy)
            loop->logits_row[n++] =
                batch_add(loop->session, loop->slot[i].seq, &ids->id[ids->len - 1], 1);
    }
    if (session_run(loop->session, 1, err) < 0 ||
        session_logits(loop->session, loop->logits_row, n, loop->logits, err) < 0)
        return -1;
    n = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].busy &&
            hold_or_take(late, loop, &loop->slot[i], loop->logits + n++ * vocab, err) < 0)
            return -1;
    late->interrupted = ++late->steps == late->stop_after;
    return 0;
}

/* ---- runs ---- */

/* A run of requests of all lengths, among them one of 0 tokens and one that the context limits. */
struct test_run {
    struct session *session;
    struct gen_request request[REQUESTS];
    struct ids ids[REQUESTS];
    size_t next, ended, kept, n_prompt[REQUESTS], n_ids[REQUESTS];
    enum gen_finish finish[REQUESTS];
    struct gen_stats stats;
};

static int next_request(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct test_run *run = arg;
    (void)wait;
    if (run->next == REQUESTS)
        return GEN_END;
    const size_t i = run->next++;
    run->n_prompt[i] = i == 5 ? CONTEXT - 4 : 1 + 3 * i;
    for (size_t p = 0; p < run->n_prompt[i]; p++)
        if (ids_add(&run->ids[i], (uint32_t)((3 + i) * p * p + i) % 61, err) < 0)
            return -1;
    run->request[i] = (struct gen_request){.line = i,
                                           .ids = &run->ids[i],
                                           .n = i == 2 ? 0 : 5 * i + 1,
                                           .ignore_eos = true,
                                           .logprobs = i == 3};
    *request = &run->request[i];
    return GEN_REQUEST;
}

/* Called when a sequence ends: all its tokens have KV entries except the newest. */
static int keep(void *arg, size_t seq, const struct gen_result *result, struct err *err)
{
    struct test_run *run = arg;
    const size_t rows = session_length(run->session, seq);
    (void)err;
    run->kept++;
    check(rows == result->n_prompt + result->n_ids - (result->n_ids > 0),
          "request %zu: %zu rows are kept of %zu and %zu tokens", (size_t)result->request->line, rows,
          result->n_prompt, result->n_ids);
    return 0;
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    struct test_run *run = arg;
    const size_t i = result->request->line;
    (void)err;
    run->ended++;
    run->n_ids[i] = result->n_ids;
    run->finish[i] = result->finish;
    check(result->request == &run->request[i] && result->n_prompt == run->n_prompt[i] &&
              result->ids - result->n_prompt == run->ids[i].id &&
              run->ids[i].len == result->n_prompt + result->n_ids,
          "request %zu is not the caller's, or its ids are not", i);
    return 0;
}

static int run_loop(struct test_run *run, const struct model *model, const char *kv, size_t batch,
                    const struct step_strategy *strategy, const volatile sig_atomic_t *interrupted,
                    struct err *err)
{
    const struct gen_callbacks callbacks = {
        .next = next_request, .done = done, .keep = keep, .arg = run};
    const struct sampler_options greedy = {.repeat_penalty = 1};
    struct session_options s = {.cpu.attn = attn_find(NULL, err),
                                .cpu.kernels = kernels_select(NULL, err),
                                .context = CONTEXT,
                                .batch = batch,
                                .chunk = 7,
                                .threads = 1,
                                .threads_prefill = 1};
    *run = (struct test_run){.next = 0};
    if (kv_spec_parse(&s.kv, kv, err) < 0 || session_open(&run->session, model, &s, err) < 0)
        return -1;
    const int rc = generate(run->session, &greedy, strategy, &callbacks, interrupted, &run->stats, err);
    session_close(run->session);
    return rc;
}

static void free_ids(struct test_run *run)
{
    for (size_t i = 0; i < REQUESTS; i++)
        ids_release(&run->ids[i]);
}

/* ---- tests ---- */

static void check_same(const struct test_run *run, const struct test_run *want, const char *strategy,
                       const char *kv)
{
    for (size_t i = 0; i < REQUESTS; i++)
        check(run->finish[i] == want->finish[i] && run->ids[i].len == want->ids[i].len &&
                  memcmp(run->ids[i].id, want->ids[i].id, run->ids[i].len * sizeof *run->ids[i].id) ==
                      0,
              "%s, %s: request %zu has other ids", strategy, kv, i);
    check(hash_equal(&run->stats.logits_hash, &want->stats.logits_hash), "%s, %s: other logits",
          strategy, kv);
    check(run->ended == REQUESTS && run->kept == want->kept, "%s, %s: %zu results, %zu kept", strategy,
          kv, run->ended, run->kept);
}

/* Compares a run of the strategy, with two sequences per slot, with `want`. */
static void compare(const struct model *model, const char *kv, const struct step_strategy *strategy,
                    const struct test_run *want)
{
    static const volatile sig_atomic_t never;
    struct test_run run;
    struct err err;
    if (check(run_loop(&run, model, kv, 2 * SLOTS, strategy, &never, &err) == 0, "%s, %s: %s",
              strategy->name, kv, err.text))
        check_same(&run, want, strategy->name, kv);
    free_ids(&run);
}

static void test_policies(const struct model *model, struct late *late)
{
    static const volatile sig_atomic_t never;
    const struct step_strategy moving = {.name = "moving", .width = 2, .step = moving_step};
    const struct step_strategy later = {.name = "late",
                                        .width = 2,
                                        .first = late_first,
                                        .step = late_step,
                                        .drain = take_held,
                                        .arg = late};
    for (size_t p = 0; kv_policy_name(p); p++) {
        const char *kv = kv_policy_name(p);
        struct test_run plain;
        struct err err;
        if (check(run_loop(&plain, model, kv, SLOTS, NULL, &never, &err) == 0, "%s: %s", kv,
                  err.text)) {
            const size_t longest = strcmp(kv, "shift") == 0 ? 5 * 5 + 1 : 4; /* or a full context */
            check(plain.kept == REQUESTS && plain.n_ids[2] == 0 && plain.n_ids[5] == longest,
                  "%s: %zu are kept, %zu and %zu tokens", kv, plain.kept, plain.n_ids[2],
                  plain.n_ids[5]);
            compare(model, kv, &moving, &plain);
            compare(model, kv, &later, &plain);
        }
        free_ids(&plain);
    }
}

/* Sequences in flight end with all tokens that have KV entries. */
static void test_interrupted(const struct model *model, struct late *late)
{
    const struct step_strategy later = {.name = "late",
                                        .width = 2,
                                        .first = late_first,
                                        .step = late_step,
                                        .drain = take_held,
                                        .arg = late};
    struct test_run run;
    struct err err;
    late->steps = 0;
    late->stop_after = 9;
    if (check(run_loop(&run, model, "bmc", 2 * SLOTS, &later, &late->interrupted, &err) == 0, "%s",
              err.text)) {
        check(run.stats.interrupted == SLOTS && run.kept == run.ended,
              "%zu sequences are interrupted, %zu of %zu kept", run.stats.interrupted, run.kept,
              run.ended);
        for (size_t i = 0; i < run.next; i++)
            check(run.n_ids[i] > 0 || i == 2, "request %zu has no token", i);
    }
    free_ids(&run);
}

static void test_narrow(const struct model *model)
{
    static const volatile sig_atomic_t never;
    const struct step_strategy moving = {.name = "moving", .width = 2, .step = moving_step};
    struct test_run run;
    struct err err;
    check(run_loop(&run, model, "bmc", 1, &moving, &never, &err) < 0 &&
              strcmp(err.text,
                     "moving decoding takes 2 sequences per request, the batch has 1: raise it") == 0,
          "a batch of one sequence for a strategy of width two");
    free_ids(&run);
}

/* A step without progress ends the run with an error. */
static int idle_step(void *arg, struct loop *loop, struct err *err)
{
    (void)arg;
    (void)loop;
    (void)err;
    return 0;
}

static void test_idle(const struct model *model)
{
    static const volatile sig_atomic_t never;
    const struct step_strategy idle = {.name = "idle", .width = 1, .step = idle_step};
    struct test_run run;
    struct err err = {.text = ""};
    alarm(60);
    check(run_loop(&run, model, "bmc", SLOTS, &idle, &never, &err) < 0 &&
              strstr(err.text, "a step (idle, 3 requests in flight) made no progress") == err.text,
          "a strategy that does nothing: %s", err.text);
    alarm(0);
    check(run.ended == SLOTS + 2, "%zu requests have a result",
          run.ended); /* two end with the prompt */
    free_ids(&run);
}

/* Closing accepts objects that were never opened or are closed already. */
static void test_closing(void)
{
    struct session *session = NULL;
    struct sampler sampler = {.vocab = 0};
    struct verifier verifier = {NULL, NULL};
    struct sequoia plan = {.nodes = 0};
    struct loop loop = {.session = NULL};
    struct request request = {.root = NULL};
    struct counting counting = {.open = false};
    session_close(session);
    sampler_close(&sampler);
    verifier_close(&verifier);
    sequoia_close(&plan);
    loop_close(&loop);
    request_close(&request);
    drafter_close(NULL);
    spec_close(NULL);
    snapshot_close(NULL);
    counting_close(&counting);
    check(fcntl(STDIN_FILENO, F_GETFD) >= 0, "standard input was closed");
}

int main(void)
{
    struct late late = {.steps = 0};
    threads_set(1);
    kernels_setup();
    struct model *model = tiny_model(CONTEXT);
    for (size_t i = 0; i < SLOTS; i++)
        late.held[i].logits = malloc(model->config.vocab * sizeof(float));
    test_policies(model, &late);
    test_interrupted(model, &late);
    test_narrow(model);
    test_idle(model);
    test_closing();
    for (size_t i = 0; i < SLOTS; i++) {
        ids_release(&late.held[i].ids);
        free(late.held[i].logits);
    }
    model_close(model);
    return check_result();
}
