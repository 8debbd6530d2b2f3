/* Random batches of prompts with common prefixes, under cache policies that trim sequences and under
 * others: each request gets the ids of a run by itself, and the run terminates.
 *
 *   test_batches [BATCHES]
 *
 * Runs so many batches under each cache configuration. BMC_SEED repeats a run. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/threads.h"
#include "tests/unit/check.h"
#include "decode/generate.h"
#include "decode/sample/rng.h"
#include "kv/offload/kv_streaming.h"
#include "tests/unit/tiny_model.h"

enum {
    MODEL_CONTEXT = 128,
    REQUESTS = 8,
    PREFIXES = 2,
    PREFIX = 40,
    TAIL = 12,
    TOKENS = 50,
    SECONDS = 60
};

/* A cache configuration. Prompts fit the context. */
static const struct batch_case {
    const char *kv;
    size_t context;
    bool recompute, sparse;
    enum layer_kind kind; /* recurrent state; LAYER_FULL: none */
} ways[] = {
    {"bmc", MODEL_CONTEXT, false, false, LAYER_FULL},
    {"segment", 64, true, false, LAYER_FULL},
    {"shift:S=32", MODEL_CONTEXT, false, false, LAYER_FULL},
    {"shift:S=40,slack=0,sinks=4", MODEL_CONTEXT, false, false, LAYER_FULL},
    {"shift", 56, true, false, LAYER_FULL},
    {"headwise", MODEL_CONTEXT, false, true, LAYER_FULL},
    {"headwise", 56, true, false, LAYER_FULL},
    {"bmc", MODEL_CONTEXT, false, false, LAYER_DELTA},
    {"segment", 64, true, false, LAYER_CONV},
    {"shift:S=32", MODEL_CONTEXT, false, false, LAYER_MAMBA},
    {"headwise", 56, true, false, LAYER_MAMBA_FULL},
};

static uint64_t seed;
static uint32_t draws;

static size_t pick(size_t least, size_t most)
{
    return least + (size_t)(rng_uniform(seed, 0, draws++, 0) * (double)(most - least + 1));
}

struct batch {
    uint32_t prompt[REQUESTS][PREFIX + TAIL];
    size_t n_prompt[REQUESTS], n[REQUESTS], requests;
};

static void draw_batch(struct batch *b)
{
    uint32_t prefix[PREFIXES][PREFIX];
    for (size_t p = 0; p < PREFIXES; p++)
        for (size_t i = 0; i < PREFIX; i++)
            prefix[p][i] = (uint32_t)pick(1, 60);
    b->requests = pick(2, REQUESTS);
    for (size_t i = 0; i < b->requests; i++) {
        const size_t common = pick(0, 3) ? pick(14, PREFIX) : 0, tail = pick(1, TAIL);
        memcpy(b->prompt[i], prefix[pick(0, PREFIXES - 1)], common * sizeof(uint32_t));
        for (size_t k = 0; k < tail; k++)
            b->prompt[i][common + k] = (uint32_t)pick(1, 60);
        b->n_prompt[i] = common + tail;
        b->n[i] = pick(0, 1) ? pick(1, TOKENS) : pick(0, 3);
    }
}

/* A run of the requests [next, end). */
struct test_run {
    const struct batch *batch;
    size_t end, next;
    struct gen_request request[REQUESTS];
    struct ids ids[REQUESTS];
    size_t ended, failed;
};

static int next_request(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct test_run *run = arg;
    const size_t i = run->next;
    (void)wait;
    if (i == run->end)
        return GEN_END;
    for (size_t k = 0; k < run->batch->n_prompt[i]; k++)
        if (ids_add(&run->ids[i], run->batch->prompt[i][k], err) < 0)
            return -1;
    run->request[i] =
        (struct gen_request){.line = i, .ids = &run->ids[i], .n = run->batch->n[i], .ignore_eos = true};
    *request = &run->request[run->next++];
    return GEN_REQUEST;
}

static int done(void *arg, const struct gen_result *result, struct err *err)
{
    struct test_run *run = arg;
    (void)err;
    run->ended++;
    run->failed += result->finish == FINISHED_ERROR;
    return 0;
}

static int generate_all(struct test_run *run, const struct model *model, const struct batch_case *way,
                        const struct session_options *options, struct gen_stats *stats, struct err *err)
{
    static const volatile sig_atomic_t never;
    static const char list[] = "sink 4\nrecent 24\n0 1\n";
    const struct gen_callbacks callbacks = {.next = next_request, .done = done, .arg = run};
    const struct sampler_options greedy = {.repeat_penalty = 1};
    struct session_options o = *options;
    struct session *session = NULL;
    struct kv_streaming sparse = {0};
    int rc = -1;
    if (kv_spec_parse(&o.kv, way->kv, err) < 0 || !(o.cpu.attn = attn_find(NULL, err)) ||
        !(o.cpu.kernels = kernels_select(NULL, err)) ||
        (way->sparse && kv_streaming_parse(&sparse, list, sizeof list - 1, "list", 2, 2, err) < 0))
        return -1;
    o.kv.offload.streaming = way->sparse ? &sparse : NULL;
    o.context = way->context;
    o.recompute = way->recompute;
    o.threads = o.threads_prefill = 1;
    if (session_open(&session, model, &o, err) == 0)
        rc = generate(session, &greedy, NULL, &callbacks, &never, stats, err);
    session_close(session);
    kv_streaming_release(&sparse);
    return rc;
}

static bool same_ids(const struct ids *a, const struct ids *b)
{
    return a->len == b->len && !memcmp(a->id, b->id, a->len * sizeof *a->id);
}

/* Returns the number of prompt tokens whose KV entries were shared. */
static size_t run_batch(const struct model *model, const struct batch_case *way, size_t number)
{
    struct batch batch;
    draw_batch(&batch);
    const struct session_options o = {.batch = pick(1, 4),
                                      .chunk = pick(0, 1) ? 64 : pick(1, 20),
                                      .prefix_cache_bytes = pick(0, 1) ? 1 << 20 : 0,
                                      .kept_states = pick(1, 8)};
    struct test_run all = {.batch = &batch, .end = batch.requests};
    struct gen_stats stats = {0};
    struct err err;
    char what[160];
    snprintf(what, sizeof what, "batch %zu, %s%s%s, kind %d, -b %zu, chunk %zu%s", number, way->kv,
             way->recompute ? " with recompute" : "", way->sparse ? " with sparse heads" : "",
             (int)way->kind, o.batch, o.chunk, o.prefix_cache_bytes ? ", prefix cache" : "");
    check(generate_all(&all, model, way, &o, &stats, &err) == 0, "%s: %s", what, err.text);
    check(all.ended == batch.requests && !all.failed, "%s: of %zu results %zu are errors", what,
          all.ended, all.failed);
    for (size_t i = 0; i < batch.requests; i++) {
        const struct session_options one = {.batch = 1, .chunk = 16};
        struct test_run alone = {.batch = &batch, .next = i, .end = i + 1};
        struct gen_stats ignored;
        check(generate_all(&alone, model, way, &one, &ignored, &err) == 0 &&
                  same_ids(&all.ids[i], &alone.ids[i]),
              "%s: request %zu has other ids than alone", what, i);
        ids_release(&alone.ids[i]);
        ids_release(&all.ids[i]);
    }
    return stats.shared_rows;
}

int main(int argc, char **argv)
{
    size_t batches = check_size(25, 8);
    if (argc > 2 || (argc == 2 && !parse_size(argv[1], &batches)))
        return fprintf(stderr, "usage: test_batches [BATCHES]\n"), 2;
    setvbuf(stdout, NULL, _IOLBF, 0); /* the seed is visible even if a run never ends */
    seed = check_seed(1);
    threads_set(1);
    kernels_setup();
    for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
        struct model *model = tiny_model_of(MODEL_CONTEXT, ways[w].kind);
        size_t shared = 0;
        alarm(SECONDS);
        for (size_t i = 0; i < batches; i++)
            shared += run_batch(model, &ways[w], i);
        printf("# %s%s%s: %zu shared rows\n", ways[w].kv, ways[w].recompute ? " with recompute" : "",
               ways[w].sparse ? " with sparse heads" : "", shared);
        check(batches < 8 || shared > 0, "%s: nothing was shared", ways[w].kv);
        model_close(model);
    }
    return check_result();
}
