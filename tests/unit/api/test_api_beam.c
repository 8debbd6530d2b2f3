/* Beam search through the public API: scores against log-probabilities, one beam against greedy decoding,
 * batches against single requests. python.py compares with bmc-gen --beams.
 *
 *    test_api_beam MODEL.bmc "PROMPT" */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/api/api_check.h"

enum { WIDTH = 3, LENGTH = 8 };

static const double penalty = 0.5;

static size_t count_results(const struct bmc_result *result)
{
    size_t n = 0;
    for (; result; result = result->next)
        n++;
    return n;
}

/* The sum of the log-probabilities of a beam's tokens, by bmc_score(). */
static double sum_of(struct bmc_context *context, const uint32_t *prompt, const struct bmc_result *beam)
{
    const size_t n = beam->n_prompt + beam->n_ids;
    uint32_t *ids = malloc(n * sizeof *ids);
    double *logprobs = malloc(n * sizeof *logprobs), sum = 0;
    if (!ids || !logprobs)
        exit(1);
    memcpy(ids, prompt, beam->n_prompt * sizeof *ids);
    memcpy(ids + beam->n_prompt, beam->ids, beam->n_ids * sizeof *ids);
    check(bmc_score(context, ids, n, logprobs, &error) == 0, "%s", error.text);
    for (size_t i = beam->n_prompt; i < n; i++)
        sum += logprobs[i];
    free(ids);
    free(logprobs);
    return sum;
}

static void test_scores(const struct bmc_model *model, const char *prompt)
{
    const struct bmc_request request =
        REQUEST(.settings = "{\"n\": 8, \"ignore_eos\": true}", .text = prompt);
    struct bmc_context *context =
        open_context(model, OPTIONS(.context = 128, .beams = WIDTH, .length_penalty = &penalty));
    struct bmc_context *plain = open_context(model, OPTIONS(.context = 128));
    struct bmc_result result = RESULT;
    uint32_t *ids;
    size_t n;
    check(bmc_context_sequences(context) == WIDTH, "as many sequences as beams");
    check(bmc_tokenize(model, prompt, strlen(prompt), &ids, &n, &error) == 0, "tokenize");
    const struct bmc_input before = INPUT(.sequence = 1, .ids = ids, .n_ids = n);
    check(bmc_eval(context, &before, 1, &error) == 0, "%s", error.text);
    check(bmc_generate(context, &request, &result, 1, NULL, &error) == 0, "%s", error.text);
    check(count_results(&result) == WIDTH, "%zu beams", count_results(&result));
    double last = 0;
    for (const struct bmc_result *beam = &result; beam; beam = beam->next) {
        char *text;
        const double score = sum_of(plain, ids, beam) / pow(LENGTH, penalty);
        check(beam->n_ids == LENGTH && beam->finish == BMC_FINISH_LENGTH && beam->n_prompt == n &&
                  beam->status == 0 && beam->sequence == SIZE_MAX && beam->size == sizeof *beam,
              "a beam of %zu tokens", beam->n_ids);
        check(near(beam->score, score, 1e-4), "score %g, expected %g", beam->score, score);
        check(beam == &result || beam->score <= last, "the best beam is the first");
        last = beam->score;
        check(bmc_detokenize(model, beam->ids, beam->n_ids, &text, &error) == 0, "%s", error.text);
        check(strcmp(beam->text + strspn(beam->text, " "), text + strspn(text, " ")) == 0,
              "text: %s / %s", beam->text, text);
        free(text);
    }
    for (size_t i = 0; i < WIDTH; i++)
        check(bmc_length(context, i) == 0 && !bmc_tokens(context, i), "sequence %zu is empty", i);
    check(bmc_eval(context, &before, 1, &error) == 0 && bmc_length(context, 1) == n, "it can be used");
    bmc_result_release(&result);
    check(!result.next && !result.text, "released");
    free(ids);
    bmc_context_close(context);
    bmc_context_close(plain);
}

static void test_one_beam(const struct bmc_model *model, const char *prompt)
{
    const struct bmc_request request = REQUEST(.settings = "{\"n\": 12}", .text = prompt);
    struct bmc_context *one = open_context(model, OPTIONS(.context = 128, .beams = 1));
    struct bmc_context *greedy = open_context(model, OPTIONS(.context = 128));
    struct bmc_result beam = RESULT, plain = RESULT;
    check(bmc_generate(one, &request, &beam, 1, NULL, &error) == 0 &&
              bmc_generate(greedy, &request, &plain, 1, NULL, &error) == 0,
          "%s", error.text);
    check(strcmp(beam.text, plain.text) == 0 && !beam.next && beam.score < 0 && !(plain.score < 0),
          "a single beam is greedy decoding: %s / %s", beam.text, plain.text);
    bmc_result_release(&beam);
    bmc_result_release(&plain);
    bmc_context_close(one);
    bmc_context_close(greedy);
}

/* What the callbacks have seen of each request. */
struct told {
    size_t n_ids[3];
};

static int tell(void *arg, size_t request, size_t choice, const char *text, size_t len,
                const uint32_t *ids, size_t n_ids)
{
    struct told *told = arg;
    (void)text;
    (void)len;
    (void)ids;
    check(choice == 0 && request < 3, "request %zu, choice %zu", request, choice);
    told->n_ids[request] += n_ids;
    return 0;
}

/* Three requests, one of which fails, two at a time: the best two of three beams, as one at a time. */
static void test_batch(const struct bmc_model *model, const char *prompt)
{
    const struct bmc_request request[] = {REQUEST(.settings = "{\"n\": 9}", .text = prompt),
                                          REQUEST(.settings = "{\"n\": 5, \"temp\": 1}", .text = "A"),
                                          REQUEST(.settings = "{\"n\": 7}", .text = "The king")};
    struct bmc_context *many =
        open_context(model, OPTIONS(.context = 128, .sequences = 2 * WIDTH + 1, .beams = WIDTH,
                                    .n_best = 2, .kv = "paged:16", .early_stopping = "never"));
    struct bmc_context *single = open_context(
        model, OPTIONS(.context = 128, .beams = WIDTH, .n_best = 2, .early_stopping = "never"));
    struct bmc_result together[3] = {RESULT, RESULT, RESULT};
    struct told told = {{0}};
    const struct bmc_callbacks callbacks = {
        .size = sizeof callbacks, .arg = &told, .choice_text = tell};
    refused(bmc_generate(many, request, together, 3, &callbacks, &error), BMC_INVALID,
            "request 1: beam search is deterministic");
    for (size_t i = 0; i < 3; i++) {
        struct bmc_result alone = RESULT;
        const struct bmc_result *a = &alone, *b = &together[i];
        check((bmc_generate(single, &request[i], &alone, 1, NULL, &error) < 0) == (i == 1), "%s",
              error.text);
        check(count_results(b) == (i == 1 ? 1 : 2) && count_results(a) == count_results(b), "beams");
        check(told.n_ids[i] == b->n_ids, "text of the best beam");
        for (; i != 1 && a && b; a = a->next, b = b->next)
            check(strcmp(a->text, b->text) == 0 && near(a->score, b->score, 1e-9) &&
                      strcmp(a->logits_hash, b->logits_hash) == 0,
                  "request %zu: %s / %s", i, a->text, b->text);
        bmc_result_release(&alone);
        bmc_result_release(&together[i]);
    }
    /* a program that does not know of further results */
    struct bmc_result older = {.size = offsetof(struct bmc_result, next)};
    check(bmc_generate(single, request, &older, 1, NULL, &error) == 0 && older.n_ids == 9, "older");
    bmc_result_release(&older);
    bmc_context_close(many);
    bmc_context_close(single);
}

/* Settings that beam search does not support, refused before the prompt is evaluated. */
static void test_conflicts(const struct bmc_model *model)
{
    static const struct {
        const char *settings, *sentence;
    } wrong[] = {
        {"{\"n_choices\": 2}", "n_choices: beam search has one answer"},
        {"{\"temperature\": 0.5}", "it needs temperature 0"},
        {"{\"repeat_penalty\": 1.1}", "does not support penalties"},
        {"{\"dry_multiplier\": 0.8}", "does not support penalties"},
        {"{\"stop\": \"A\"}", "does not support stop strings"},
        {"{\"logprobs\": 1}", "does not report log-probabilities"},
    };
    struct bmc_context *context = open_context(model, OPTIONS(.context = 128, .beams = WIDTH));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct bmc_request request = REQUEST(.settings = wrong[i].settings, .text = "The king");
        struct bmc_result result = RESULT;
        refused(bmc_generate(context, &request, &result, 1, NULL, &error), BMC_INVALID,
                wrong[i].sentence);
        check(count_results(&result) == 1, "one result");
        bmc_result_release(&result);
    }
    struct bmc_stats stats = {.size = sizeof stats};
    check(bmc_context_stats(context, &stats, &error) == 0, "%s", error.text);
    check(stats.prompt_tokens == 0 && stats.generated_tokens == 0, "%zu tokens of prompts evaluated",
          (size_t)stats.prompt_tokens);
    bmc_context_close(context);
}

static void test_refusals(const struct bmc_model *model)
{
    const double infinite = INFINITY;
    const struct {
        const struct bmc_options *options;
        const char *sentence;
    } wrong[] = {
        {OPTIONS(.beams = 4, .sequences = 3), "4 `beams` of a request need as many `sequences`"},
        {OPTIONS(.beams = 4, .n_best = 5), "n_best is 5 of 4 `beams`"},
        {OPTIONS(.n_best = 1), "go with `beams`"},
        {OPTIONS(.length_penalty = &penalty), "go with `beams`"},
        {OPTIONS(.beams = 2, .length_penalty = &infinite), "finite"},
        {OPTIONS(.beams = 2, .early_stopping = "soon"),
         "there is no early_stopping \"soon\"; there are yes, no and never"},
        {OPTIONS(.beams = 2, .early_stopping = "yes|no"), "there are yes, no and never"},
        {OPTIONS(.beams = 2, .early_stopping = ""), "there are yes, no and never"},
        {OPTIONS(.beams = 2, .drafter = "lookup"), "excludes speculative decoding"},
        {OPTIONS(.beams = SIZE_MAX), "at most"},
        {OPTIONS(.beams = 5000), "at most"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct bmc_context *context;
        refused(bmc_context_open(&context, model, wrong[i].options, &error), BMC_INVALID,
                wrong[i].sentence);
        check(!context, "no context");
    }
}

int main(int argc, char **argv)
{
    struct bmc_model *model;
    if (argc != 3)
        return 2;
    if (!check(bmc_model_open(&model, argv[1], &error) == 0, "%s", argv[1]))
        return check_result();
    vocab = bmc_model_vocab(model);
    test_scores(model, argv[2]);
    test_one_beam(model, argv[2]);
    test_batch(model, argv[2]);
    test_conflicts(model);
    test_refusals(model);
    bmc_model_close(model);
    return check_result();
}
