/* Programs built against headers whose structures had fewer members, with today's libbmc.so: declarations are
 * their own, and stay as they are when bmc.h grows. Structures end where memory ends.
 *
 *    test_abi MODEL.bmc */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/check.h"

struct first_options {
    size_t size, context, sequences;
    int threads, threads_batch;
    const char *kv, *cache_type, *attn, *kernels, *precision;
    size_t chunk;
};

struct second_options {
    struct first_options first;
    int hidden_states;
    const char *chat_template, *models_dir;
};

struct first_input {
    size_t size, sequence;
    const uint32_t *ids;
    size_t n_ids, n_outputs;
    const size_t *output_at;
    float *logits;
};

/* A structure of a version that is yet to come. */
struct later_input {
    struct first_input first;
    float *hidden;
    size_t unknown;
};

struct first_error {
    char text[512];
};

/* All members that options of contexts have had, in the order in which they were added. */
struct all_options {
    struct second_options second;
    const char *draft, *drafter;
    size_t draft_max, draft_tree;
    int draft_always;
    const char *prefix_cache;
    size_t prefix_cache_bytes;
    int (*progress)(void *arg, size_t done, size_t total);
    void (*log)(void *arg, int level, const char *sentence);
    void *arg;
    const char *profile, *alloc;
    int attend_valid, lenient;
    size_t beams, n_best;
    const double *length_penalty;
    const char *early_stopping, *cache_kld;
};

struct all_model_options {
    size_t size;
    const char *const *lora;
    size_t n_lora;
    const float *lora_scale;
    const char *models_dir, *experts;
    int mlock, hugepages, numa, threads;
};

struct first_request {
    size_t size;
    const char *settings, *text;
    const uint32_t *ids;
    size_t n_ids;
};

struct first_result {
    size_t size;
    int status, finish;
    size_t n_prompt;
    uint32_t *ids;
    size_t n_ids;
    char *text;
    size_t text_len;
    void *logprobs;
    size_t n_best, sequence;
    char logits_hash[17];
    struct first_error error;
};

struct all_results {
    struct first_result first;
    struct all_results *next;
    double score;
};

struct all_callbacks {
    size_t size;
    void *arg;
    int (*text)(void *arg, size_t request, const char *text, size_t len, const uint32_t *ids,
                size_t n_ids);
    void (*prefill)(void *arg, size_t done, size_t total);
    const volatile int *cancelled;
    int (*choice_text)(void *arg, size_t request, size_t choice, const char *text, size_t len,
                       const uint32_t *ids, size_t n_ids);
};

struct all_stats {
    size_t size, prompt_tokens, reused_tokens, disk_tokens, generated_tokens;
    double prompt_ms, generate_ms;
    size_t draft_steps, draft_step_tokens, draft_tokens, draft_accepted, draft_pauses;
    size_t kv_bytes, kv_allocations;
};

int bmc_model_open(void **model, const char *path, struct first_error *error);
void bmc_model_close(void *model);
size_t bmc_model_vocab(const void *model);
int bmc_context_open(void **context, const void *model, const struct first_options *options,
                     struct first_error *error);
void bmc_context_close(void *context);
int bmc_eval(void *context, const void *inputs, size_t n, struct first_error *error);
size_t bmc_length(const void *context, size_t sequence);
size_t bmc_context_sequences(const void *context);
int bmc_model_open_with(void **model, const char *path, const void *options, struct first_error *error);
int bmc_generate(void *context, const void *requests, void *results, size_t n, const void *callbacks,
                 struct first_error *error);
void bmc_result_release(void *result);
int bmc_context_stats(const void *context, void *stats, struct first_error *error);

/* Memory for `size` bytes that end at a page without access. */
static void *at_end(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, page, PROT_NONE) < 0)
        exit(1);
    return map + page - size;
}

/* The first `size` bytes of a structure, whose first member says so, where memory ends. */
static void *cut(const void *all, size_t size)
{
    void *at = at_end(size);
    memcpy(at, all, size);
    memcpy(at, &size, sizeof size);
    return at;
}

/* Members that a structure ends before are not read, nor what is behind them; the others are: each has a value that
 * is refused. */
static void test_options(const void *model)
{
#define END(member) (offsetof(struct all_options, member) + sizeof(((struct all_options *)0)->member))
    static const double infinite = HUGE_VAL;
    const struct all_options plain = {.second.first.context = 100};
    struct all_options drafter = plain, profile = plain, alloc = plain, beams = plain, n_best = plain,
                       penalty = plain, stopping = plain, costs = plain;
    drafter.drafter = profile.profile = alloc.alloc = stopping.early_stopping = "neither/is";
    costs.cache_kld = "0.01";
    beams.beams = 5000;
    n_best.beams = penalty.beams = stopping.beams = 2;
    n_best.n_best = 3;
    penalty.length_penalty = &infinite;
    const struct {
        const struct all_options *options;
        size_t without, with;
        const char *sentence;
    } wrong[] = {
        {&drafter, offsetof(struct all_options, drafter), END(drafter), "there is no drafter"},
        {&profile, offsetof(struct all_options, profile), END(profile), "there is no such profile"},
        {&alloc, offsetof(struct all_options, alloc), END(alloc), "there is no alloc"},
        {&beams, offsetof(struct all_options, beams), END(beams), "5000 beams"},
        {&n_best, offsetof(struct all_options, n_best), END(n_best), "n_best is 3"},
        {&penalty, offsetof(struct all_options, length_penalty), END(length_penalty), "not a finite"},
        {&stopping, offsetof(struct all_options, early_stopping), END(early_stopping),
         "early_stopping"},
        {&costs, offsetof(struct all_options, cache_kld), END(cache_kld),
         "`cache_kld`: the file of costs is missing"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct first_error error;
        void *context;
        check(bmc_context_open(&context, model, cut(wrong[i].options, wrong[i].without), &error) == 0,
              "options %zu, cut off: %s", i, error.text);
        bmc_context_close(context);
        check(bmc_context_open(&context, model, cut(wrong[i].options, wrong[i].with), &error) < 0 &&
                  strstr(error.text, wrong[i].sentence),
              "options %zu: %s", i, error.text);
    }
#undef END
}

static void test_model_options(const char *path)
{
    const struct all_model_options wrong = {.threads = -1};
    const size_t first = offsetof(struct all_model_options, numa);
    struct first_error error;
    void *model;
    check(bmc_model_open_with(&model, path, cut(&wrong, first), &error) == 0, "%s", error.text);
    bmc_model_close(model);
    check(bmc_model_open_with(&model, path, cut(&wrong, sizeof wrong), &error) < 0 &&
              strstr(error.text, "-1 `threads`"),
          "threads: %s", error.text);
    const struct all_model_options numa = {.numa = 1, .experts = "ram=8M"};
    check(bmc_model_open_with(&model, path, cut(&numa, sizeof numa), &error) < 0 &&
              strstr(error.text, "excludes"),
          "numa: %s", error.text);
}

static int count_choice(void *arg, size_t request, size_t choice, const char *text, size_t len,
                        const uint32_t *ids, size_t n_ids)
{
    size_t *n = arg;
    (void)request, (void)choice, (void)text, (void)len, (void)ids;
    *n += n_ids;
    return 0;
}

/* Results without the list of beams, without their score, and with both; callbacks without and with that for
 * choices; statistics from their first member on. */
static void test_results(const void *model)
{
    static const size_t sizes[] = {sizeof(struct first_result), offsetof(struct all_results, score),
                                   sizeof(struct all_results)};
    const struct all_options beams = {.second.first = {.context = 100}, .beams = 2};
    const struct first_request request = {
        .size = sizeof request, .settings = "{\"n\": 5}", .text = "A"};
    const struct all_callbacks callbacks = {.choice_text = count_choice};
    struct first_error error;
    double score = 0;
    void *context;
    if (!check(bmc_context_open(&context, model, cut(&beams, sizeof beams), &error) == 0, "%s",
               error.text))
        return;
    check(bmc_context_sequences(context) == 2, "sequences of two beams");
    for (size_t i = sizeof sizes / sizeof *sizes; i-- > 0;) {
        const size_t least = offsetof(struct all_callbacks, choice_text);
        size_t n_told = 0;
        struct all_callbacks told = callbacks;
        told.arg = &n_told;
        struct all_results *result = cut(&(struct all_results){{0}, NULL, 0}, sizes[i]);
        check(bmc_generate(context, &request, result, 1, cut(&told, i ? sizeof told : least), &error) ==
                      0 &&
                  result->first.n_ids == 5,
              "result %zu: %s", i, error.text);
        check(n_told == (i ? 5 : 0), "%zu tokens of choices", n_told);
        if (i > 0 && check(result->next != NULL, "the second beam"))
            check(result->next->first.n_ids == 5 && !result->next->next, "it is the last");
        if (i == 2)
            score = result->score;
        else if (i == 1 && result->next)
            check(result->next->score < score && score < 0, "scores %g and %g", score,
                  result->next->score);
        bmc_result_release(result);
    }
    for (size_t n = 1; n <= sizeof(struct all_stats) / sizeof(size_t); n++) {
        const struct all_stats stats = {0};
        struct all_stats *some = cut(&stats, n * sizeof(size_t));
        check(bmc_context_stats(context, some, &error) == 0, "statistics: %s", error.text);
        check(n < 5 || some->generated_tokens == 15, "generated tokens");
        check(n < 14 || some->kv_allocations > 0, "allocations of the cache");
    }
    bmc_context_close(context);
}

int main(int argc, char **argv)
{
    void *model, *context;
    struct first_error error;
    const uint32_t ids[3] = {4, 5, 6};
    if (argc != 2)
        return 2;
    if (!check(bmc_model_open(&model, argv[1], &error) == 0, "%s", argv[1]))
        return check_result();
    test_options(model);
    test_results(model);
    test_model_options(argv[1]);
    struct first_options *o = at_end(sizeof *o);
    *o = (struct first_options){.size = sizeof *o, .context = 100, .sequences = 2};
    if (!check(bmc_context_open(&context, model, o, &error) == 0, "context: %s", error.text))
        return check_result();
    const size_t vocab = bmc_model_vocab(model);
    float *logits = malloc(2 * vocab * sizeof *logits);
    struct first_input *in = at_end(2 * sizeof *in);
    for (size_t i = 0; i < 2; i++)
        in[i] = (struct first_input){.size = sizeof *in,
                                     .sequence = i,
                                     .ids = ids,
                                     .n_ids = 3,
                                     .n_outputs = 1,
                                     .logits = logits + i * vocab};
    check(bmc_eval(context, in, 2, &error) == 0, "eval: %s", error.text);
    check(memcmp(logits, logits + vocab, vocab * sizeof *logits) == 0, "the same logits twice");

    struct later_input *later = at_end(sizeof *later);
    *later = (struct later_input){.first = {.size = sizeof *later, .ids = ids, .n_ids = 3}};
    check(bmc_eval(context, later, 1, &error) == 0 && bmc_length(context, 0) == 6,
          "a later program that does not use its new members: %s", error.text);
    later->unknown = 1;
    check(bmc_eval(context, later, 1, &error) < 0 && strstr(error.text, "built for a later version") &&
              bmc_length(context, 0) == 6,
          "one that does: %s", error.text);
    bmc_context_close(context);
    struct second_options *second = at_end(sizeof *second);
    *second =
        (struct second_options){.first = {.size = sizeof *second, .context = 100}, .hidden_states = 1};
    check(bmc_context_open(&context, model, &second->first, &error) == 0, "context: %s", error.text);
    bmc_context_close(context);
    bmc_model_close(model);
    free(logits);
    return check_result();
}
