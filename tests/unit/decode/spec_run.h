/* Runs of speculative decoding with small random models, for test_spec.c. */
#ifndef BMC_TEST_SPEC_RUN_H
#define BMC_TEST_SPEC_RUN_H

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "decode/generate.h"
#include "decode/spec/spec.h"
#include "model/config/config_keys.h"
#include "tests/unit/check.h"
#include "text/import/tok_build.h"

/* ---- models ---- */

enum { VOCAB = 8, GREEDY_VOCAB = 48, CONTEXT = 64 };

static struct model *make_model(size_t vocab, size_t layers, enum dtype type, uint64_t seed)
{
    const struct config_keys keys = {CONFIG_KEY_DEFAULTS,
                                     .mlp = {.activation = ACT_SILU, .kind = MLP_GATED}};
    const struct config config = {.layers = layers,
                                  .hidden = 32,
                                  .embed = 32,
                                  .heads = 2,
                                  .kv_heads = 1,
                                  .head_dim = 16, /* one register of the widest kernel set */
                                  .ffn = 48,
                                  .vocab = vocab,
                                  .context = CONTEXT,
                                  .norm = NORM_RMS,
                                  .position = POSITION_ROPE,
                                  .keys = &keys,
                                  .final_norm = true,
                                  .norm_eps = 1e-5,
                                  .tied_head = false};
    static struct buf blob; /* shared by all models, never released */
    struct model *model;
    struct err err;
    if (model_synthesize(&model, &config, "a test", type, seed, &err) < 0 ||
        (!blob.len && tokenizer_build_bytes(256, &blob, &err) < 0) ||
        tokenizer_open(&model->tok, blob.data, blob.len, &err) < 0) {
        printf("not ok - %s\n", err.text);
        exit(1);
    }
    return model;
}

enum test_drafter {
    PLAIN,
    MODEL,
    LOOKUP,
    OLDEST,
    RECYCLE,
    SUFFIX,
    SUFFIX_CORPUS,
    LOOKUP_MODEL,
    SUFFIX_MODEL,
    EAGLE,
    SUFFIX_EAGLE,
    GREEDY_KINDS,
    SMALL_EAGLE = GREEDY_KINDS /* a draft head for some of the target's tokens */
};

static bool has_head(enum test_drafter kind)
{
    return kind == EAGLE || kind == SUFFIX_EAGLE || kind == SMALL_EAGLE;
}

static bool has_model(enum test_drafter kind)
{
    return kind == MODEL || kind == LOOKUP_MODEL || kind == SUFFIX_MODEL || has_head(kind);
}

static inline bool drafts_trees(enum test_drafter kind)
{
    return kind != LOOKUP && kind != OLDEST && kind != LOOKUP_MODEL;
}

struct asked {
    struct gen_request request;
    struct ids ids;
};

/* A run over copies of one prompt, or over prompts of several lengths. */
struct test_run {
    const struct model *target, *draft; /* the draft model, or draft head */
    enum test_drafter kind;
    const char *kv;
    size_t batch, n, requests, draft_context;
    size_t context; /* 0: CONTEXT */
    uint64_t seed;
    bool lengths; /* request i has a longer, different prompt than i - 1 */
    struct spec_options options;
    struct sampler_options sampling;
    bool split;
    struct constraint *constraint; /* of all requests; NULL: none, as `markers` */
    const struct answer_markers *markers;
    /* Out. */
    uint32_t *ids; /* [requests][n] */
    size_t *n_ids;
    size_t next;
    struct spec_stats stats;
    uint32_t prompt[CONTEXT];
    struct asked *asked; /* [requests] */
};

static int next_request(void *arg, bool wait, const struct gen_request **request, struct err *err)
{
    struct test_run *run = arg;
    (void)wait;
    if (run->next == run->requests)
        return GEN_END;
    const size_t i = run->next++, n_prompt = run->lengths ? 3 + 5 * i % 11 : 3;
    struct asked *asked = &run->asked[i];
    for (size_t p = 0; p < n_prompt; p++)
        if (ids_add(&asked->ids, run->prompt[(run->lengths ? i : 0) + p], err) < 0)
            return -1;
    asked->request = (struct gen_request){.line = i,
                                          .stream = i,
                                          .seed = run->seed,
                                          .ids = &asked->ids,
                                          .n = run->n,
                                          .constraint = run->constraint,
                                          .markers = run->markers};
    *request = &asked->request;
    return GEN_REQUEST;
}

static int take_result(void *arg, const struct gen_result *result, struct err *err)
{
    struct test_run *run = arg;
    const size_t i = result->request->line;
    if (result->finish == FINISHED_ERROR)
        return *err = *result->error, -1;
    memcpy(run->ids + i * run->n, result->ids, result->n_ids * sizeof *result->ids);
    run->n_ids[i] = result->n_ids;
    return 0;
}

/* A drafter that needs no draft model; NULL for the others. */
static int open_first(const struct test_run *run, const struct ids *corpus, struct drafter **drafter,
                      struct err *err)
{
    /* Sequences of the sampling test are too short to repeat two tokens. */
    const size_t least = run->lengths ? 2 : 1;
    *drafter = NULL;
    switch (run->kind) {
    case PLAIN:
    case MODEL:
    case EAGLE:
    case SMALL_EAGLE: return 0;
    case LOOKUP:
    case LOOKUP_MODEL: return draft_lookup_open(drafter, 4, least, false, err);
    case OLDEST: return draft_lookup_open(drafter, 4, least, true, err);
    case RECYCLE: return draft_recycle_open(drafter, run->target->config.vocab, err);
    case SUFFIX: /* a pool that is overwritten, or one that holds many short sequences */
        return draft_suffix_open(drafter, run->batch, run->lengths ? 300 : 1 << 16, NULL, err);
    case SUFFIX_CORPUS:
    case SUFFIX_MODEL:
    case SUFFIX_EAGLE: return draft_suffix_open(drafter, run->batch, 1 << 14, corpus, err);
    }
    return -1;
}

static int open_drafter(const struct test_run *run, struct session *target, struct session **session,
                        struct session_options s, struct drafter **drafter, struct err *err)
{
    struct drafter *first, *model;
    struct ids corpus = {0};
    int rc = 0;
    for (size_t i = 0; i < CONTEXT && rc == 0; i++)
        rc = ids_add(&corpus, run->prompt[i], err);
    if (rc == 0)
        rc = open_first(run, &corpus, &first, err);
    ids_release(&corpus);
    if (rc < 0)
        return -1;
    *drafter = first;
    if (!has_model(run->kind))
        return 0;
    s.split = false;
    s.context = run->draft_context ? run->draft_context : s.context;
    s.chunk = size_min(s.chunk, s.context);
    if (session_open(session, run->draft, &s, err) < 0 ||
        (has_head(run->kind)
             ? draft_eagle_open(&model, *session, target, (const size_t[]){HIDDEN_FINAL}, 0.1, err)
             : draft_model_open(&model, *session, run->target->config.vocab, 0.1, err)) < 0)
        return -1;
    *drafter = model;
    return first ? draft_combined_open(drafter, first, model, run->batch, err) : 0;
}

static int run_all(struct test_run *run, struct err *err)
{
    const struct gen_callbacks callbacks = {.next = next_request, .done = take_result, .arg = run};
    static const volatile sig_atomic_t never;
    struct session *session = NULL, *draft_session = NULL;
    struct drafter *drafter = NULL;
    struct spec *spec = NULL;
    struct gen_stats stats;
    struct session_options s = {.cpu.attn = attn_find(NULL, err),
                                .cpu.kernels = kernels_select(NULL, err),
                                .context = run->context ? run->context : CONTEXT,
                                .batch = run->batch,
                                .chunk = 7,
                                .rows = run->batch * (spec_max_draft(&run->options) + 1),
                                .split = run->split,
                                .threads = 1,
                                .threads_prefill = 1};
    int rc = kv_spec_parse(&s.kv, run->kv, err);
    run->next = 0;
    for (uint32_t i = 0; i < CONTEXT; i++)
        run->prompt[i] = i * i * 7 % 5 % (uint32_t)run->target->config.vocab;
    run->sampling.repeat_penalty = run->sampling.repeat_penalty > 0 ? run->sampling.repeat_penalty : 1;
    run->sampling.repeat_last_n = 64;
    run->ids = calloc(run->requests * run->n, sizeof *run->ids);
    run->n_ids = calloc(run->requests, sizeof *run->n_ids);
    run->asked = calloc(run->requests, sizeof *run->asked);
    if (rc == 0)
        rc = session_open(&session, run->target, &s, err);
    if (rc == 0)
        rc = open_drafter(run, session, &draft_session, s, &drafter, err);
    if (rc == 0 && drafter)
        rc = spec_open(&spec, session, drafter, &run->options, err);
    if (rc == 0)
        rc = generate(session, &run->sampling, spec_strategy(spec), &callbacks, &never, &stats, err);
    run->stats = *spec_stats(spec);
    for (size_t i = 0; i < run->requests; i++)
        ids_release(&run->asked[i].ids);
    free(run->asked);
    spec_close(spec);
    drafter_close(drafter);
    session_close(draft_session);
    session_close(session);
    return rc;
}

static void free_run(struct test_run *run)
{
    free(run->ids);
    free(run->n_ids);
}

#endif
