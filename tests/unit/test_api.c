/* The library as a user has it: bmc.h and libbmc.a alone. Greedy text of a model against a reference
 * file.
 *
 *   test_api MODEL.bmc "PROMPT" "EXPECTED TEXT" */
#include <stdlib.h>
#include <string.h>

#include "bmc.h"
#include "check.h"

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
        /* Cut back and fed again, it goes the same way. */
        bmc_cut(context, sequence, n_ids);
        check(bmc_feed(context, sequence, made, 1, &logits, &error) == 0 &&
                  best(logits, bmc_model_vocab(model)) == made[1],
              "after a cut");
        bmc_cut(context, sequence, 0);
    }
    free(ids);
    bmc_context_close(context);
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
    const uint32_t beyond = (uint32_t)bmc_model_vocab(model), some[3] = {5, 6, 7};
    check(bmc_context_open(&context, model, &(struct bmc_options){.kv = "none"}, &error) < 0,
          "an unknown policy");
    check(bmc_context_open(&context, model, &(struct bmc_options){.context = 1 << 30}, &error) < 0,
          "a huge context");
    check(bmc_context_open(&context, model, &(struct bmc_options){.context = 2}, &error) == 0,
          "a small context");
    check(bmc_feed(context, 0, &beyond, 1, &logits, &error) < 0, "an id beyond the vocabulary");
    check(bmc_feed(context, 1, some, 1, &logits, &error) < 0, "a sequence that is not there");
    check(bmc_feed(context, 0, some, 3, NULL, &error) < 0 && bmc_fed(context, 0) == 0,
          "more than the context");
    check(bmc_feed(context, 0, some, 2, NULL, &error) == 0, "a full context");
    check(bmc_model_context(model) == 1024 && bmc_model_is_end(model, 2) && !bmc_model_is_end(model, 3),
          "the model");
    bmc_context_close(context);
    bmc_model_close(model);
    return check_result();
}
