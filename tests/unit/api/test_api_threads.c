/* Threads on objects of the public API: four of them on one context get the results of one alone, functions of the
 * caller cannot use the context that runs them, and objects are closed in any order, also while they are in use.
 *
 *    test_api_threads MODEL.bmc TEMPLATE SNAPSHOT [EXPERTS]
 *
 * With EXPERTS, memory for the experts of the model as "ram=1M", only that contexts of their own take turns. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/api/api_check.h"

enum { THREADS = 4, ROUNDS = 4, N_IDS = 6, MAX_VOCAB = 4096, MAX_HIDDEN = 512 };

static const uint32_t ids[N_IDS] = {5, 6, 7, 8, 9, 10};
static const char *path, *chat_template, *snapshot;
static struct bmc_model *model;

/* What a function returns, as a hash of its bytes. */
static uint64_t hash_of(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

/* ---- functions whose results do not depend on what the sequences of the context have ---- */

static int generate(struct bmc_context *context, const char *settings, uint64_t *hash)
{
    struct bmc_result result = RESULT;
    const struct bmc_request request = REQUEST(.settings = settings, .ids = ids, .n_ids = N_IDS);
    const int rc = bmc_generate(context, &request, &result, 1, NULL, NULL);
    *hash = hash_of(*hash, result.text, result.text_len);
    *hash = hash_of(*hash, result.logits_hash, sizeof result.logits_hash);
    bmc_result_release(&result);
    return rc;
}

static int run_greedy(struct bmc_context *context, uint64_t *hash)
{
    return generate(context, "{\"n\": 3}", hash);
}

static int run_constrained(struct bmc_context *context, uint64_t *hash)
{
    return generate(context, "{\"n\": 3, \"temp\": 1, \"seed\": 4, \"regex\": \"[a-z ]*\"}", hash);
}

static int run_score(struct bmc_context *context, uint64_t *hash)
{
    double logprobs[N_IDS];
    const int rc = bmc_score(context, ids, N_IDS, logprobs, NULL);
    *hash = hash_of(*hash, logprobs + 1, sizeof logprobs - sizeof *logprobs);
    return rc;
}

static int run_embed(struct bmc_context *context, uint64_t *hash)
{
    float embedding[MAX_HIDDEN];
    const int rc = bmc_embed(context, ids, N_IDS, BMC_POOL_MEAN, 1, embedding, NULL);
    *hash = hash_of(*hash, embedding, bmc_model_hidden(model) * sizeof *embedding);
    return rc;
}

static int run_render(struct bmc_context *context, uint64_t *hash)
{
    static const char conversation[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Who?\"}]}";
    uint32_t *list;
    size_t n;
    char *text;
    const int rc = bmc_chat_render(context, conversation, &list, &n, &text, NULL);
    if (rc == 0)
        *hash = hash_of(*hash, text, strlen(text));
    free(text);
    free(list);
    return rc;
}

static int run_tokens(struct bmc_context *context, uint64_t *hash)
{
    static const char sentence[] = "The king had a daughter.";
    uint32_t *list;
    size_t n;
    char *text = NULL;
    (void)context;
    int rc = bmc_tokenize(model, sentence, sizeof sentence - 1, &list, &n, NULL);
    if (rc == 0)
        rc = bmc_detokenize(model, list, n, &text, NULL);
    if (rc == 0)
        *hash = hash_of(*hash, text, strlen(text));
    free(text);
    free(list);
    return rc;
}

static int run_sampler(struct bmc_context *context, uint64_t *hash)
{
    static const float flat[MAX_VOCAB];
    struct bmc_sampler *sampler;
    uint32_t taken[4];
    int rc = bmc_sampler_open(&sampler, context, "{\"temp\": 1, \"regex\": \"([a-m ]|[n-z]){9,}\"}", 0,
                              NULL);
    for (uint32_t n = 0; n < 4 && rc == 0; n++)
        rc = bmc_sample(sampler, flat, taken, n, &taken[n], NULL);
    if (rc == 0)
        *hash = hash_of(*hash, taken, sizeof taken);
    bmc_sampler_close(sampler);
    return rc;
}

static int run_text(struct bmc_context *context, uint64_t *hash)
{
    struct bmc_text *text;
    const char *more;
    size_t len;
    (void)context;
    int rc = bmc_text_open(&text, model, ids, 2, NULL);
    for (uint32_t i = 2; i < N_IDS && rc == 0; i++)
        if ((rc = bmc_text_add(text, ids[i], &more, &len, NULL)) == 0)
            *hash = hash_of(*hash, more, len);
    if (rc == 0)
        rc = bmc_text_finish(text, &more, &len, NULL);
    bmc_text_close(text);
    return rc;
}

static int (*const runs[])(struct bmc_context *context, uint64_t *hash) = {
    run_greedy, run_constrained, run_score, run_embed, run_render, run_tokens, run_sampler, run_text};

enum { RUNS = sizeof runs / sizeof *runs };

/* Functions on sequences that other threads change meanwhile: their results may be any. */
static void change_sequences(struct bmc_context *context, size_t by)
{
    float logits[MAX_VOCAB];
    struct bmc_stats stats = STATS;
    const size_t own = by % bmc_context_sequences(context);
    const struct bmc_input input =
        INPUT(.sequence = own, .ids = ids, .n_ids = 2, .n_outputs = 1, .logits = logits);
    bmc_eval(context, &input, 1, NULL);
    bmc_fork(context, own, (own + 1) % bmc_context_sequences(context), 3, NULL, NULL);
    if (bmc_length(context, own) && bmc_tokens(context, own))
        bmc_truncate(context, own, 1);
    bmc_begin(context, own, 9, NULL);
    bmc_set_lora(context, own, NULL, 0, NULL);
    bmc_context_stats(context, &stats, NULL);
    bmc_load(context, own, snapshot, NULL);
}

/* ---- four threads ---- */

struct worker {
    pthread_t thread;
    struct bmc_context *context;
    const struct bmc_options *own; /* not NULL: opens a context of its own */
    const uint64_t *expected;      /* [RUNS] */
    size_t first, rounds, wrong;
    bool changes; /* calls change_sequences(), too */
};

static void *work(void *arg)
{
    struct worker *w = arg;
    if (w->own && bmc_context_open(&w->context, model, w->own, NULL) < 0)
        return w->wrong = SIZE_MAX, NULL;
    for (size_t i = 0; i < w->rounds * RUNS; i++) {
        uint64_t hash = 0;
        const size_t run = (w->first + i) % RUNS;
        w->wrong += runs[run](w->context, &hash) < 0 || hash != w->expected[run];
        if (w->changes)
            change_sequences(w->context, w->first + i);
    }
    if (w->own)
        bmc_context_close(w->context);
    return NULL;
}

/* All threads on `context`, or if that is NULL each on one of its own. */
static void test_threads(struct bmc_context *context, const struct bmc_options *options,
                         const uint64_t *expected, size_t rounds)
{
    struct worker worker[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        worker[i] = (struct worker){.context = context,
                                    .own = context ? NULL : options,
                                    .expected = expected,
                                    .first = i * 3,
                                    .rounds = rounds,
                                    .changes = context != NULL};
        check(pthread_create(&worker[i].thread, NULL, work, &worker[i]) == 0, "a thread");
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(worker[i].thread, NULL);
        check(worker[i].wrong == 0, "thread %zu: %zu of %zu results differ", i, worker[i].wrong,
              rounds * RUNS);
    }
}

/* ---- functions of the caller ---- */

struct inside {
    struct bmc_context *context, *other;
    struct bmc_sampler *sampler;
    struct bmc_model *model;
    size_t calls;
    bool closes;
};

static int use_inside(void *arg, size_t request, const char *text, size_t len, const uint32_t *new_ids,
                      size_t n_ids)
{
    struct inside *in = arg;
    static float logits[MAX_VOCAB];
    uint64_t hash = 0;
    struct bmc_stats stats = STATS;
    struct bmc_sampler *sampler;
    uint32_t *list, id;
    size_t n;
    const struct bmc_input input = INPUT(.ids = ids, .n_ids = 1);
    (void)request, (void)text, (void)len, (void)new_ids, (void)n_ids;
    if (in->calls++)
        return 0;
    for (size_t i = 0; i < RUNS; i++)
        check(runs[i](in->other, &hash) == 0, "function %zu on another context", i);
    refused(bmc_eval(in->context, &input, 1, &error), BMC_BUSY, "the context is in use by the call");
    refused(bmc_sample(in->sampler, logits, ids, 1, &id, &error), BMC_BUSY, "the sampler is in use");
    refused(bmc_sampler_open(&sampler, in->context, NULL, 0, &error), BMC_BUSY, "is in use");
    refused(bmc_context_stats(in->context, &stats, &error), BMC_BUSY, "is in use");
    refused(bmc_begin(in->context, 0, 1, &error), BMC_BUSY, "is in use");
    refused(bmc_fork(in->context, 0, 1, 1, NULL, &error), BMC_BUSY, "is in use");
    refused(bmc_set_lora(in->context, 0, NULL, 0, &error), BMC_BUSY, "is in use");
    refused(bmc_score(in->context, ids, 2, (double[2]){0}, &error), BMC_BUSY, "is in use");
    refused(bmc_embed(in->context, ids, 2, BMC_POOL_LAST, 0, logits, &error), BMC_BUSY, "is in use");
    refused(bmc_chat_render(in->context, "{}", &list, &n, NULL, &error), BMC_BUSY, "is in use");
    refused(bmc_save(in->context, 0, snapshot, &error), BMC_BUSY, "is in use");
    refused(bmc_load(in->context, 0, snapshot, &error), BMC_BUSY, "is in use");
    check(generate(in->context, NULL, &hash) == BMC_BUSY, "generate");
    check(!bmc_length(in->context, 0) && !bmc_tokens(in->context, 0) &&
              !bmc_truncate(in->context, 0, 9),
          "0 when in use");
    if (in->closes) { /* of all, the last use */
        bmc_model_close(in->model);
        bmc_context_close(in->context);
        bmc_sampler_close(in->sampler);
    }
    return 0;
}

static void test_inside(bool closes)
{
    struct inside in = {.closes = closes};
    check(bmc_model_open(&in.model, path, &error) == 0, "%s", error.text);
    in.context = open_context(in.model, OPTIONS(.context = 64, .threads = 2));
    in.other =
        open_context(model, OPTIONS(.context = 64, .threads = 1, .chat_template = chat_template));
    check(bmc_sampler_open(&in.sampler, in.context, "{\"regex\": \"a*\"}", 0, &error) == 0, "%s",
          error.text);
    struct bmc_result result = RESULT;
    const struct bmc_request request =
        REQUEST(.settings = "{\"n\": 4, \"ignore_eos\": true}", .ids = ids, .n_ids = N_IDS);
    const struct bmc_callbacks callbacks = {.size = sizeof callbacks, .arg = &in, .text = use_inside};
    check(bmc_generate(in.context, &request, &result, 1, &callbacks, &error) == 0 &&
              result.n_ids == 4 && in.calls == 4,
          "%zu tokens, %zu calls: %s", result.n_ids, in.calls, error.text);
    bmc_result_release(&result);
    bmc_context_close(in.other);
    if (closes)
        return;
    bmc_model_close(in.model); /* before what was opened from it */
    bmc_context_close(in.context);
    bmc_sampler_close(in.sampler);
}

/* ---- closed while a call of another thread runs ---- */

struct long_call {
    struct bmc_context *context;
    atomic_bool begun, ends;
    int rc;
    enum bmc_finish finish;
};

static void tell_begun(void *arg, size_t done, size_t total)
{
    struct long_call *call = arg;
    (void)done, (void)total;
    atomic_store(&call->begun, true);
}

static int text_until(void *arg, size_t request, const char *text, size_t len, const uint32_t *new_ids,
                      size_t n_ids)
{
    struct long_call *call = arg;
    (void)request, (void)text, (void)len, (void)new_ids, (void)n_ids;
    return atomic_load(&call->ends);
}

static void *generate_long(void *arg)
{
    struct long_call *call = arg;
    struct bmc_result result = RESULT;
    const struct bmc_request request =
        REQUEST(.settings = "{\"ignore_eos\": true}", .ids = ids, .n_ids = N_IDS);
    const struct bmc_callbacks callbacks = {
        .size = sizeof callbacks, .arg = call, .prefill = tell_begun, .text = text_until};
    call->rc = bmc_generate(call->context, &request, &result, 1, &callbacks, NULL);
    call->finish = result.finish;
    bmc_result_release(&result);
    return NULL;
}

static void test_close(void)
{
    struct bmc_model *own;
    struct bmc_text *text;
    struct long_call call = {0};
    pthread_t thread;
    const char *more;
    size_t len;
    check(bmc_model_open(&own, path, &error) == 0, "%s", error.text);
    check(bmc_text_open(&text, own, ids, 2, &error) == 0, "%s", error.text);
    call.context = open_context(own, OPTIONS(.context = 1024, .threads = 1));
    check(pthread_create(&thread, NULL, generate_long, &call) == 0, "a thread");
    while (!atomic_load(&call.begun))
        sched_yield();
    bmc_context_close(call.context);
    bmc_model_close(own);
    atomic_store(&call.ends, true);
    pthread_join(thread, NULL);
    check(call.rc == 0 && call.finish == BMC_FINISH_CANCELLED, "%d, %d", call.rc, (int)call.finish);
    check(bmc_text_add(text, ids[2], &more, &len, &error) == 0, "a text of a closed model: %s",
          error.text);
    bmc_text_close(text);
}

/* ---- NULL, and numbers out of range ---- */

static void test_wrong(struct bmc_context *context)
{
    uint32_t *list, id;
    char *text;
    size_t n, huge = SIZE_MAX;
    float logits[MAX_VOCAB];
    double logprobs[2];
    const char *more;
    struct bmc_model *opened;
    struct bmc_context *made;
    struct bmc_sampler *sampler;
    struct bmc_text *stream;
    struct bmc_stats stats = STATS;
    struct bmc_result result = RESULT;
    const struct bmc_request request = REQUEST(.ids = ids, .n_ids = N_IDS),
                             many = REQUEST(.ids = ids, .n_ids = 0);
    struct bmc_input input = INPUT(.ids = ids, .n_ids = SIZE_MAX);
    struct bmc_context *const none = NULL;
#define WRONG(call, sentence) refused(call, BMC_INVALID, sentence)
    WRONG(bmc_model_open(NULL, path, &error), "`model` is NULL");
    WRONG(bmc_model_open(&opened, NULL, &error), "`path` is NULL");
    WRONG(bmc_tokenize(NULL, "a", 1, &list, &n, &error), "`model` is NULL");
    WRONG(bmc_tokenize(model, NULL, 1, &list, &n, &error), "`text` is NULL");
    WRONG(bmc_tokenize(model, "a", 1, NULL, &n, &error), "`ids` is NULL");
    WRONG(bmc_tokenize(model, "a", 1, &list, NULL, &error), "`n_ids` is NULL");
    WRONG(bmc_tokenize_flags(model, "a", 1, 8, &list, &n, &error), "no flags 0x8");
    WRONG(bmc_detokenize(NULL, ids, 1, &text, &error), "`model` is NULL");
    WRONG(bmc_detokenize(model, NULL, 1, &text, &error), "`ids` is NULL");
    WRONG(bmc_detokenize(model, ids, 1, NULL, &error), "`text` is NULL");
    WRONG(bmc_context_open(NULL, model, NULL, &error), "`context` is NULL");
    WRONG(bmc_context_open(&made, NULL, NULL, &error), "`model` is NULL");
    WRONG(bmc_context_open(&made, model, OPTIONS(.context = SIZE_MAX), &error), "beyond the model's");
    WRONG(bmc_context_open(&made, model, OPTIONS(.sequences = SIZE_MAX), &error), "at most");
    WRONG(bmc_context_open(&made, model, OPTIONS(.beams = SIZE_MAX), &error), "");
    WRONG(bmc_context_open(&made, model, OPTIONS(.draft_max = SIZE_MAX, .drafter = "lookup"), &error),
          "at most");
    WRONG(bmc_context_stats(none, &stats, &error), "`context` is NULL");
    WRONG(bmc_context_stats(context, NULL, &error), "`stats` is NULL");
    WRONG(bmc_eval(none, &input, 1, &error), "`context` is NULL");
    WRONG(bmc_eval(context, NULL, 1, &error), "`inputs` is NULL");
    WRONG(bmc_eval(context, &input, SIZE_MAX, &error), "inputs for");
    refused(bmc_eval(context, &input, 1, &error), BMC_FULL, "is full");
    input.n_ids = 1;
    input.sequence = huge;
    WRONG(bmc_eval(context, &input, 1, &error), "there is no sequence");
    input = INPUT(.n_ids = 1);
    WRONG(bmc_eval(context, &input, 1, &error), "`ids` is NULL");
    WRONG(bmc_begin(none, 0, 0, &error), "`context` is NULL");
    WRONG(bmc_begin(context, huge, 0, &error), "there is no sequence");
    WRONG(bmc_set_lora(none, 0, NULL, 0, &error), "`context` is NULL");
    WRONG(bmc_set_lora(context, 0, logits, huge, &error), "factors are given");
    WRONG(bmc_fork(none, 0, 1, 1, NULL, &error), "`context` is NULL");
    WRONG(bmc_fork(context, 0, huge, 1, NULL, &error), "there is no sequence");
    WRONG(bmc_generate(none, &request, &result, 1, NULL, &error), "`context` is NULL");
    WRONG(bmc_generate(context, NULL, &result, 1, NULL, &error), "`requests` is NULL");
    WRONG(bmc_generate(context, &request, NULL, 1, NULL, &error), "`results` is NULL");
    WRONG(bmc_generate(context, &many, &result, 1, NULL, &error), "");
    WRONG(bmc_chat_render(none, "{}", &list, &n, NULL, &error), "`context` is NULL");
    WRONG(bmc_chat_render(context, NULL, &list, &n, NULL, &error), "`conversation` is NULL");
    WRONG(bmc_sampler_open(&sampler, none, NULL, 0, &error), "`context` is NULL");
    WRONG(bmc_sampler_open(NULL, context, NULL, 0, &error), "`sampler` is NULL");
    WRONG(bmc_sample(NULL, logits, ids, 1, &id, &error), "`sampler` is NULL");
    WRONG(bmc_text_open(&stream, NULL, ids, 1, &error), "`model` is NULL");
    WRONG(bmc_text_open(&stream, model, NULL, 1, &error), "`ids` is NULL");
    WRONG(bmc_text_add(NULL, 1, &more, &n, &error), "`text` is NULL");
    WRONG(bmc_text_finish(NULL, &more, &n, &error), "`text` is NULL");
    WRONG(bmc_score(none, ids, 1, logprobs, &error), "`context` is NULL");
    WRONG(bmc_score(context, NULL, 1, logprobs, &error), "`ids` is NULL");
    WRONG(bmc_score(context, ids, 1, NULL, &error), "`logprobs` is NULL");
    WRONG(bmc_embed(none, ids, 1, BMC_POOL_MEAN, 0, logits, &error), "`context` is NULL");
    WRONG(bmc_embed(context, ids, 1, BMC_POOL_MEAN, 0, NULL, &error), "`embedding` is NULL");
    WRONG(bmc_embed(context, ids, 1, (enum bmc_pooling)99, 0, logits, &error), "no pooling 99");
    WRONG(bmc_save(none, 0, snapshot, &error), "`context` is NULL");
    WRONG(bmc_save(context, huge, snapshot, &error), "there is no sequence");
    WRONG(bmc_save(context, 0, NULL, &error), "`path` is NULL");
    WRONG(bmc_load(none, 0, snapshot, &error), "`context` is NULL");
    WRONG(bmc_load(context, 0, NULL, &error), "`path` is NULL");
    check(bmc_model_vocab(NULL) + bmc_model_context(NULL) + bmc_model_hidden(NULL) +
                      bmc_model_lora(NULL) ==
                  0 &&
              !bmc_is_eog(NULL, 1) && !bmc_is_eog(model, UINT32_MAX),
          "figures of no model");
    check(bmc_context_size(NULL) + bmc_context_sequences(NULL) + bmc_length(NULL, 0) +
                      bmc_truncate(NULL, 0, 1) ==
                  0 &&
              !bmc_tokens(NULL, 0) &&
              bmc_length(context, huge) + bmc_truncate(context, huge, huge) == 0,
          "figures of no context");
    bmc_model_close(NULL);
    bmc_context_close(NULL);
    bmc_sampler_close(NULL);
    bmc_text_close(NULL);
    bmc_result_release(NULL);
}

int main(int argc, char **argv)
{
    uint64_t expected[RUNS] = {0};
    if (argc < 4)
        return 2;
    path = argv[1];
    chat_template = argv[2];
    snapshot = argv[3];
    const struct bmc_model_options how = {.size = sizeof how, .experts = argc > 4 ? argv[4] : NULL};
    check(bmc_model_open_with(&model, path, &how, &error) == 0, "%s: %s", path, error.text);
    vocab = bmc_model_vocab(model);
    if (vocab > MAX_VOCAB || bmc_model_hidden(model) > MAX_HIDDEN)
        return 1;
    const struct bmc_options *options =
        OPTIONS(.context = 64, .sequences = 3, .threads = 2, .chat_template = chat_template);
    struct bmc_context *context = open_context(model, options);
    const struct bmc_input input = INPUT(.ids = ids, .n_ids = N_IDS);
    check(bmc_eval(context, &input, 1, &error) == 0 && bmc_save(context, 0, snapshot, &error) == 0,
          "%s", error.text);
    for (size_t i = 0; i < RUNS; i++)
        check(runs[i](context, &expected[i]) == 0 && expected[i], "function %zu", i);
    test_threads(NULL, options, expected, ROUNDS);
    if (!how.experts) {
        test_threads(context, options, expected, ROUNDS);
        test_inside(false);
        test_inside(true);
        test_close();
        test_wrong(context);
    }
    bmc_context_close(context);
    bmc_model_close(model);
    return check_result();
}
