/* Options of contexts of the public API: speculative decoding, the prefix cache on disk, progress,
 * cancellation and log.
 *
 *    test_api_draft MODEL.bmc "PROMPT" "EXPECTED TEXT" FOLDER DRAFT.bmc..
 *
 * EXPECTED TEXT is that of 64 tokens, greedy; FOLDER is one to write to. Drafts are draft models and draft
 * heads; one with "mtp" in its name has a target of its own. */
#include "tests/unit/api/api_check.h"

/* Greedy requests, more than sequences, and their results without drafts. */
enum { REQUESTS = 5 };
static struct bmc_request requests[REQUESTS];
static struct bmc_result want[REQUESTS];
static size_t n_requests;

/* The first result is the expected text. */
static void generate_plain(const struct bmc_model *model, const char *prompt, const char *expected)
{
    const struct bmc_request all[REQUESTS] = {
        REQUEST(.settings = check_size(1, 0) ? "{\"n\": 64}" : "{\"n\": 16}", .text = prompt),
        REQUEST(.settings = "{\"n\": 20, \"regex\": \"[a-m ]{5,}\"}", .text = "The king"),
        REQUEST(.settings = "{\"n\": 30, \"stop\": [\"the\"]}", .text = "A fox"),
        REQUEST(.settings = "{\"n\": 40}", .text = "The queen"),
        REQUEST(.settings = "{\"n\": 50}", .text = "Once upon a time"),
    };
    memcpy(requests, all, sizeof all);
    n_requests = check_size(REQUESTS, 2);
    for (size_t i = 0; i < n_requests; i++)
        want[i] = RESULT;
    struct bmc_context *plain = open_context(model, OPTIONS(.context = 200, .sequences = 3));
    check(bmc_generate(plain, requests, want, n_requests, NULL, &error) == 0, "%s", error.text);
    check(strncmp(want[0].text, expected, check_size(strlen(expected) + 1, 16)) == 0, "%s",
          want[0].text);
    bmc_context_close(plain);
}

static void test_drafter(const struct bmc_model *model, const struct bmc_options *options)
{
    const char *name = options->draft ? options->draft : options->drafter;
    struct bmc_context *context = open_context(model, options);
    struct bmc_result got[REQUESTS];
    struct bmc_stats stats = STATS, before = STATS;
    for (size_t i = 0; i < n_requests; i++)
        got[i] = RESULT;
    for (size_t round = 0; round < check_size(2, 1); round++) {
        check(bmc_generate(context, requests, got, n_requests, NULL, &error) == 0, "%s: %s", name,
              error.text);
        for (size_t i = 0; i < n_requests; i++) {
            check(got[i].n_ids == want[i].n_ids &&
                      memcmp(got[i].ids, want[i].ids, want[i].n_ids * sizeof *want->ids) == 0 &&
                      strcmp(got[i].logits_hash, want[i].logits_hash) == 0,
                  "%s, round %zu, request %zu: %s / %s", name, round, i, got[i].text, want[i].text);
            bmc_result_release(&got[i]);
        }
        before = stats;
        check(bmc_context_stats(context, &stats, &error) == 0, "%s", error.text);
        check(stats.draft_tokens > before.draft_tokens &&
                  stats.draft_accepted > before.draft_accepted &&
                  stats.draft_accepted <= stats.draft_tokens &&
                  stats.draft_step_tokens <= stats.draft_steps + stats.draft_accepted,
              "%s: %zu of %zu draft tokens in %zu steps", name, stats.draft_accepted,
              stats.draft_tokens, stats.draft_steps);
    }
    bmc_context_close(context);
}

static void test_draft_refusals(const struct bmc_model *model, const char *head)
{
    const struct {
        const struct bmc_options *options;
        int code;
        const char *sentence;
    } wrong[] = {
        {OPTIONS(.drafter = "oracle"), BMC_INVALID, "there is no drafter \"oracle\""},
        {OPTIONS(.draft = "no such file"), BMC_INVALID, "draft model: no such file"},
        {OPTIONS(.draft = "self"), BMC_INVALID, "`draft` FILE, `drafter` suffix or `drafter` lookup"},
        {OPTIONS(.draft = head, .drafter = "recycle"), BMC_INVALID, "cannot be combined"},
        {OPTIONS(.draft = head, .hidden_states = 1), BMC_INVALID, "hidden_states"},
        {OPTIONS(.drafter = "lookup", .draft_tree = 8), BMC_INVALID, "there is no tree"},
        {OPTIONS(.drafter = "suffix", .draft_tree = 8, .draft_max = 3), BMC_INVALID, "set one"},
        {OPTIONS(.drafter = "lookup", .draft_max = 16, .context = 17), BMC_INVALID, "at most 15 fit"},
        {OPTIONS(.drafter = "lookup", .draft_max = SIZE_MAX), BMC_INVALID, "fit"},
    };
    struct bmc_context *context;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused(bmc_context_open(&context, model, wrong[i].options, &error), wrong[i].code,
                wrong[i].sentence);
        check(!context, "no context");
    }
}

/* Embeddings between two requests do not disturb a draft head, which reads other hidden states. */
static void test_embed_beside_head(const struct bmc_model *model, const char *head, const char *prompt)
{
    struct bmc_context *context =
        open_context(model, OPTIONS(.context = 200, .draft = head, .draft_max = 4, .draft_always = 1));
    const struct bmc_request request = REQUEST(.settings = "{\"n\": 40}", .text = prompt);
    const uint32_t ids[5] = {4, 5, 6, 7, 8};
    float *embedding = malloc(bmc_model_hidden(model) * sizeof *embedding);
    struct bmc_stats first = STATS, second = STATS;
    if (!embedding)
        exit(1);
    for (int round = 0; round < 2; round++) {
        struct bmc_result result = RESULT;
        bmc_truncate(context, 0, 0);
        check(bmc_generate(context, &request, &result, 1, NULL, &error) == 0, "%s", error.text);
        bmc_result_release(&result);
        bmc_context_stats(context, round ? &second : &first, NULL);
        check(bmc_embed(context, ids, 5, BMC_POOL_MEAN, 1, embedding, &error) == 0, "%s", error.text);
    }
    check(first.draft_accepted > 0 && second.draft_accepted == 2 * first.draft_accepted,
          "accepted: %zu, then %zu", first.draft_accepted, second.draft_accepted);
    free(embedding);
    bmc_context_close(context);
}

/* What the option `log` has got. */
struct heard {
    size_t infos, warnings;
    char last[1024];
};

static void hear(void *arg, enum bmc_log_level level, const char *sentence)
{
    struct heard *heard = arg;
    heard->infos += level == BMC_LOG_INFO;
    heard->warnings += level == BMC_LOG_WARNING;
    snprintf(heard->last, sizeof heard->last, "%s", sentence);
}

static void test_prefix_cache(const struct bmc_model *model, const char *folder)
{
    static char prompt[1200];
    struct bmc_result result[2] = {RESULT, RESULT};
    struct heard heard = {0};
    for (size_t i = 0, at = 0; i < 60; i++)
        at += (size_t)snprintf(prompt + at, sizeof prompt - at, "%s",
                               i % 2 ? "The king had a " : "daughter. ");
    const struct bmc_request request = REQUEST(.settings = "{\"n\": 8}", .text = prompt);
    for (int round = 0; round < 2; round++) {
        struct bmc_context *context = open_context(
            model, OPTIONS(.prefix_cache = folder, .log = hear, .arg = &heard, .drafter = "lookup"));
        struct bmc_stats stats = STATS;
        check(heard.infos == (size_t)round + 1 && !heard.warnings &&
                  strstr(heard.last, "drafter lookup"),
              "%s", heard.last);
        check(bmc_generate(context, &request, &result[round], 1, NULL, &error) == 0, "%s", error.text);
        check(bmc_context_stats(context, &stats, &error) == 0, "%s", error.text);
        check((stats.disk_tokens > 100) == round &&
                  stats.disk_tokens + stats.prompt_tokens == result[round].n_prompt,
              "round %d: %zu tokens from disk, %zu evaluated", round, stats.disk_tokens,
              stats.prompt_tokens);
        check(stats.kv_bytes > 0 && stats.kv_allocations > 0 && stats.prompt_ms > 0, "statistics");
        bmc_context_close(context);
    }
    check(strcmp(result[0].text, result[1].text) == 0 &&
              strcmp(result[0].logits_hash, result[1].logits_hash) == 0,
          "%s / %s", result[0].text, result[1].text);
    bmc_result_release(&result[0]);
    bmc_result_release(&result[1]);
    struct bmc_context *without =
        open_context(model, OPTIONS(.prefix_cache = "/dev/null", .log = hear, .arg = &heard));
    check(heard.warnings == 1, "a prefix cache that is no folder is a warning: %s", heard.last);
    check(bmc_generate(without, &request, &result[0], 1, NULL, &error) == 0, "%s", error.text);
    bmc_result_release(&result[0]);
    bmc_context_close(without);
}

/* Calls of the option `progress`; from call `cancel_at` on it cancels. */
struct watch {
    size_t calls, done, cancel_at;
};

static int progress(void *arg, size_t done, size_t total)
{
    struct watch *watch = arg;
    check(done <= total && done > watch->done, "%zu of %zu tokens", done, total);
    watch->done = done;
    return ++watch->calls == watch->cancel_at;
}

enum { N = 100, CHUNK = 16 };

static void test_progress(const struct bmc_model *model)
{
    struct watch watch = {0};
    struct bmc_context *context =
        open_context(model, OPTIONS(.context = N + CHUNK, .chunk = CHUNK, .sequences = 2,
                                    .progress = progress, .arg = &watch));
    const size_t hidden = bmc_model_hidden(model);
    float *logits = malloc(2 * vocab * sizeof *logits), *embedding = malloc(hidden * sizeof *embedding);
    double logprobs[N];
    uint32_t ids[N];
    for (size_t i = 0; i < N; i++)
        ids[i] = (uint32_t)(4 + i * 7 % 300);
    if (!logits || !embedding)
        exit(1);
    const struct bmc_input few = INPUT(.sequence = 1, .ids = ids, .n_ids = 3),
                           all = INPUT(.ids = ids, .n_ids = N, .n_outputs = 1, .logits = logits);
    check(bmc_eval(context, &few, 1, &error) == 0 && watch.calls == 1 && watch.done == 3, "one pass");
    const struct bmc_input both[2] = {all, INPUT(.sequence = 1, .ids = ids + 3, .n_ids = 20,
                                                 .n_outputs = 1, .logits = logits + vocab)};
    for (size_t at = 1; at < 7; at += check_size(1, 4)) {
        watch = (struct watch){.cancel_at = at};
        refused(bmc_eval(context, both, 2, &error), BMC_CANCELLED, "cancelled");
        check(watch.calls == at && bmc_length(context, 0) == 0 && bmc_length(context, 1) == 3,
              "cancelled in pass %zu: sequences as before", at);
    }
    watch = (struct watch){0};
    check(bmc_eval(context, both, 2, &error) == 0 && watch.done == N + 20, "%s", error.text);
    struct bmc_context *other = open_context(model, OPTIONS(.context = N + CHUNK));
    float *alone = malloc(vocab * sizeof *alone);
    const struct bmc_input same = INPUT(.ids = ids, .n_ids = N, .n_outputs = 1, .logits = alone);
    check(alone && bmc_eval(other, &same, 1, &error) == 0 &&
              memcmp(alone, logits, vocab * sizeof *alone) == 0,
          "the logits of a call that was not cancelled before");
    watch = (struct watch){.cancel_at = 1};
    refused(bmc_score(context, ids, N, logprobs, &error), BMC_CANCELLED, "cancelled");
    watch = (struct watch){.cancel_at = 2};
    refused(bmc_embed(context, ids, N, BMC_POOL_MEAN, 0, embedding, &error), BMC_CANCELLED,
            "cancelled");
    check(watch.calls == 2 && bmc_length(context, 0) == 0 && bmc_length(context, 1) == 23,
          "two passes; the other sequence as before");
    watch = (struct watch){0};
    check(bmc_score(context, ids, N, logprobs, &error) == 0 && watch.done == N, "%s", error.text);
    watch = (struct watch){0};
    check(bmc_embed(context, ids, N, BMC_POOL_MEAN, 0, embedding, &error) == 0 && watch.done == N, "%s",
          error.text);
    free(logits);
    free(alone);
    free(embedding);
    bmc_context_close(context);
    bmc_context_close(other);
}

int main(int argc, char **argv)
{
    struct bmc_model *model, *mtp;
    if (argc < 6)
        return 2;
    const char *prompt = argv[2], *expected = argv[3], *head = NULL;
    if (!check(bmc_model_open(&model, argv[1], &error) == 0, "%s", argv[1]))
        return check_result();
    vocab = bmc_model_vocab(model);
    generate_plain(model, prompt, expected);
#define DRAFTED(...) OPTIONS(.context = 200, .sequences = 3, .draft_always = 1, __VA_ARGS__)
    for (int i = 5; i < argc; i++) {
        if (strstr(argv[i], "mtp")) {
            check(bmc_model_open(&mtp, argv[i], &error) == 0, "%s", argv[i]);
            test_drafter(mtp, DRAFTED(.draft = "self"));
            bmc_model_close(mtp);
            continue;
        }
        if ((size_t)i % check_size(1, 2)) /* every second one; argv[5] is in the runs below */
            continue;
        test_drafter(model, DRAFTED(.draft = argv[i]));
        head = strstr(argv[i], "eagle") ? argv[i] : head;
    }
    test_drafter(model, DRAFTED(.draft = argv[5], .draft_tree = 12));
    test_drafter(model, DRAFTED(.drafter = "lookup"));
    if (check_size(1, 0)) {
        test_drafter(model, DRAFTED(.draft = argv[5], .draft_max = 3));
        test_drafter(model, DRAFTED(.drafter = "suffix"));
        test_drafter(model, DRAFTED(.drafter = "recycle", .draft_tree = 9));
        test_drafter(model, DRAFTED(.drafter = "suffix", .draft = argv[5]));
    }
    test_draft_refusals(model, head);
    test_embed_beside_head(model, head, prompt);
    test_prefix_cache(model, argv[4]);
    test_progress(model);
    for (size_t i = 0; i < n_requests; i++)
        bmc_result_release(&want[i]);
    bmc_model_close(model);
    return check_result();
}
