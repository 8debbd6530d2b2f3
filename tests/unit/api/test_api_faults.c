/* Fault injection over the public API: for every function, each of its allocations, mappings, reads and
 * writes fails once. A call that fails returns a code and one sentence, leaves sequences as bmc.h says, and
 * succeeds when it is repeated; a call that succeeds has the right result. Memory is not lost.
 *
 *    test_api_faults MODEL.bmc FOLDER TEMPLATE ADAPTED.bmc ADAPTER MODELS_DIR [STEP [POLICY [FUNCTION]]]
 *
 * FOLDER is one to write to, TEMPLATE a chat template, ADAPTER a LoRA adapter of the model ADAPTED; of more than STEP calls of a kind, by default 40, each STEPth of them fails.
 * POLICY is that of the cache, by default iterative, which allocates for every token.
 * The model is small, and its own draft model. */
#include <malloc.h>

#include "tests/inject/fail.h"
#include "tests/unit/api/api_check.h"

enum { OWN = 6, OTHER = 4, MORE = 9, CONTEXT = 64, LONG = 100, MAX_VOCAB = 4096, MAX_HIDDEN = 512 };

static const uint32_t ids[] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
static const char *path, *adapted, *adapter, *models_dir, *chat_template, *prefixes, *snapshot,
    *fresh_snapshot, *policy = "iterative";
static struct bmc_model *model;
static struct bmc_context *context; /* sequence 0 has OWN tokens, sequence 1 OTHER, 2 none */
static float logits[MAX_VOCAB], hidden[MAX_HIDDEN];

/* What a function has returned, as bytes to compare. */
static struct {
    char bytes[8 * MAX_VOCAB];
    size_t len;
} got;

static void put(const void *bytes, size_t n)
{
    if (got.len + n <= sizeof got.bytes)
        memcpy(got.bytes + got.len, bytes, n);
    got.len += n;
}

/* ---- the functions: each returns its status and puts its results ---- */

static int open_model(void)
{
    struct bmc_model *opened;
    const int rc = bmc_model_open(&opened, path, &error);
    check(!opened == (rc < 0), "a model or an error");
    bmc_model_close(opened);
    return rc;
}

static int open_adapted(void)
{
    struct bmc_model *opened;
    const struct bmc_model_options options = {.size = sizeof options,
                                              .lora = &adapter,
                                              .n_lora = 1,
                                              .models_dir = models_dir,
                                              .hugepages = can_copy_model()};
    const int rc = bmc_model_open_with(&opened, adapted, &options, &error);
    check(!opened == (rc < 0), "a model or an error");
    bmc_model_close(opened);
    return rc;
}

static int open_with(const struct bmc_options *options)
{
    struct bmc_context *opened;
    const int rc = bmc_context_open(&opened, model, options, &error);
    check(!opened == (rc < 0), "a context or an error");
    bmc_context_close(opened);
    return rc;
}

static int open_plain(void)
{
    return open_with(OPTIONS(.context = CONTEXT, .sequences = 2, .threads = 1, .hidden_states = 1));
}

static int open_drafting(void)
{
    return open_with(OPTIONS(.context = CONTEXT, .threads = 1, .draft = path, .drafter = "suffix",
                             .chat_template = "chatml", .prefix_cache = prefixes));
}

static int eval_with(const uint32_t *tokens, size_t n)
{
    const struct bmc_input in[2] = {
        INPUT(.sequence = 0, .ids = tokens, .n_ids = n, .n_outputs = 1, .logits = logits),
        INPUT(.sequence = 2, .ids = ids, .n_ids = 3, .n_outputs = 1, .hidden = hidden)};
    const int rc = bmc_eval(context, in, 2, &error);
    put(logits, vocab * sizeof *logits);
    put(hidden, bmc_model_hidden(model) * sizeof *hidden);
    return rc;
}

static int eval(void) { return eval_with(ids + OWN, MORE); }

static int fork_sequence(void)
{
    size_t forked;
    const int rc = bmc_fork(context, 2, 0, OWN - 1, &forked, &error);
    check(rc == 0 ? forked == OWN - 1 : forked == 0 && bmc_length(context, 2) == 0,
          "%zu tokens, or an empty sequence", forked);
    put(&forked, sizeof forked);
    return rc;
}

static int generate_with(const char *settings, const struct bmc_callbacks *callbacks)
{
    struct bmc_result result[2] = {RESULT, RESULT};
    const struct bmc_request request[2] = {
        REQUEST(.settings = settings, .ids = ids, .n_ids = OWN),
        REQUEST(.settings = "{\"n\": 4, \"temp\": 0.9, \"logprobs\": 2, \"n_choices\": 3}",
                .ids = ids + 2, .n_ids = 7)};
    const int rc = bmc_generate(context, request, result, 2, callbacks, &error);
    for (int i = 0; i < 2; i++) {
        size_t choices = 0;
        for (const struct bmc_result *one = &result[i]; one; one = one->next)
            choices++;
        check(choices == (i ? 3 : 1) || (rc < 0 && choices == 1), "%zu choices", choices);
        check(result[i].status == 0 ||
                  (result[i].finish == BMC_FINISH_ERROR && result[i].error.text[0]),
              "a result of request %d", i);
        for (const struct bmc_result *one = &result[i]; one; one = one->next)
            if (one->text)
                put(one->text, one->text_len);
        put(result[i].logits_hash, sizeof result[i].logits_hash);
        bmc_result_release(&result[i]);
    }
    return rc;
}

static int generate(void)
{
    return generate_with("{\"n\": 6, \"stop\": [\"zzz\", \"yyy\"], \"logit_bias\": {\"5\": 1},"
                         " \"prompt_logprobs\": 1, \"dry_multiplier\": 0.5}",
                         NULL);
}

static int generate_constrained(void)
{
    return generate_with(
        "{\"n\": 6, \"json_schema\": {\"type\": \"object\", \"properties\": {\"name\": "
        "{\"type\": \"string\"}, \"an_integer_with_a_long_name\": {\"type\": "
        "\"integer\", \"minimum\": 12345678901234}}}}",
        NULL);
}

/* With a context of its own, and an empty prefix cache. */
static int generate_drafting(void)
{
    uint32_t prompt[LONG];
    char command[1200];
    struct bmc_context *opened;
    struct bmc_result result = RESULT;
    const struct bmc_request request = REQUEST(.settings = "{\"n\": 12}", .ids = prompt, .n_ids = LONG);
    for (size_t i = 0; i < LONG; i++)
        prompt[i] = ids[i * i % 16];
    int rc = bmc_context_open(&opened, model,
                              OPTIONS(.context = LONG + CONTEXT, .threads = 1, .draft_always = 1,
                                      .draft = path, .prefix_cache = prefixes),
                              &error);
    if (rc == 0)
        rc = bmc_generate(opened, &request, &result, 1, NULL, &error);
    if (rc == 0)
        put(result.text, result.text_len);
    bmc_result_release(&result);
    bmc_context_close(opened);
    snprintf(command, sizeof command, "rm -rf '%s'", prefixes);
    fail_pause();
    check(system(command) == 0, "%s", command);
    return rc;
}

/* With a context of its own: a search of three beams. */
static int generate_beams(void)
{
    struct bmc_context *opened;
    struct bmc_result result = RESULT;
    const struct bmc_request request =
        REQUEST(.settings = "{\"n\": 8, \"regex\": \"[a-z ]*\"}", .ids = ids, .n_ids = OWN);
    int rc =
        bmc_context_open(&opened, model, OPTIONS(.context = CONTEXT, .threads = 1, .beams = 3), &error);
    if (rc == 0)
        rc = bmc_generate(opened, &request, &result, 1, NULL, &error);
    for (const struct bmc_result *one = &result; one && rc == 0; one = one->next)
        put(one->text, one->text_len);
    for (size_t i = 0; opened && i < 3; i++)
        check(bmc_length(opened, i) == 0, "sequence %zu is empty", i);
    bmc_result_release(&result);
    bmc_context_close(opened);
    return rc;
}

static int render(void)
{
    uint32_t *list;
    size_t n;
    char *text;
    const int rc = bmc_chat_render(
        context, "{\"messages\": [{\"role\": \"user\", \"content\": \"Who was the king of it all?\"}]}",
        &list, &n, &text, &error);
    check(rc < 0 ? !list && !n && !text : list && text && n, "a conversation or an error");
    if (rc == 0)
        put(text, strlen(text));
    free(text);
    free(list);
    return rc;
}

/* A sampler and a text go on after an error as if nothing had happened: a call that fails is repeated. */
static int sample(void)
{
    static float flat[MAX_VOCAB];
    struct bmc_sampler *sampler;
    uint32_t taken[12];
    int failed = 0;
    const int opened = bmc_sampler_open(
        &sampler, context, "{\"temp\": 1, \"regex\": \"([a-m ]|[n-z]){20,90}\"}", 0, &error);
    check(!sampler == (opened < 0), "a sampler or an error");
    if (opened < 0)
        return opened;
    for (uint32_t n = 0; n < 12; n++) {
        int rc = bmc_sample(sampler, flat, taken, n, &taken[n], &error);
        if (rc < 0 && !failed) {
            failed = rc;
            rc = bmc_sample(sampler, flat, taken, n, &taken[n], NULL);
        }
        check(rc == 0, "token %u: %d", n, rc);
    }
    put(taken, sizeof taken);
    bmc_sampler_close(sampler);
    return failed;
}

static int stream_text(void)
{
    static const uint32_t more_ids[] = {40, 41, 42, 43, 44, 45, 46, 250, 251, 252};
    struct bmc_text *text;
    const char *more;
    size_t len;
    int failed = 0, rc = bmc_text_open(&text, model, ids, 3, &error);
    check(!text == (rc < 0), "a text or an error");
    for (size_t i = 0; i <= 10 && text; i++)
        for (int again = 0; again < 2; again++) {
            rc = i < 10 ? bmc_text_add(text, more_ids[i], &more, &len, failed ? NULL : &error)
                        : bmc_text_finish(text, &more, &len, failed ? NULL : &error);
            if (rc == 0) {
                put(more, len);
                break;
            }
            check(!failed, "token %zu fails again", i);
            failed = rc;
        }
    bmc_text_close(text);
    return text ? failed : rc;
}

static int convert_text(void)
{
    static const char sentence[] = "The king had a daughter, \xc3\xa4 and a \xf0\x9f\x98\x80";
    uint32_t *list;
    size_t n;
    char *text;
    int rc = bmc_tokenize(model, sentence, sizeof sentence - 1, &list, &n, &error);
    check(rc < 0 ? !list && !n : list && n, "tokens or an error");
    if (rc == 0) {
        put(list, n * sizeof *list);
        rc = bmc_detokenize(model, list, n, &text, &error);
        check(!text == (rc < 0), "a text or an error");
        if (rc == 0)
            put(text, strlen(text));
        free(text);
    }
    free(list);
    return rc;
}

static int score(void)
{
    double logprobs[9];
    const int rc = bmc_score(context, ids, 9, logprobs, &error);
    check(bmc_length(context, 0) == 0, "sequence 0 is empty");
    put(logprobs + 1, 8 * sizeof *logprobs);
    return rc;
}

static int embed(void)
{
    const int rc = bmc_embed(context, ids, 9, BMC_POOL_MEAN, 1, hidden, &error);
    check(bmc_length(context, 0) == 0, "sequence 0 is empty");
    put(hidden, bmc_model_hidden(model) * sizeof *hidden);
    return rc;
}

static int save(void) { return bmc_save(context, 0, fresh_snapshot, &error); }

static int load(void)
{
    const int rc = bmc_load(context, 2, snapshot, &error);
    check(bmc_length(context, 2) == (rc < 0 ? 0 : OWN), "the sequence is loaded or empty");
    return rc;
}

/* Tokens behind a snapshot, whose KV entries are mapped until the cache grows: after an error they are still
 * there, and the call is repeated. */
static int eval_loaded(void)
{
    const struct bmc_input in =
        INPUT(.sequence = 2, .ids = ids, .n_ids = 16, .n_outputs = 1, .logits = logits);
    struct bmc_error ignored;
    int rc = bmc_load(context, 2, snapshot, &error);
    if (rc < 0)
        return rc;
    rc = bmc_eval(context, &in, 1, &error);
    if (rc < 0) {
        check(bmc_length(context, 2) == OWN, "the snapshot's %d tokens are there", OWN);
        check(bmc_eval(context, &in, 1, &ignored) == 0, "the tokens behind it: %s", ignored.text);
    }
    put(logits, vocab * sizeof *logits);
    return rc;
}

/* ---- their state before and after ---- */

static void begin(void)
{
    const struct bmc_input in[2] = {INPUT(.sequence = 0, .ids = ids, .n_ids = OWN),
                                    INPUT(.sequence = 1, .ids = ids + 3, .n_ids = OTHER)};
    for (size_t i = 0; i < 3; i++)
        bmc_truncate(context, i, 0);
    check(bmc_eval(context, in, 2, &error) == 0, "begin: %s", error.text);
}

static bool has(size_t sequence, const uint32_t *tokens, size_t n)
{
    return bmc_length(context, sequence) == n &&
           (!n || memcmp(bmc_tokens(context, sequence), tokens, n * sizeof *tokens) == 0);
}

/* All sequences are as before. */
static bool as_before(void) { return has(0, ids, OWN) && has(1, ids + 3, OTHER) && has(2, ids, 0); }

/* Sequence 1 is, and goes on as if nothing had happened; of the others the functions check what they say. */
static bool other_as_before(void) { return has(1, ids + 3, OTHER); }

static bool unknown(void) { return true; }

#define MEMORY "memory mmap"

static const struct api_step {
    const char *name, *calls;
    int (*run)(void);
    bool (*after)(void); /* the state after an error */
    bool repeats;        /* the function repeats a call that has failed: its results are all there */
} ops[] = {
    {"bmc_model_open", MEMORY " read", open_model, as_before, false},
    {"bmc_model_open_with", MEMORY " read", open_adapted, as_before, false},
    {"bmc_context_open", MEMORY, open_plain, as_before, false},
    {"bmc_context_open with a drafter", MEMORY " read write rename", open_drafting, as_before, false},
    {"bmc_eval", MEMORY, eval, as_before, false},
    {"bmc_fork", MEMORY, fork_sequence, other_as_before, false},
    {"bmc_generate", MEMORY, generate, unknown, false},
    {"bmc_generate under a constraint", MEMORY, generate_constrained, unknown, false},
    {"bmc_generate with a drafter", MEMORY " read write rename", generate_drafting, as_before, false},
    {"bmc_generate with beams", MEMORY, generate_beams, as_before, false},
    {"bmc_chat_render", MEMORY, render, as_before, false},
    {"bmc_sample", MEMORY, sample, as_before, true},
    {"bmc_text_add", MEMORY, stream_text, as_before, true},
    {"bmc_tokenize", MEMORY, convert_text, as_before, false},
    {"bmc_score", MEMORY, score, other_as_before, false},
    {"bmc_embed", MEMORY, embed, other_as_before, false},
    {"bmc_save", MEMORY " write fsync rename", save, as_before, false},
    {"bmc_load", MEMORY " read", load, other_as_before, false},
    {"bmc_eval behind a snapshot", MEMORY, eval_loaded, other_as_before, true},
};

static size_t step = 40, failures, injected;
static uint64_t first; /* of every STEPth call: by the seed, another one in each cycle */

static size_t bytes_in_use(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* The logits after one more token of sequence 1. */
static uint64_t other_sequence(void)
{
    const struct bmc_input in =
        INPUT(.sequence = 1, .ids = ids, .n_ids = 1, .n_outputs = 1, .logits = logits);
    uint64_t hash = 0;
    check(bmc_eval(context, &in, 1, &error) == 0, "one more token: %s", error.text);
    for (size_t i = 0; i < vocab; i++)
        hash = hash * 31 + (uint64_t)(int64_t)(logits[i] * 1e6f);
    return hash;
}

static int run(const struct api_step *op, const char *call, unsigned long at, unsigned long *calls)
{
    error.text[0] = 0;
    got.len = 0;
    fail_next(call, at);
    const int rc = op->run();
    if (calls)
        *calls = fail_calls();
    fail_next(NULL, 0);
    return rc;
}

/* One call of a kind fails. */
static void inject(const struct api_step *op, const char *call, unsigned long at, uint64_t next)
{
    static char expected[sizeof got.bytes];
    begin();
    int rc = run(op, NULL, 0, NULL);
    const size_t len = got.len;
    memcpy(expected, got.bytes, len);
    check(rc == 0, "%s: %s", op->name, error.text);
    begin();
    rc = run(op, call, at, NULL);
    injected++;
    const bool whole = got.len == len && memcmp(got.bytes, expected, len) == 0;
    if (rc < 0) {
        check(!op->repeats || !got.len || whole, "%s, %s %lu: results after an error", op->name, call,
              at);
        failures++;
        check(rc >= BMC_CANCELLED && error.text[0] && !strchr(error.text, '\n'),
              "%s, %s %lu: %d, \"%s\"", op->name, call, at, rc, error.text);
        check(strcmp(call, "memory") != 0 || rc == BMC_NO_MEMORY, "%s, %s %lu: %d, \"%s\"", op->name,
              call, at, rc, error.text);
        check(op->after(), "%s, %s %lu (%s): sequences of %zu, %zu, %zu tokens", op->name, call, at,
              error.text, bmc_length(context, 0), bmc_length(context, 1), bmc_length(context, 2));
        if (op->after != unknown)
            check(other_sequence() == next, "%s, %s %lu: the other sequence", op->name, call, at);
        begin();
        rc = run(op, NULL, 0, NULL);
    }
    check(rc == 0 && got.len == len && memcmp(got.bytes, expected, len) == 0,
          "%s, %s %lu: not the result of a run without a failure (%d, %s)", op->name, call, at, rc,
          error.text);
}

static void test_op(const struct api_step *op)
{
    char calls[64];
    begin();
    const uint64_t next = other_sequence();
    snprintf(calls, sizeof calls, "%s", op->calls);
    for (char *left = calls, *call; (call = strtok_r(left, " ", &left));) {
        unsigned long n = 0;
        begin();
        check(run(op, NULL, 0, NULL) == 0, "%s: %s", op->name, error.text);
        begin();
        check(run(op, call, 0, &n) == 0, "%s: %s", op->name, error.text);
        const size_t by = n > step ? n / step : 1;
        for (unsigned long at = 1 + first % by; at <= n; at += by)
            inject(op, call, at, next);
        printf("# %s: %lu calls of %s\n", op->name, n, call);
    }
}

/* Opens everything, tests everything, closes everything. */
static void cycle(const char *only)
{
    check(bmc_model_open(&model, path, &error) == 0, "%s: %s", path, error.text);
    vocab = bmc_model_vocab(model);
    if (vocab > MAX_VOCAB || bmc_model_hidden(model) > MAX_HIDDEN)
        exit(1);
    context =
        open_context(model, OPTIONS(.context = CONTEXT, .sequences = 3, .threads = 1, .chunk = 4,
                                    .hidden_states = 1, .kv = policy, .chat_template = chat_template));
    begin();
    check(bmc_save(context, 0, snapshot, &error) == 0, "%s", error.text);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (!only || strcmp(only, ops[i].name) == 0)
            test_op(&ops[i]);
    bmc_context_close(context);
    bmc_model_close(model);
}

int main(int argc, char **argv)
{
    char names[3][1024];
    static char buffer[1 << 16];
    if (argc < 7 || argc > 10)
        return 2;
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    path = argv[1];
    for (int i = 0; i < 3; i++)
        snprintf(names[i], sizeof names[i], "%s/%s", argv[2],
                 ((const char *[]){"prefixes", "a.kv", "b.kv"})[i]);
    prefixes = names[0];
    snapshot = names[1];
    fresh_snapshot = names[2];
    chat_template = argv[3];
    adapted = argv[4];
    adapter = argv[5];
    models_dir = argv[6];
    if (argc > 7)
        step = strtoul(argv[7], NULL, 10);
    if (argc > 8)
        policy = argv[8];
    size_t used[3];
    first = check_seed(0);
    for (int i = 0; i < 3; i++, first++) {
        cycle(argc > 9 ? argv[9] : NULL);
        used[i] = bytes_in_use();
    }
    check(used[2] <= used[1], "bytes in use after each cycle: %zu, %zu, %zu", used[0], used[1],
          used[2]);
    check(failures > 100 || argc > 9, "%zu of %zu injected failures were reported", failures, injected);
    return check_result();
}
