/* LoRA adapters through the public library, against PEFT.
 *
 *    test_api_lora MODEL.bmc MODELS_DIR SNAPSHOT ADAPTER SECOND REFERENCE BOTH
 *
 * REFERENCE has three lines of numbers: the ids of a prompt, its greedy continuation with ADAPTER, the logits after
 * the prompt; BOTH has those together with SECOND, whose scale is -0.75. SNAPSHOT is a file to write. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "tests/unit/api/api_check.h"

enum { MAX_IDS = 64, MAX_VOCAB = 1024, CONTEXT = 64 };

struct reference {
    uint32_t ids[MAX_IDS];
    size_t n;
    float logits[MAX_VOCAB];
};

static uint32_t prompt[MAX_IDS];
static size_t n_prompt;
static struct reference one, both;

static size_t read_ids(FILE *file, uint32_t *ids)
{
    size_t n = 0;
    while (n < MAX_IDS && fscanf(file, "%" SCNu32, &ids[n]) == 1)
        if (n++, fgetc(file) == '\n')
            break;
    return n;
}

static void read_reference(struct reference *to, const char *path)
{
    FILE *file = fopen(path, "r");
    size_t n = 0;
    if (!check(file != NULL, "%s", path))
        return;
    n_prompt = read_ids(file, prompt);
    to->n = read_ids(file, to->ids);
    while (n < MAX_VOCAB && fscanf(file, "%f", &to->logits[n]) == 1)
        n++;
    fclose(file);
    check(n_prompt > 5 && to->n > 5 && n == vocab, "%s: %zu ids, %zu ids, %zu logits of %zu", path,
          n_prompt, to->n, n, vocab);
}

static void eval_prompts(struct bmc_context *context, float *logits, size_t sequences)
{
    struct bmc_input in[3];
    for (size_t i = 0; i < sequences; i++) {
        bmc_truncate(context, i, 0);
        in[i] = INPUT(.sequence = i, .ids = prompt, .n_ids = n_prompt, .n_outputs = 1,
                      .logits = logits + i * vocab);
    }
    check(bmc_eval(context, in, sequences, &error) == 0, "%s", error.text);
}

static void close_to(const char *name, const float *logits, const struct reference *want)
{
    float most = 0;
    for (size_t i = 0; i < vocab; i++)
        most = fmaxf(most, fabsf(logits[i] - want->logits[i]));
    check(most < 5e-5f, "%s: logits differ by %g", name, (double)most);
}

static bool same(const float *a, const float *b) { return memcmp(a, b, vocab * sizeof *a) == 0; }

/* Sequences of one batch with both adapters, the first, and none. */
static void test_eval(const struct bmc_model *model, const struct bmc_model *plain)
{
    static float logits[3 * MAX_VOCAB], without[MAX_VOCAB], forked[MAX_VOCAB];
    struct bmc_context *context =
        open_context(model, OPTIONS(.context = CONTEXT, .sequences = 3, .precision = "f32"));
    struct bmc_context *base = open_context(plain, OPTIONS(.context = CONTEXT, .precision = "f32"));
    eval_prompts(base, without, 1);
    check(bmc_set_lora(context, 1, (float[]){1, 0}, 2, &error) == 0 &&
              bmc_set_lora(context, 2, (float[]){0, 0}, 2, &error) == 0,
          "%s", error.text);
    eval_prompts(context, logits, 3);
    close_to("both", logits, &both);
    close_to("the first", logits + vocab, &one);
    check(same(logits + 2 * vocab, without), "none: the bits of the model without adapters");
    size_t n;
    check(bmc_fork(context, 0, 1, n_prompt - 1, &n, &error) == 0 && n == n_prompt - 1, "%s",
          error.text);
    const struct bmc_input last =
        INPUT(.sequence = 0, .ids = prompt + n, .n_ids = 1, .n_outputs = 1, .logits = forked);
    check(bmc_eval(context, &last, 1, &error) == 0 && same(forked, logits + vocab),
          "a fork has the factors of its origin");
    bmc_context_close(base);
    bmc_context_close(context);
}

static void test_generate(const struct bmc_model *model)
{
    struct bmc_context *context =
        open_context(model, OPTIONS(.context = CONTEXT, .sequences = 2, .precision = "f32"));
    const char *const settings[] = {
        "{\"n\": 12, \"ignore_eos\": true}", "{\"n\": 12, \"ignore_eos\": true, \"lora\": [0]}",
        "{\"n\": 12, \"ignore_eos\": true, \"lora\": [{\"id\": 0, \"scale\": 1}, 1]}"};
    const struct reference *const want[] = {&both, &one, &both};
    struct bmc_request request[3];
    struct bmc_result result[3] = {RESULT, RESULT, RESULT};
    for (int i = 0; i < 3; i++)
        request[i] = REQUEST(.settings = settings[i], .ids = prompt, .n_ids = n_prompt);
    for (int round = 0; round < 2; round++) { /* the second one has KV entries of the first */
        check(bmc_generate(context, request, result, 3, NULL, &error) == 0, "%s", error.text);
        for (int i = 0; i < 3; i++) {
            check(result[i].n_ids == want[i]->n &&
                      memcmp(result[i].ids, want[i]->ids, want[i]->n * sizeof *prompt) == 0,
                  "round %d, request %d", round, i);
            bmc_result_release(&result[i]);
        }
    }
    const struct bmc_request unknown =
        REQUEST(.settings = "{\"lora\": [2]}", .ids = prompt, .n_ids = 1);
    refused(bmc_generate(context, &unknown, result, 1, NULL, &error), BMC_INVALID, "no adapter 2");
    bmc_result_release(result);
    bmc_context_close(context);
}

/* What changes a sequence's factors empties it; snapshots have those of all sequences at first. */
static void test_sequences(const struct bmc_model *model, const struct bmc_model *plain,
                           const char *snapshot)
{
    static float logits[MAX_VOCAB];
    struct bmc_context *context = open_context(model, OPTIONS(.context = CONTEXT, .precision = "f32"));
    eval_prompts(context, logits, 1);
    check(bmc_set_lora(context, 0, (float[]){1, 1}, 2, &error) == 0 &&
              bmc_length(context, 0) == n_prompt,
          "the same factors keep the tokens");
    refused(bmc_set_lora(context, 0, (float[]){1}, 1, &error), BMC_INVALID, "1 factors are given");
    refused(bmc_set_lora(context, 0, (float[]){1, NAN}, 2, &error), BMC_INVALID, "not a finite number");
    refused(bmc_set_lora(context, 0, NULL, 2, &error), BMC_INVALID, "2 factors are given");
    refused(bmc_set_lora(context, 1, NULL, 0, &error), BMC_INVALID, "no sequence 1");
    check(bmc_length(context, 0) == n_prompt, "errors change nothing");
    check(bmc_save(context, 0, snapshot, &error) == 0, "%s", error.text);
    check(bmc_set_lora(context, 0, (float[]){1, 0.5f}, 2, &error) == 0 && bmc_length(context, 0) == 0 &&
              !bmc_tokens(context, 0),
          "others empty it");
    eval_prompts(context, logits, 1);
    refused(bmc_save(context, 0, snapshot, &error), BMC_INVALID, "LoRA factors of its own");
    check(bmc_load(context, 0, snapshot, &error) == 0 && bmc_length(context, 0) == n_prompt, "%s",
          error.text);
    bmc_truncate(context, 0, n_prompt - 1);
    const struct bmc_input last =
        INPUT(.ids = prompt + n_prompt - 1, .n_ids = 1, .n_outputs = 1, .logits = logits);
    check(bmc_eval(context, &last, 1, &error) == 0, "%s", error.text);
    close_to("loaded", logits, &both);
    bmc_context_close(context);
    context = open_context(plain, OPTIONS(.context = CONTEXT));
    check(bmc_load(context, 0, snapshot, &error) == BMC_BAD_FILE, "without the adapters: %s",
          error.text);
    check(bmc_set_lora(context, 0, NULL, 0, &error) == 0, "a model without adapters: %s", error.text);
    bmc_context_close(context);
}

static void test_refused(const char *path, const char *models_dir, const char *adapter)
{
    struct bmc_model *model;
    const char *const missing[] = {"no adapter here"}, *const lora[] = {adapter};
#define MODEL_OPTIONS(...)                                                                             \
    (&(struct bmc_model_options){.size = sizeof(struct bmc_model_options), __VA_ARGS__})
    refused(bmc_model_open_with(&model, path, MODEL_OPTIONS(.lora = missing, .n_lora = 1), &error),
            BMC_BAD_FILE, "no adapter here");
    check(!model, "no model");
    refused(bmc_model_open_with(&model, path, MODEL_OPTIONS(.lora = lora, .n_lora = 65), &error),
            BMC_INVALID, "at most 64");
    refused(bmc_model_open_with(&model, path,
                                MODEL_OPTIONS(.lora = lora, .n_lora = 1,
                                              .lora_scale = (const float[]){INFINITY},
                                              .models_dir = models_dir),
                                &error),
            BMC_INVALID, "not a finite number");
    refused(bmc_model_open_with(&model, path, MODEL_OPTIONS(.experts = "8G"), &error), BMC_INVALID,
            "`experts` is \"8G\", expected is ram=BYTES");
    refused(bmc_model_open_with(&model, path, MODEL_OPTIONS(.experts = "ram=8G"), &error), BMC_BAD_FILE,
            "`experts`: ");
    check(!model, "a model without experts");
    refused(bmc_model_open_with(&model, path, MODEL_OPTIONS(.experts = "ram=8G", .numa = 1), &error),
            BMC_INVALID, "`experts` reads weights from the file: it excludes `mlock`");
    refused(bmc_model_open_with(&model, path, MODEL_OPTIONS(.numa = 1, .threads = -1), &error),
            BMC_INVALID, "-1 `threads`: from 1 to 4096");
    check(bmc_model_open_with(&model, path, MODEL_OPTIONS(.hugepages = can_copy_model()), &error) ==
                  0 &&
              bmc_model_lora(model) == 0,
          "%s", error.text);
    bmc_model_close(model);
}

/* Weights on NUMA nodes: contexts have the number of threads for which they were placed. */
static void test_numa(const char *path, const struct bmc_model *plain)
{
    struct bmc_model *model;
    struct bmc_context *context[2];
    float logits[2][MAX_VOCAB];
    const uint32_t ids[3] = {4, 5, 6};
    if (!check(bmc_model_open_with(&model, path, MODEL_OPTIONS(.numa = 1, .threads = 2), &error) == 0,
               "%s", error.text))
        return;
    refused(bmc_context_open(context, model, OPTIONS(.threads = 3), &error), BMC_INVALID,
            "3 and 3 threads: the model was opened with `numa` for 2 `threads`");
    refused(bmc_context_open(context, model, OPTIONS(.threads_batch = 3), &error), BMC_INVALID,
            "2 and 3 threads");
    context[0] = open_context(model, OPTIONS(.context = 8));
    context[1] = open_context(plain, OPTIONS(.context = 8, .threads = 2));
    for (int i = 0; i < 2; i++) {
        const struct bmc_input in = INPUT(.ids = ids, .n_ids = 3, .n_outputs = 1, .logits = logits[i]);
        check(bmc_eval(context[i], &in, 1, &error) == 0, "%s", error.text);
        bmc_context_close(context[i]);
    }
    check(memcmp(logits[0], logits[1], vocab * sizeof **logits) == 0, "the same logits");
    bmc_model_close(model);
}

int main(int argc, char **argv)
{
    struct bmc_model *model, *plain;
    if (argc != 8)
        return 2;
    const char *const lora[] = {argv[4], argv[5]};
    const struct bmc_model_options options = {.size = sizeof options,
                                              .lora = lora,
                                              .n_lora = 2,
                                              .lora_scale = (const float[]){1, -0.75f},
                                              .models_dir = argv[2]};
    if (!check(bmc_model_open_with(&model, argv[1], &options, &error) == 0 &&
                   bmc_model_open(&plain, argv[1], &error) == 0,
               "%s", error.text))
        return check_result();
    vocab = bmc_model_vocab(model);
    check(vocab <= MAX_VOCAB && bmc_model_lora(model) == 2, "a small model with two adapters");
    read_reference(&one, argv[6]);
    read_reference(&both, argv[7]);
    test_eval(model, plain);
    test_generate(model);
    test_sequences(model, plain, argv[3]);
    test_refused(argv[1], argv[2], argv[4]);
    test_numa(argv[1], plain);
    bmc_model_close(plain);
    bmc_model_close(model);
    return check_result();
}
