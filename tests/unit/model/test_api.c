/* The library as users link it: bmc.h and libbmc.a only. Greedy text of a model against a reference
 * file.
 *
 *    test_api MODEL.bmc "PROMPT" "EXPECTED TEXT" */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bmc.h"
#include "tests/unit/check.h"

static uint32_t best(const float *logits, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[at])
            at = i;
    return (uint32_t)at;
}

static void generate_text(const struct bmc_model *model, const char *prompt, const char *expected,
                          const char *kv)
{
    enum { N = 64 };
    const struct bmc_options options = {.context = 200, .sequences = 2, .threads = 2, .kv = kv};
    struct bmc_context *context;
    struct bmc_error error;
    uint32_t *ids, made[N];
    size_t n_ids;
    const float *logits;
    char *text;
    if (!check(bmc_tokenize(model, prompt, strlen(prompt), &ids, &n_ids, &error) == 0, "tokenize") ||
        !check(bmc_context_open(&context, model, &options, &error) == 0, "context"))
        return;
    for (size_t sequence = 0; sequence < 2; sequence++) {
        check(bmc_feed(context, sequence, ids, n_ids, &logits, &error) == 0, "feed");
        for (size_t i = 0; i < N; i++) {
            made[i] = best(logits, bmc_model_vocab(model));
            check(bmc_feed(context, sequence, &made[i], 1, &logits, &error) == 0, "feed");
        }
        check(bmc_fed(context, sequence) == n_ids + N, "fed");
        check(bmc_detokenize(model, made, N, &text, &error) == 0 && strcmp(text, expected) == 0,
              "%s: \"%s\"", kv, text);
        free(text);
        /* Truncated and fed again, it gives the same tokens. */
        bmc_cut(context, sequence, n_ids);
        check(bmc_feed(context, sequence, made, 1, &logits, &error) == 0 &&
                  best(logits, bmc_model_vocab(model)) == made[1],
              "after a cut");
        bmc_cut(context, sequence, 0);
    }
    free(ids);
    bmc_context_close(context);
}

/* Contexts of one model in two threads, with different numbers of worker threads. */
struct worker {
    const struct bmc_model *model;
    int threads;
    uint32_t chosen;
    bool ok;
};

static void *feed_much(void *arg)
{
    struct worker *w = arg;
    const struct bmc_options options = {.context = 1024, .threads = w->threads};
    struct bmc_context *context;
    struct bmc_error error;
    uint32_t ids[600];
    const float *logits;
    for (size_t i = 0; i < 600; i++)
        ids[i] = (uint32_t)(4 + i * 7 % 3000);
    if (bmc_context_open(&context, w->model, &options, &error) < 0)
        return NULL;
    w->ok = bmc_feed(context, 0, ids, 600, &logits, &error) == 0;
    if (w->ok)
        w->chosen = best(logits, bmc_model_vocab(w->model));
    bmc_context_close(context);
    return NULL;
}

static void test_two_threads(const struct bmc_model *model)
{
    struct worker worker[2] = {{.model = model, .threads = 1}, {.model = model, .threads = 7}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        check(pthread_create(&thread[i], NULL, feed_much, &worker[i]) == 0, "pthread_create");
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    check(worker[0].ok && worker[1].ok && worker[0].chosen == worker[1].chosen,
          "two contexts in two threads");
}

int main(int argc, char **argv)
{
    struct bmc_model *model;
    struct bmc_context *context;
    struct bmc_error error;
    const float *logits;
    if (argc != 4)
        return 2;
    check(bmc_model_open(&model, "no such file", &error) < 0 && model == NULL &&
              strstr(error.text, "no such file"),
          "a missing file");
    if (!check(bmc_model_open(&model, argv[1], &error) == 0, "%s", argv[1]))
        return check_result();
    generate_text(model, argv[2], argv[3], "bmc");
    generate_text(model, argv[2], argv[3], "upfront");
    test_two_threads(model);
    const uint32_t beyond = (uint32_t)bmc_model_vocab(model), some[3] = {5, 6, 7};
    check(bmc_context_open(&context, model, &(struct bmc_options){.kv = "none"}, &error) < 0,
          "an unknown policy");
    check(bmc_context_open(&context, model, &(struct bmc_options){.context = 1 << 30}, &error) < 0,
          "a huge context");
    check(bmc_context_open(&context, model, &(struct bmc_options){.context = 2}, &error) == 0,
          "a small context");
    check(bmc_feed(context, 0, &beyond, 1, &logits, &error) < 0, "an id beyond the vocabulary");
    check(bmc_feed(context, 1, some, 1, &logits, &error) < 0, "a sequence out of range");
    check(bmc_feed(context, 0, some, 3, NULL, &error) < 0 && bmc_fed(context, 0) == 0,
          "more than the context");
    check(bmc_feed(context, 0, some, 2, NULL, &error) == 0, "a full context");
    check(bmc_model_context(model) == 1024 && bmc_model_is_end(model, 2) && !bmc_model_is_end(model, 3),
          "the model");
    bmc_context_close(context);
    bmc_model_close(model);
    return check_result();
}
