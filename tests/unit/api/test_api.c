/* The library as users link it: bmc.h and libbmc.a only. Greedy text of a model against a reference
 * file; batches against single sequences; the state after every error.
 *
 *    test_api MODEL.bmc "PROMPT" "EXPECTED TEXT" */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/api/api_check.h"

static uint32_t best(const float *logits)
{
    size_t at = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[at])
            at = i;
    return (uint32_t)at;
}

static int feed(struct bmc_context *context, size_t sequence, const uint32_t *ids, size_t n,
                float *logits)
{
    const struct bmc_input in =
        INPUT(.sequence = sequence, .ids = ids, .n_ids = n, .n_outputs = 1, .logits = logits);
    return bmc_eval(context, &in, 1, &error);
}

static void generate_text(const struct bmc_model *model, const char *prompt, const char *expected,
                          const char *kv)
{
    enum { MOST = 64 };
    const size_t N = check_size(MOST, 12);
    struct bmc_context *context =
        open_context(model, OPTIONS(.context = 200, .sequences = 2, .threads = 2, .kv = kv));
    uint32_t *ids, made[MOST];
    size_t n_ids;
    float *logits = malloc(vocab * sizeof *logits);
    char *text;
    if (!check(bmc_tokenize(model, prompt, strlen(prompt), &ids, &n_ids, &error) == 0, "tokenize") ||
        !context || !logits)
        exit(1);
    for (size_t sequence = 0; sequence < 2; sequence++) {
        check(feed(context, sequence, ids, n_ids, logits) == 0, "eval");
        for (size_t i = 0; i < N; i++) {
            made[i] = best(logits);
            check(feed(context, sequence, &made[i], 1, logits) == 0, "eval");
        }
        check(bmc_length(context, sequence) == n_ids + N &&
                  memcmp(bmc_tokens(context, sequence), ids, n_ids * sizeof *ids) == 0 &&
                  memcmp(bmc_tokens(context, sequence) + n_ids, made, N * sizeof *made) == 0,
              "tokens of the sequence");
        check(bmc_detokenize(model, made, N, &text, &error) == 0, "detokenize");
        check(strncmp(text, expected, N < MOST ? strlen(text) : SIZE_MAX) == 0 && strlen(text) >= N,
              "%s: \"%s\"", kv, text);
        free(text);
        check(bmc_truncate(context, sequence, n_ids) == n_ids, "truncate");
        check(feed(context, sequence, made, 1, logits) == 0 && best(logits) == made[1],
              "after truncation");
        check(bmc_truncate(context, sequence, 0) == 0 && bmc_tokens(context, sequence) == NULL,
              "emptied");
    }
    free(logits);
    free(ids);
    bmc_context_close(context);
}

static uint64_t state;

static size_t draw(size_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (size_t)(state >> 20) % n;
}

enum { MOST_SEQUENCES = 32, LONGEST = 40, ROUNDS = 4 };

/* A sequence alone in a context of its own: every output of a batch must equal it bit for bit. */
struct alone {
    struct bmc_context *context;
    uint32_t ids[ROUNDS * LONGEST];
    size_t n;
};

/* Random ragged batches: some sequences get many tokens, some one, some none; outputs of random
 * tokens; now and then a sequence is truncated or forked. */
static void test_ragged(const struct bmc_model *model, const char *kv)
{
    const size_t hidden = bmc_model_hidden(model), sequences = check_size(MOST_SEQUENCES, 6),
                 longest = check_size(LONGEST, 12);
    struct bmc_context *batch =
        open_context(model, OPTIONS(.context = 600, .sequences = sequences, .kv = kv,
                                    .chunk = longest + 24, .hidden_states = 1));
    struct bmc_context *single =
        open_context(model, OPTIONS(.context = 600, .threads = 1, .kv = "upfront", .hidden_states = 1));
    static uint32_t ids[MOST_SEQUENCES][ROUNDS * LONGEST];
    size_t length[MOST_SEQUENCES] = {0};
    float *logits = malloc(MOST_SEQUENCES * 3 * vocab * sizeof *logits),
          *one = malloc(vocab * sizeof *one),
          *states = malloc(MOST_SEQUENCES * 3 * hidden * sizeof *states),
          *state1 = malloc(hidden * sizeof *one);
    if (!batch || !single || !logits || !one || !states || !state1)
        exit(1);
    for (size_t round = 0; round < ROUNDS; round++) {
        struct bmc_input in[MOST_SEQUENCES];
        size_t at[MOST_SEQUENCES][3], n = 0, at_output = 0;
        for (size_t seq = 0; seq < sequences; seq++) {
            const size_t tokens = round % 2 ? draw(2) : draw(longest);
            if (!tokens)
                continue;
            for (size_t i = 0; i < tokens; i++)
                ids[seq][length[seq] + i] = (uint32_t)draw(vocab);
            at[seq][0] = draw(tokens);
            at[seq][1] = tokens - 1;
            const bool two = at[seq][0] < at[seq][1] && draw(2);
            const size_t skip = draw(2); /* now and then, arrays that do not follow each other */
            in[n++] = INPUT(.sequence = seq, .ids = ids[seq] + length[seq], .n_ids = tokens,
                            .n_outputs = two ? 2 : 1, .output_at = two ? at[seq] : NULL,
                            .logits = logits + (at_output + skip * draw(2)) * vocab,
                            .hidden = states + at_output * hidden);
            at_output += 3;
            length[seq] += tokens;
        }
        check(bmc_eval(batch, in, n, &error) == 0, "%s: a ragged batch: %s", kv, error.text);
        for (size_t i = 0; i < n; i++) {
            const size_t seq = in[i].sequence, before = length[seq] - in[i].n_ids;
            for (size_t o = 0; o < in[i].n_outputs; o++) {
                const size_t last = before + (in[i].output_at ? in[i].output_at[o] : in[i].n_ids - 1);
                bmc_truncate(single, 0, 0);
                const struct bmc_input whole = INPUT(.ids = ids[seq], .n_ids = last + 1, .n_outputs = 1,
                                                     .logits = one, .hidden = state1);
                check(bmc_eval(single, &whole, 1, &error) == 0, "alone");
                check(memcmp(one, in[i].logits + o * vocab, vocab * sizeof *one) == 0 &&
                          memcmp(state1, in[i].hidden + o * hidden, hidden * sizeof *one) == 0,
                      "%s: round %zu, sequence %zu, output %zu equals that of the sequence alone", kv,
                      round, seq, o);
            }
        }
        const size_t cut = draw(sequences), from = draw(sequences), to = draw(sequences);
        length[cut] = bmc_truncate(batch, cut, draw(length[cut] + 1));
        if (from != to) {
            const size_t wanted = draw(length[from] + 1);
            check(bmc_fork(batch, to, from, wanted, &length[to], &error) == 0 && length[to] == wanted,
                  "%s: fork: %s", kv, error.text);
            memcpy(ids[to], ids[from], length[to] * sizeof **ids);
        }
        for (size_t seq = 0; seq < sequences; seq++)
            check(bmc_length(batch, seq) == length[seq] &&
                      (!length[seq] ||
                       memcmp(bmc_tokens(batch, seq), ids[seq], length[seq] * sizeof **ids) == 0),
                  "%s: tokens of sequence %zu", kv, seq);
    }
    free(logits);
    free(one);
    free(states);
    free(state1);
    bmc_context_close(batch);
    bmc_context_close(single);
}

/* Contexts of one model in two threads, with different numbers of worker threads. */
struct worker {
    const struct bmc_model *model;
    int threads;
    uint32_t chosen;
    bool ok;
};

static void *eval_much(void *arg)
{
    struct worker *w = arg;
    struct bmc_context *context;
    struct bmc_error why;
    uint32_t ids[600];
    const size_t n = check_size(600, 80);
    float *logits = malloc(vocab * sizeof *logits);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)(4 + i * 7 % 3000);
    const struct bmc_input in = INPUT(.ids = ids, .n_ids = n, .n_outputs = 1, .logits = logits);
    if (!logits ||
        bmc_context_open(&context, w->model, OPTIONS(.context = 1024, .threads = w->threads), &why) < 0)
        return NULL;
    w->ok = bmc_eval(context, &in, 1, &why) == 0;
    if (w->ok)
        w->chosen = best(logits);
    bmc_context_close(context);
    free(logits);
    return NULL;
}

static void test_two_threads(const struct bmc_model *model)
{
    struct worker worker[2] = {{.model = model, .threads = 1}, {.model = model, .threads = 7}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        check(pthread_create(&thread[i], NULL, eval_much, &worker[i]) == 0, "pthread_create");
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    check(worker[0].ok && worker[1].ok && worker[0].chosen == worker[1].chosen,
          "two contexts in two threads");
}

static void test_options(const struct bmc_model *model)
{
    const struct {
        struct bmc_options options;
        const char *sentence;
    } wrong[] = {
        {{.size = 0}, "struct bmc_options is 0: set it to sizeof"},
        {{.size = sizeof(struct bmc_options), .kv = "none"}, "none"},
        {{.size = sizeof(struct bmc_options), .context = 1 << 30}, "is beyond the model's"},
        {{.size = sizeof(struct bmc_options), .sequences = SIZE_MAX}, "at most 65536"},
        {{.size = sizeof(struct bmc_options), .chunk = SIZE_MAX}, "at most 65536"},
        {{.size = sizeof(struct bmc_options), .threads = -1}, "from 1 to 4096"},
        {{.size = sizeof(struct bmc_options), .cache_type = "q3"},
         "cache type \"q3\" is unknown; there are: f32, "},
        {{.size = sizeof(struct bmc_options), .cache_type = "q8:scales="},
         "cache type \"q8:scales=\": only q8:scales=FILE"},
        {{.size = sizeof(struct bmc_options), .cache_type = "q8:scales=none/such"}, "none/such: "},
        {{.size = sizeof(struct bmc_options), .attn = "none"}, "none"},
        {{.size = sizeof(struct bmc_options), .backend = "none"},
         "backend \"none\" is unknown; there are: cpu, opencl"},
        {{.size = sizeof(struct bmc_options), .kernels = "none"}, "no instruction set \"none\""},
        {{.size = sizeof(struct bmc_options), .precision = "none"}, "none"},
    };
    struct bmc_context *context;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused(bmc_context_open(&context, model, &wrong[i].options, &error), BMC_INVALID,
                wrong[i].sentence);
        check(!context, "no context");
    }
    check(bmc_context_open(&context, model, OPTIONS(.kv = "none"), NULL) == BMC_INVALID,
          "an error that nobody reads");
}

/* Every refused eval: its code, its sentence, and sequences as they were. */
static void test_refusals(const struct bmc_model *model)
{
    const uint32_t beyond = (uint32_t)vocab, some[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    const size_t down[2] = {1, 0}, far[1] = {3};
    float *logits = malloc(2 * vocab * sizeof *logits), *again = logits + vocab;
    struct bmc_context *context = open_context(model, OPTIONS(.context = 6, .sequences = 2));
    if (!logits || !context)
        exit(1);
    const struct bmc_input good = INPUT(.ids = some, .n_ids = 3);
    const struct {
        struct bmc_input in[3];
        size_t n;
        int code;
        const char *sentence;
    } wrong[] = {
        {{good, INPUT(.sequence = 1, .ids = &beyond, .n_ids = 1)},
         2,
         BMC_INVALID,
         "outside the vocabulary"},
        {{good, INPUT(.sequence = 2, .ids = some, .n_ids = 1)},
         2,
         BMC_INVALID,
         "there is no sequence 2"},
        {{good, good}, 2, BMC_INVALID, "in the inputs twice"},
        {{good, good, good}, 3, BMC_INVALID, "3 inputs for 2 sequences"},
        {{good, INPUT(.sequence = 1)}, 2, BMC_INVALID, "gets no tokens"},
        {{good, INPUT(.sequence = 1, .ids = some, .n_ids = 7)},
         2,
         BMC_FULL,
         "the context of 6 tokens is full"},
        {{INPUT(.ids = some, .n_ids = 1, .n_outputs = 2, .logits = logits)},
         1,
         BMC_INVALID,
         "2 outputs are requested of 1"},
        {{INPUT(.ids = some, .n_ids = 3, .n_outputs = 2, .output_at = down, .logits = logits)},
         1,
         BMC_INVALID,
         "must ascend"},
        {{INPUT(.ids = some, .n_ids = 3, .n_outputs = 1, .output_at = far, .logits = logits)},
         1,
         BMC_INVALID,
         "must ascend"},
        {{INPUT(.ids = some, .n_ids = 3, .n_outputs = 1, .hidden = logits)},
         1,
         BMC_INVALID,
         "hidden_states"},
        {{{.ids = some, .n_ids = 3}}, 1, BMC_INVALID, "struct bmc_input is 0: set it"},
    };
    check(feed(context, 1, some, 2, logits) == 0, "two tokens");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused(bmc_eval(context, wrong[i].in, wrong[i].n, &error), wrong[i].code, wrong[i].sentence);
        check(bmc_length(context, 0) == 0 && bmc_length(context, 1) == 2, "as before");
    }
    check(feed(context, 1, some + 2, 1, logits) == 0 && bmc_truncate(context, 1, 0) == 0 &&
              feed(context, 1, some, 3, again) == 0 &&
              memcmp(logits, again, vocab * sizeof *logits) == 0,
          "the sequence goes on as if nothing had failed");
    check(feed(context, 1, some + 3, 3, logits) == 0 && bmc_length(context, 1) == 6, "a full context");
    refused(feed(context, 1, some, 1, logits), BMC_FULL, "is full");
    refused(bmc_fork(context, 0, 2, 1, NULL, &error), BMC_INVALID, "there is no sequence 2");
    refused(bmc_fork(context, 1, 1, 1, NULL, &error), BMC_INVALID, "to itself");
    refused(bmc_begin(context, 2, 5, &error), BMC_INVALID, "there is no sequence 2");
    check(bmc_length(context, 2) == 0 && bmc_tokens(context, 2) == NULL &&
              bmc_truncate(context, 2, 0) == 0,
          "an index out of range");
    check(bmc_eval(context, NULL, 0, &error) == 0, "nothing to do");
    bmc_context_close(context);
    free(logits);
}

static void test_model(const char *path)
{
    struct bmc_model *model;
    uint32_t *ids;
    size_t n;
    refused(bmc_model_open(&model, "no such file", &error), BMC_BAD_FILE, "no such file");
    check(!model, "no model");
    check(bmc_model_open(&model, path, &error) == 0, "%s", path);
    check(bmc_model_context(model) == 1024 && bmc_is_eog(model, 2) && !bmc_is_eog(model, 3),
          "the model");
    refused(bmc_tokenize(model, "\xff", 1, &ids, &n, &error), BMC_INVALID, "UTF-8");
    check(!ids && n == 0, "no tokens");
    check(bmc_tokenize_flags(model, "a", 1, BMC_NO_SPECIAL, &ids, &n, &error) == 0 && n == 1, "no BOS");
    free(ids);
    check(bmc_tokenize_flags(model, "</s>", 4, BMC_NO_SPECIAL, &ids, &n, &error) == 0 && n == 1 &&
              ids[0] == 2,
          "a special token");
    free(ids);
    check(bmc_tokenize_flags(model, "</s>", 4, BMC_NO_SPECIAL | BMC_PLAIN, &ids, &n, &error) == 0 &&
              n > 1,
          "its text");
    free(ids);
    const uint32_t beyond = (uint32_t)bmc_model_vocab(model);
    struct bmc_text *streamed;
    char *text = NULL;
    const char *more = NULL;
    refused(bmc_detokenize(model, &beyond, 1, &text, &error), BMC_INVALID, "outside the vocabulary");
    check(!text, "no text");
    refused(bmc_text_open(&streamed, model, &beyond, 1, &error), BMC_INVALID, "outside the vocabulary");
    check(!streamed && bmc_text_open(&streamed, model, NULL, 0, &error) == 0, "%s", error.text);
    refused(bmc_text_add(streamed, beyond, &more, &n, &error), BMC_INVALID, "outside the vocabulary");
    check(!more, "unchanged");
    bmc_text_close(streamed);
    check(strcmp(bmc_version(), "0.1.0") == 0 && strstr(bmc_build(), "-ffp-contract=off"), "version");
    bmc_model_close(model);
}

int main(int argc, char **argv)
{
    struct bmc_model *model;
    if (argc != 4)
        return 2;
    state = check_state(check_seed(1));
    test_model(argv[1]);
    if (!check(bmc_model_open(&model, argv[1], &error) == 0, "%s", argv[1]))
        return check_result();
    vocab = bmc_model_vocab(model);
    generate_text(model, argv[2], argv[3], "bmc");
    generate_text(model, argv[2], argv[3], "upfront");
    test_ragged(model, "bmc");
    test_ragged(model, "paged:16");
    test_two_threads(model);
    test_options(model);
    test_refusals(model);
    bmc_model_close(model);
    return check_result();
}
