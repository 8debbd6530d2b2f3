/* The public API above bmc_eval(): generation, sampling, text, scoring, embeddings, snapshots.
 *
 *    test_api_generate MODEL.bmc "PROMPT" "EXPECTED TEXT" SNAPSHOT
 *
 * EXPECTED TEXT is that of 64 tokens, greedy; SNAPSHOT is a file to write. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/api/api_check.h"

/* What the callbacks have seen. */
struct seen {
    char text[4096];
    size_t len, n_ids, calls, cancel_at, prefilled;
};

static int see_text(void *arg, size_t request, const char *text, size_t len, const uint32_t *ids,
                    size_t n_ids)
{
    struct seen *seen = arg;
    (void)ids;
    check(request == 0 && seen->len + len < sizeof seen->text, "callback");
    memcpy(seen->text + seen->len, text, len);
    seen->len += len;
    seen->n_ids += n_ids;
    return ++seen->calls == seen->cancel_at;
}

static void see_prefill(void *arg, size_t done, size_t total)
{
    struct seen *seen = arg;
    check(done <= total, "%zu of %zu", done, total);
    seen->prefilled = done;
}

#define CALLBACKS(seen)                                                                                \
    (&(struct bmc_callbacks){                                                                          \
        .size = sizeof(struct bmc_callbacks), .arg = seen, .text = see_text, .prefill = see_prefill})

static void test_text(const struct bmc_model *model, const char *prompt, const char *expected)
{
    const size_t n = check_size(64, 16), len = n < 64 ? 0 : strlen(expected);
    char all[64], rest[64], stops[64];
    snprintf(all, sizeof all, "{\"n\": %zu}", n);
    snprintf(rest, sizeof rest, "{\"n\": %zu, \"logprobs\": 2}", n / 2);
    snprintf(stops, sizeof stops, "{\"n\": %zu, \"stop\": \"palace\"}", n);
    struct bmc_context *context = open_context(model, OPTIONS(.context = 200));
    const struct bmc_request request = REQUEST(.settings = all, .text = prompt);
    struct bmc_result first = RESULT, again = RESULT, stopped = RESULT;
    struct seen seen = {.len = 0};
    check(bmc_generate(context, &request, &first, 1, CALLBACKS(&seen), &error) == 0, "%s", error.text);
    check(strncmp(first.text, expected, first.text_len) == 0 &&
              (len ? first.text_len == len : first.text_len > n),
          "%s", first.text);
    check(first.n_ids == n && first.finish == BMC_FINISH_LENGTH && first.sequence == 0 &&
              bmc_length(context, 0) == first.n_prompt + n - 1,
          "%zu tokens", n);
    check(seen.len == first.text_len && memcmp(seen.text, expected, seen.len) == 0 && seen.n_ids == n &&
              seen.prefilled == first.n_prompt,
          "callbacks");
    check(memcmp(bmc_tokens(context, 0) + first.n_prompt, first.ids, (n - 1) * sizeof *first.ids) == 0,
          "tokens of the sequence");
    /* with the KV entries of the first time; then of prompt and answer */
    check(bmc_generate(context, &request, &again, 1, NULL, &error) == 0 &&
              strcmp(again.text, first.text) == 0 &&
              strcmp(again.logits_hash, first.logits_hash) == 0 && strlen(first.logits_hash) == 16,
          "again");
    bmc_result_release(&again);
    check(!again.text && again.size == sizeof again, "released");
    uint32_t ids[200];
    memcpy(ids, bmc_tokens(context, 0), first.n_prompt * sizeof *ids);
    memcpy(ids + first.n_prompt, first.ids, n / 2 * sizeof *ids);
    const struct bmc_request half =
        REQUEST(.settings = rest, .ids = ids, .n_ids = first.n_prompt + n / 2);
    check(bmc_generate(context, &half, &again, 1, NULL, &error) == 0 &&
              memcmp(again.ids, first.ids + n / 2, n / 2 * sizeof *ids) == 0 &&
              strcmp(again.logits_hash, first.logits_hash) == 0,
          "the second half");
    check(again.n_best == 2 && again.logprobs[0].id == again.ids[0] &&
              again.logprobs[1].id == again.ids[0] &&
              again.logprobs[2].logprob <= again.logprobs[1].logprob,
          "log-probabilities");
    bmc_result_release(&again);
    const struct bmc_request stop = REQUEST(.settings = stops, .text = prompt);
    check(bmc_generate(context, &stop, &stopped, 1, NULL, &error) == 0 &&
              (strstr(first.text, "palace")
                   ? stopped.finish == BMC_FINISH_STOP &&
                         stopped.text_len == (size_t)(strstr(first.text, "palace") - first.text)
                   : stopped.finish == BMC_FINISH_LENGTH),
          "a stop string");
    bmc_result_release(&stopped);
    bmc_result_release(&first);
    bmc_context_close(context);
}

static void test_cancel(const struct bmc_model *model, const char *prompt)
{
    struct bmc_context *context = open_context(model, OPTIONS(.context = 200));
    const struct bmc_request request = REQUEST(.settings = "{\"n\": 64}", .text = prompt);
    struct bmc_result result = RESULT;
    struct seen seen = {.cancel_at = 5};
    check(bmc_generate(context, &request, &result, 1, CALLBACKS(&seen), &error) == 0 &&
              result.finish == BMC_FINISH_CANCELLED && result.n_ids >= 5 && result.n_ids <= 6 &&
              bmc_length(context, 0) == result.n_prompt + result.n_ids - 1,
          "cancelled by the callback");
    bmc_result_release(&result);
    const volatile int at_once = 1;
    check(bmc_generate(
              context, &request, &result, 1,
              &(struct bmc_callbacks){.size = sizeof(struct bmc_callbacks), .cancelled = &at_once},
              &error) == 0 &&
              result.finish == BMC_FINISH_CANCELLED && result.n_ids == 0 && !result.status,
          "cancelled at once");
    bmc_result_release(&result);
    bmc_context_close(context);
}

/* What choices have told. */
struct told {
    size_t n_ids[3], calls, cancel_at;
};

static int tell_choice(void *arg, size_t request, size_t choice, const char *text, size_t len,
                       const uint32_t *ids, size_t n_ids)
{
    struct told *told = arg;
    (void)text;
    (void)len;
    (void)ids;
    check(request == 1 && choice < 3, "request %zu, choice %zu", request, choice);
    told->n_ids[choice] += n_ids;
    return ++told->calls == told->cancel_at;
}

static size_t count_choices(const struct bmc_result *result)
{
    size_t n = 0;
    for (; result; result = result->next)
        n++;
    return n;
}

/* Several choices: the first one is that of a request for one; the same in any number of sequences. */
static void test_choices(const struct bmc_model *model, const char *prompt)
{
    static const char wrong[] = "{\"n\": 9, \"n_choices\": 2, \"regex\": \"(\"}";
    const struct bmc_request request[2] = {
        REQUEST(.settings = "{\"n\": 1, \"lora\": [0]}", .text = prompt), /* fails */
        REQUEST(.settings = "{\"n\": 12, \"temp\": 0.9, \"seed\": 5, \"n_choices\": 3}",
                .text = prompt)};
    const struct bmc_request one =
        REQUEST(.settings = "{\"n\": 12, \"temp\": 0.9, \"seed\": 5}", .text = prompt);
    struct bmc_result result[3][2], alone[2] = {RESULT, RESULT};
    struct bmc_context *context[3];
    for (size_t i = 0; i < 3; i++) {
        struct told told = {.calls = 0};
        const struct bmc_callbacks callbacks = {
            .size = sizeof callbacks, .arg = &told, .choice_text = tell_choice};
        context[i] = open_context(model, OPTIONS(.context = 128, .sequences = i + 1));
        result[i][0] = result[i][1] = RESULT;
        check(bmc_generate(context[i], request, result[i], 2, &callbacks, &error) == BMC_INVALID &&
                  strstr(error.text, "request 0") && result[i][1].status == 0,
              "%s", error.text);
        check(count_choices(&result[i][0]) == 1 && count_choices(&result[i][1]) == 3, "three choices");
        const struct bmc_result *first = &result[0][1], *now = &result[i][1];
        for (size_t j = 0; now && first; j++, now = now->next, first = first->next)
            check(now->status == 0 && now->finish == BMC_FINISH_LENGTH && now->n_ids == 12 &&
                      told.n_ids[j] == 12 && strcmp(now->text, first->text) == 0 &&
                      strcmp(now->logits_hash, first->logits_hash) == 0,
                  "choice %zu with %zu sequences: %s / %s", j, i + 1, now->text, first->text);
    }
    check(bmc_generate(context[0], (struct bmc_request[]){request[0], one}, alone, 2, NULL, &error) <
                  0 &&
              strcmp(alone[1].text, result[0][1].text) == 0 && !alone[1].next,
          "the first one");
    check(strcmp(result[0][1].text, result[0][1].next->text) != 0 &&
              strcmp(result[0][1].next->text, result[0][1].next->next->text) != 0,
          "they differ");
    for (int i = 0; i < 2; i++)
        bmc_result_release(&alone[i]);
    struct told told = {.cancel_at = 4};
    const struct bmc_callbacks cancels = {
        .size = sizeof cancels, .arg = &told, .choice_text = tell_choice};
    bmc_generate(context[1], request, alone, 2, &cancels, &error);
    check(count_choices(&alone[1]) == 3, "cancelled");
    for (const struct bmc_result *now = &alone[1]; now; now = now->next)
        check(now->finish == BMC_FINISH_CANCELLED && now->status == 0 && now->n_ids < 12,
              "cancelled: %s", now->error.text);
    bmc_result_release(&alone[1]);
    bmc_result_release(&alone[0]);
    const struct bmc_request refuses = REQUEST(.settings = wrong, .text = prompt);
    check(bmc_generate(context[0], &refuses, alone, 1, NULL, &error) == BMC_INVALID &&
              count_choices(alone) == 1,
          "%s", error.text);
    bmc_result_release(alone);
    /* a program that does not know of choices */
    struct bmc_result older = {.size = offsetof(struct bmc_result, next)};
    older.next = alone;
    check(bmc_generate(context[2], &request[1], &older, 1, NULL, &error) == 0 && older.next == alone &&
              older.n_ids == 12,
          "%s", error.text);
    bmc_result_release(&older);
    check(older.next == alone, "not released");
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < 2; j++)
            bmc_result_release(&result[i][j]);
        check(!result[i][1].next, "released");
        bmc_context_close(context[i]);
    }
}

/* More requests than sequences, with settings of all kinds: the same results whatever the number of
 * sequences, and whatever the context has computed before. */
static void test_batch(const struct bmc_model *model, const char *prompt)
{
    const struct bmc_request request[] = {
        REQUEST(.settings = "{\"n\": 20}", .text = prompt),
        REQUEST(.settings = "{\"n\": 30, \"temp\": 0.9, \"seed\": 5}", .text = prompt),
        REQUEST(.settings = "{\"n\": 25, \"regex\": \"[a-m ]{5,}\"}", .text = "The king"),
        REQUEST(.settings = "{\"n\": 40, \"temp\": 1.2, \"seed\": 9, \"repeat_penalty\": 1.3}",
                .text = "A"),
        REQUEST(.settings = "{\"n\": 3, \"prompt\": \"The\"}"),
        REQUEST(.settings = "{\"n\": 50, \"mirostat\": 2, \"temp\": 1}", .text = "The queen"),
    };
    enum { MOST = sizeof request / sizeof *request };
    const size_t N = check_size(MOST, 3);
    struct bmc_result alone[MOST], together[MOST];
    struct bmc_context *one = open_context(model, OPTIONS(.context = 128));
    struct bmc_context *three =
        open_context(model, OPTIONS(.context = 128, .sequences = 3, .chunk = 8));
    for (size_t i = 0; i < N; i++)
        alone[i] = together[i] = RESULT;
    check(bmc_generate(one, request, alone, N, NULL, &error) == 0, "%s", error.text);
    for (size_t round = 0; round < check_size(2, 1); round++) {
        check(bmc_generate(three, request, together, N, NULL, &error) == 0, "%s", error.text);
        for (size_t i = 0; i < N; i++) {
            check(together[i].n_ids == alone[i].n_ids &&
                      memcmp(together[i].ids, alone[i].ids, alone[i].n_ids * sizeof *alone->ids) == 0 &&
                      strcmp(together[i].logits_hash, alone[i].logits_hash) == 0,
                  "round %zu, request %zu: %s / %s", round, i, together[i].text, alone[i].text);
            bmc_result_release(&together[i]);
        }
    }
    check(alone[2].n_ids && strspn(alone[2].text, "abcdefghijklm ") == alone[2].text_len, "a regex: %s",
          alone[2].text);
    for (size_t i = 0; i < N; i++)
        bmc_result_release(&alone[i]);
    bmc_context_close(one);
    bmc_context_close(three);
}

/* bmc_eval(), bmc_sample() and bmc_text_add() by hand against bmc_generate(). */
static void test_sampler(const struct bmc_model *model, const char *prompt)
{
    static const char *const settings[] = {
        "{\"n\": 24}", "{\"n\": 24, \"temp\": 0.9, \"seed\": 3, \"repeat_penalty\": 1.2}",
        "{\"n\": 24, \"temp\": 1, \"regex\": \"[a-z ,]*\"}",
        "{\"n\": 24, \"temp\": 1, \"mirostat\": 2, \"seed\": 4}",
        "{\"n\": 24, \"temp\": 1, \"dry_multiplier\": 0.8, \"xtc_probability\": 0.5}"};
    struct bmc_context *context = open_context(model, OPTIONS(.context = 128, .sequences = 1));
    float *logits = malloc(vocab * sizeof *logits);
    for (size_t i = 0; i < sizeof settings / sizeof *settings && logits; i += check_size(1, 2)) {
        struct bmc_result result = RESULT;
        struct bmc_sampler *sampler;
        struct bmc_text *text;
        const struct bmc_request request = REQUEST(.settings = settings[i], .text = prompt);
        uint32_t *ids;
        size_t n, len, all = 0;
        const char *more;
        check(bmc_generate(context, &request, &result, 1, NULL, &error) == 0, "%s", error.text);
        check(bmc_tokenize(model, prompt, strlen(prompt), &ids, &n, &error) == 0 &&
                  bmc_sampler_open(&sampler, context, settings[i], 0, &error) == 0 &&
                  bmc_text_open(&text, model, ids, n, &error) == 0,
              "%s", error.text);
        bmc_truncate(context, 0, 0);
        struct bmc_input in = INPUT(.ids = ids, .n_ids = n, .n_outputs = 1, .logits = logits);
        for (size_t t = 0; t < result.n_ids; t++) {
            uint32_t id = 0;
            check(bmc_eval(context, &in, 1, &error) == 0 &&
                      bmc_sample(sampler, logits, bmc_tokens(context, 0), bmc_length(context, 0), &id,
                                 &error) == 0,
                  "%s", error.text);
            check(id == result.ids[t], "%s: token %zu is %u, not %u", settings[i], t, id,
                  result.ids[t]);
            check(bmc_text_add(text, id, &more, &len, &error) == 0 && all + len <= result.text_len &&
                      memcmp(more, result.text + all, len) == 0,
                  "text");
            all += len;
            in.ids = &result.ids[t];
            in.n_ids = 1;
        }
        check(bmc_text_finish(text, &more, &len, &error) == 0 && all + len == result.text_len,
              "all text");
        bmc_text_close(text);
        bmc_sampler_close(sampler);
        bmc_result_release(&result);
        free(ids);
    }
    struct bmc_sampler *sampler;
    refused(bmc_sampler_open(&sampler, context, "{\"prompt\": \"a\"}", 0, &error), BMC_INVALID,
            "have a prompt");
    refused(bmc_sampler_open(&sampler, context, "{\"tempo\": 1}", 0, &error), BMC_INVALID, "tempo");
    refused(bmc_sampler_open(&sampler, context, "{\"regex\": \"(\"}", 0, &error), BMC_INVALID, "");
    check(!sampler && bmc_sampler_open(&sampler, context, NULL, 0, &error) == 0, "no settings");
    uint32_t id = (uint32_t)vocab;
    refused(bmc_sample(sampler, logits, &id, 1, &id, &error), BMC_INVALID, "outside the vocabulary");
    logits[5] = NAN;
    refused(bmc_sample(sampler, logits, NULL, 0, &id, &error), BMC_FAILED, "finite");
    bmc_sampler_close(sampler);
    free(logits);
    bmc_context_close(context);
}

/* An incomplete character at the end of a text. */
static void test_characters(const struct bmc_model *model)
{
    struct bmc_text *text;
    uint32_t *ids;
    size_t n = 0, len;
    const char *more;
    char all[64] = "";
    size_t used = 0;
    check(bmc_tokenize_flags(model, "\xf0\x9f\x98\x80", 4, BMC_NO_SPECIAL, &ids, &n, &error) == 0 &&
              n >= 4,
          "a character of %zu tokens", n);
    check(bmc_text_open(&text, model, NULL, 0, &error) == 0, "text");
    for (size_t i = 0; i < n; i++) {
        check(bmc_text_add(text, ids[i], &more, &len, &error) == 0, "add");
        memcpy(all + used, more, len);
        used += len;
        check(i + 1 == n || !strpbrk(all, "\xf0\x9f\x98"), "held back");
    }
    check(strstr(all, "\xf0\x9f\x98\x80") != NULL, "the character: %s", all);
    check(bmc_text_add(text, ids[n - 4], &more, &len, &error) == 0 && len == 0, "half of another");
    check(bmc_text_finish(text, &more, &len, &error) == 0 && len >= 3 &&
              memcmp(more, "\xef\xbf\xbd", 3) == 0,
          "U+FFFD");
    bmc_text_close(text);
    free(ids);
}

static void test_refusals(const struct bmc_model *model)
{
    struct bmc_context *context = open_context(model, OPTIONS(.context = 8, .sequences = 2));
    const uint32_t ids[9] = {4, 5, 6, 7, 8, 9, 10, 11, 12}, beyond = (uint32_t)vocab;
    const struct {
        struct bmc_request request;
        int code;
        const char *sentence;
    } wrong[] = {
        {REQUEST(.settings = "{\"n\": 3"), BMC_INVALID, "settings"},
        {REQUEST(.settings = "[]"), BMC_INVALID, "an object is expected"},
        {REQUEST(.settings = "{\"n\": 3, \"n\": 4}"), BMC_INVALID, "n"},
        {REQUEST(.settings = "{\"tempo --kv \": 3}", .text = "a"), BMC_INVALID, "\"tempo --kv \""},
        {REQUEST(.settings = "{\"tempo\": 3}", .text = "a"), BMC_INVALID, "(`lenient` ignores unknown"},
        {REQUEST(.settings = "{\"temp\": \"hot\"}", .text = "a"), BMC_INVALID, "a number from"},
        {REQUEST(.text = "a", .ids = ids, .n_ids = 1), BMC_INVALID, "as a text and as token ids"},
        {REQUEST(.settings = "{\"n\": 1}"), BMC_INVALID, "exactly one of"},
        {REQUEST(.settings = "{\"prompt\": \"b\"}", .text = "a"), BMC_INVALID, "exactly one of"},
        {REQUEST(.settings = "{\"ids\": [5]}", .ids = ids, .n_ids = 1), BMC_INVALID, "exactly one of"},
        {REQUEST(.ids = ids, .n_ids = 0), BMC_INVALID, "empty"},
        {REQUEST(.ids = &beyond, .n_ids = 1), BMC_INVALID, "outside the vocabulary"},
        {REQUEST(.ids = ids, .n_ids = 9), BMC_FULL, "the context holds 8"},
        {REQUEST(.text = "\xff"), BMC_INVALID, "UTF-8"},
        {{.text = "a"}, BMC_INVALID, "struct bmc_request is 0"},
    };
    struct bmc_result result = RESULT, two[2] = {RESULT, RESULT};
    const struct bmc_input in = INPUT(.sequence = 1, .ids = ids, .n_ids = 2);
    check(bmc_eval(context, &in, 1, &error) == 0, "two tokens");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused(bmc_generate(context, &wrong[i].request, &result, 1, NULL, &error), wrong[i].code,
                wrong[i].sentence);
        check(result.n_ids == 0 && bmc_length(context, 0) == 0 && bmc_length(context, 1) == 2,
              "no tokens; the other sequence as before");
        bmc_result_release(&result);
    }
    const struct bmc_request mixed[2] = {REQUEST(.ids = ids, .n_ids = 9),
                                         REQUEST(.settings = "{\"n\": 2}", .ids = ids, .n_ids = 3)};
    refused(bmc_generate(context, mixed, two, 2, NULL, &error), BMC_FULL, "request 0: ");
    check(two[0].status == BMC_FULL && two[0].finish == BMC_FINISH_ERROR && two[1].status == 0 &&
              two[1].n_ids == 2,
          "one of two");
    bmc_result_release(&two[0]);
    bmc_result_release(&two[1]);
    result.size = 0;
    refused(bmc_generate(context, &mixed[1], &result, 1, NULL, &error), BMC_INVALID,
            "struct bmc_result is 0");
    result.size = sizeof result;
    check(bmc_generate(context, NULL, NULL, 0, NULL, &error) == 0, "nothing to do");
    /* without "n", the context ends the text */
    const struct bmc_request full =
        REQUEST(.settings = "{\"ignore_eos\": true}", .ids = ids, .n_ids = 3);
    check(bmc_generate(context, &full, &result, 1, NULL, NULL) == 0 && result.n_ids == 5 &&
              result.finish == BMC_FINISH_LENGTH,
          "a full context: %zu tokens", result.n_ids);
    bmc_result_release(&result);
    bmc_context_close(context);
}

static double logprob(const float *logits, uint32_t id)
{
    double sum = 0;
    for (size_t i = 0; i < vocab; i++)
        sum += exp(logits[i] - logits[id]);
    return -log(sum);
}

static void test_score(const struct bmc_model *model, const char *prompt)
{
    const size_t hidden = bmc_model_hidden(model);
    struct bmc_context *context = open_context(model, OPTIONS(.context = 64, .hidden_states = 1));
    uint32_t *ids;
    size_t n;
    check(bmc_tokenize(model, prompt, strlen(prompt), &ids, &n, &error) == 0, "tokenize");
    float *logits = malloc(n * vocab * sizeof *logits), *states = malloc(n * hidden * sizeof *states),
          *embedding = malloc(hidden * sizeof *embedding);
    double *logprobs = malloc(n * sizeof *logprobs), square = 0;
    if (!logits || !states || !embedding || !logprobs)
        exit(1);
    const struct bmc_input in =
        INPUT(.ids = ids, .n_ids = n, .n_outputs = n, .logits = logits, .hidden = states);
    check(bmc_eval(context, &in, 1, &error) == 0, "%s", error.text);
    check(bmc_score(context, ids, n, logprobs, &error) == 0 && isnan(logprobs[0]), "%s", error.text);
    for (size_t i = 1; i < n; i++)
        check(near(logprobs[i], logprob(logits + (i - 1) * vocab, ids[i]), 1e-4), "token %zu", i);
    check(bmc_length(context, 0) == 0, "the sequence is empty");
    /* The model declares no pooling, so that it is the mean. */
    check(bmc_embed(context, ids, n, BMC_POOL_MODEL, 0, embedding, &error) == 0, "%s", error.text);
    for (size_t j = 0; j < hidden; j++) {
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            sum += states[i * hidden + j];
        check(near(embedding[j], sum / (double)n, 1e-5), "mean, element %zu", j);
    }
    check(bmc_embed(context, ids, n, BMC_POOL_LAST, 0, embedding, &error) == 0 &&
              memcmp(embedding, states + (n - 1) * hidden, hidden * sizeof *states) == 0,
          "the last state");
    check(bmc_embed(context, ids, n, BMC_POOL_FIRST, 1, embedding, &error) == 0, "the first state");
    for (size_t j = 0; j < hidden; j++)
        square += (double)embedding[j] * embedding[j];
    check(near(square, 1, 1e-5), "of unit length");
    refused(bmc_score(context, ids, 0, logprobs, &error), BMC_INVALID, "empty");
    refused(bmc_embed(context, ids, n, 7, 0, embedding, &error), BMC_INVALID, "no pooling 7");
    ids[0] = (uint32_t)vocab;
    refused(bmc_score(context, ids, n, logprobs, &error), BMC_INVALID, "outside the vocabulary");
    refused(bmc_embed(context, ids, n, 0, 0, embedding, &error), BMC_INVALID, "outside the vocabulary");
    free(ids);
    free(logits);
    free(states);
    free(embedding);
    free(logprobs);
    bmc_context_close(context);
}

static void test_snapshot(const struct bmc_model *model, const char *prompt, const char *path)
{
    struct bmc_context *context = open_context(model, OPTIONS(.context = 128, .sequences = 2));
    struct bmc_context *other = open_context(model, OPTIONS(.context = 200, .kv = "upfront"));
    struct bmc_context *narrow = open_context(model, OPTIONS(.context = 4));
    struct bmc_context *half = open_context(model, OPTIONS(.cache_type = "bf16"));
    const struct bmc_request request = REQUEST(.settings = "{\"n\": 20}", .text = prompt);
    struct bmc_result result = RESULT, more = RESULT, again = RESULT;
    refused(bmc_save(context, 0, path, &error), BMC_INVALID, "is empty");
    check(bmc_generate(context, &request, &result, 1, NULL, &error) == 0, "%s", error.text);
    const size_t n = bmc_length(context, 0);
    check(bmc_save(context, 0, path, &error) == 0 && bmc_length(context, 0) == n, "%s", error.text);
    uint32_t ids[128];
    memcpy(ids, bmc_tokens(context, 0), n * sizeof *ids);
    ids[n] = result.ids[19];
    const struct bmc_request on = REQUEST(.settings = "{\"n\": 20}", .ids = ids, .n_ids = n + 1);
    check(bmc_generate(context, &on, &more, 1, NULL, &error) == 0, "%s", error.text);
    check(bmc_load(other, 0, path, &error) == 0 && bmc_length(other, 0) == n &&
              memcmp(bmc_tokens(other, 0), ids, n * sizeof *ids) == 0,
          "%s", error.text);
    check(bmc_generate(other, &on, &again, 1, NULL, &error) == 0 && again.n_ids == more.n_ids &&
              strcmp(again.text, more.text) == 0 && strcmp(again.logits_hash, more.logits_hash) == 0,
          "continued from a snapshot: %s", again.text);
    check(bmc_load(context, 1, path, &error) == 0 && bmc_length(context, 1) == n, "%s", error.text);
    refused(bmc_load(context, 1, "no such file", &error), BMC_BAD_FILE, "no such file");
    check(bmc_length(context, 1) == 0 && bmc_tokens(context, 1) == NULL, "empty after an error");
    refused(bmc_load(narrow, 0, path, &error), BMC_FULL, "the context holds 4");
    refused(bmc_load(half, 0, path, &error), BMC_BAD_FILE, "of type f32, the context of bf16");
    refused(bmc_save(context, 0, "no/such/folder", &error), BMC_BAD_FILE, "no/such/folder");
    refused(bmc_load(context, 2, path, &error), BMC_INVALID, "no sequence 2");
    bmc_result_release(&result);
    bmc_result_release(&more);
    bmc_result_release(&again);
    bmc_context_close(context);
    bmc_context_close(other);
    bmc_context_close(narrow);
    bmc_context_close(half);
}

int main(int argc, char **argv)
{
    struct bmc_model *model;
    if (argc != 5)
        return 2;
    if (!check(bmc_model_open(&model, argv[1], &error) == 0, "%s", argv[1]))
        return check_result();
    vocab = bmc_model_vocab(model);
    test_text(model, argv[2], argv[3]);
    test_cancel(model, argv[2]);
    test_choices(model, argv[2]);
    test_batch(model, argv[2]);
    test_sampler(model, argv[2]);
    test_characters(model);
    test_refusals(model);
    test_score(model, argv[2]);
    test_snapshot(model, argv[2], argv[4]);
    bmc_model_close(model);
    return check_result();
}
