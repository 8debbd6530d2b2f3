/* Phases of answers: free text equals that of plain decoding, up to the marker at which a constraint begins, or the end of a
 * thought's budget; what follows is what they ask for. Drafts and batches change nothing. Tokens are bytes. */
#include <ctype.h>

#include "base/threads.h"

#include "tests/unit/decode/spec_run.h"
#include "tests/unit/draft_shapes.h"

enum { BYTES = 256, LENGTH = 40 };

static const struct sampler_options sampling = {.temp = 0.8, .top_p = 1};

static struct test_run new_run(const struct model *model, struct constraint *constraint,
                               const struct answer_markers *markers)
{
    return (struct test_run){.target = model,
                             .kv = "upfront",
                             .batch = 1,
                             .n = LENGTH,
                             .requests = 6,
                             .lengths = true,
                             .sampling = sampling,
                             .constraint = constraint,
                             .markers = markers};
}

static bool run_or_fail(struct test_run *run, const char *what)
{
    struct err err;
    return check(run_all(run, &err) == 0, "%s: %s", what, err.text);
}

/* The same requests with drafts of several kinds, and in batches. */
static void compare_drafts(const struct test_run *want, const struct model *draft, const char *what)
{
    static const enum test_drafter kinds[] = {PLAIN, LOOKUP, SUFFIX, MODEL};
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        struct test_run run = new_run(want->target, want->constraint, want->markers);
        run.kind = kinds[k];
        run.draft = draft;
        run.batch = 4;
        run.options = chain_of(4);
        if (run_or_fail(&run, what))
            for (size_t i = 0; i < run.requests; i++)
                check(run.n_ids[i] == want->n_ids[i] &&
                          memcmp(run.ids + i * LENGTH, want->ids + i * LENGTH,
                                 run.n_ids[i] * sizeof *run.ids) == 0,
                      "%s: drafter %zu, request %zu has other ids", what, k, i);
        free_run(&run);
    }
}

/* Thoughts of at most 7 tokens, of all requests. */
static void test_budget(const struct model *model, const struct model *draft,
                        const struct test_run *plain)
{
    enum { BUDGET = 7 };
    static uint32_t closing[] = {'!', '<', '/', 't', '>'};
    const struct ids close = {.id = closing, .len = ARRAY_LEN(closing)};
    const struct answer_markers markers = {.thought_begin = "<t>",
                                           .thought_end = "</t>",
                                           .in_thought = true,
                                           .thought_tokens = BUDGET,
                                           .close = &close};
    struct test_run run = new_run(model, NULL, &markers);
    if (!run_or_fail(&run, "a budget"))
        return;
    for (size_t i = 0; i < run.requests; i++) {
        const uint32_t *ids = run.ids + i * LENGTH, *free_ids = plain->ids + i * LENGTH;
        size_t at = 0; /* a character that is incomplete may be completed */
        while (at < BUDGET + 4 && memcmp(ids + at, closing, sizeof closing) != 0)
            at++;
        check(at >= BUDGET && at < BUDGET + 4, "request %zu: the thought is closed after %zu tokens", i,
              at);
        check(memcmp(ids, free_ids, at * sizeof *ids) == 0, "request %zu: the thought is another one",
              i);
        check(run.n_ids[i] == LENGTH, "request %zu: the answer has %zu tokens", i, run.n_ids[i]);
    }
    compare_drafts(&run, draft, "a budget");
    free_run(&run);
}

/* A constraint that begins at a byte. */
static void test_trigger(const struct model *model, const struct model *draft,
                         const struct test_run *plain, struct constraint_cache *cache)
{
    static const char regex[] = "[0-9]{3}";
    struct constraint *constraint;
    struct err err;
    const char trigger[] = {(char)plain->ids[5], 0};
    const struct answer_markers markers = {.trigger = {trigger}, .n_triggers = 1};
    size_t begun = 0;
    if (!check(constraint_cache_get(cache, CONSTRAINT_REGEX, regex, strlen(regex), &constraint, &err) ==
                   0,
               "%s", err.text))
        return;
    struct test_run run = new_run(model, constraint, &markers);
    if (!run_or_fail(&run, "a constraint behind a marker"))
        return;
    for (size_t i = 0; i < run.requests; i++) {
        const uint32_t *ids = run.ids + i * LENGTH, *free_ids = plain->ids + i * LENGTH;
        size_t at = 0;
        while (at < LENGTH && free_ids[at] != plain->ids[5])
            at++;
        const size_t same = size_min(at + 1, LENGTH);
        const bool begins = at + 4 <= LENGTH;
        begun += begins;
        check(memcmp(ids, free_ids, same * sizeof *ids) == 0,
              "request %zu: the text before the marker is another one", i);
        check(run.n_ids[i] == (begins ? same + 3 : LENGTH), "request %zu: %zu tokens", i, run.n_ids[i]);
        for (size_t k = same; k < run.n_ids[i]; k++)
            check(ids[k] < 128 && isdigit((int)ids[k]), "request %zu: token %zu is no digit", i, k);
    }
    check(begun > 0, "the marker occurs in no request");
    compare_drafts(&run, draft, "a constraint behind a marker");
    free_run(&run);
    constraint_cache_put(cache, constraint);
}

/* A constraint behind the thought in which the prompt ends, closed by its budget. */
static void test_after_thought(const struct model *model, const struct model *draft,
                               struct constraint_cache *cache)
{
    static uint32_t closing[] = {'<', '/', 't', '>'};
    const struct ids close = {.id = closing, .len = ARRAY_LEN(closing)};
    const struct answer_markers markers = {.thought_begin = "<t>",
                                           .thought_end = "</t>",
                                           .in_thought = true,
                                           .thought_tokens = 0,
                                           .close = &close};
    struct constraint *constraint;
    struct err err;
    if (!check(constraint_cache_get(cache, CONSTRAINT_REGEX, "x{5}", 4, &constraint, &err) == 0, "%s",
               err.text))
        return;
    struct test_run run = new_run(model, constraint, &markers);
    if (run_or_fail(&run, "a constraint behind a thought"))
        for (size_t i = 0; i < run.requests; i++) {
            static const uint32_t want[] = {'<', '/', 't', '>', 'x', 'x', 'x', 'x', 'x'};
            check(run.n_ids[i] == ARRAY_LEN(want) &&
                      memcmp(run.ids + i * LENGTH, want, sizeof want) == 0,
                  "request %zu: the text is another one", i);
        }
    compare_drafts(&run, draft, "a constraint behind a thought");
    free_run(&run);
    constraint_cache_put(cache, constraint);
}

int main(void)
{
    struct model *model = make_model(BYTES, 2, DTYPE_F32, 1),
                 *draft = make_model(BYTES, 2, DTYPE_BF16, 1);
    struct constraint_cache *cache;
    struct test_run plain = new_run(model, NULL, NULL);
    struct err err;
    kernels_setup();
    threads_set(1);
    if (check(constraint_cache_open(&cache, model->tok, BYTES, &err) == 0, "%s", err.text) &&
        run_or_fail(&plain, "plain decoding")) {
        test_budget(model, draft, &plain);
        test_trigger(model, draft, &plain, cache);
        test_after_thought(model, draft, cache);
    }
    free_run(&plain);
    constraint_cache_close(cache);
    model_close(draft);
    model_close(model);
    return check_result();
}
