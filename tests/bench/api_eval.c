/* Decodes ragged sequences greedily, in turn by bmc_eval() and by bmc_generate(), which runs the loop of
 * bmc-gen --jsonl; prints tokens per second of both, after the prompts.
 *
 *    api_eval MODEL.bmc SEQUENCES TOKENS THREADS ROUNDS
 *
 * Sequence i has 2 + i % 8 prompt tokens. Called by api.sh. */
#include <bmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 64 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static uint32_t best(const float *logits, size_t vocab)
{
    size_t at = 0;
    for (size_t i = 1; i < vocab; i++)
        if (logits[i] > logits[at])
            at = i;
    return (uint32_t)at;
}

static uint32_t ids[MOST][8 + 2], last[MOST];
static size_t n, tokens, vocab;
static float *logits;
static struct bmc_error error;

static size_t n_prompt(size_t i) { return 2 + i % 8; }

/* Both return the time of decoding after the prompts, or a negative number; *sum: a hash of the ids. */
static double eval(struct bmc_context *context, uint32_t *sum)
{
    static struct bmc_input in[MOST];
    double start = 0;
    for (size_t i = 0; i < n; i++) {
        bmc_truncate(context, i, 0);
        in[i] = (struct bmc_input){.size = sizeof *in,
                                   .sequence = i,
                                   .ids = ids[i],
                                   .n_ids = n_prompt(i),
                                   .n_outputs = 1,
                                   .logits = logits + i * vocab};
    }
    for (size_t t = 0; t < tokens; t++) {
        if (bmc_eval(context, in, n, &error) < 0)
            return -1;
        if (t == 0)
            start = now_ms();
        for (size_t i = 0; i < n; i++) {
            last[i] = best(in[i].logits, vocab);
            *sum += last[i] * (uint32_t)(i + 1);
            in[i].ids = &last[i];
            in[i].n_ids = 1;
        }
    }
    return now_ms() - start;
}

static void prefilled(void *arg, size_t done, size_t total)
{
    if (done == total)
        *(double *)arg = now_ms();
}

static double generate(struct bmc_context *context, uint32_t *sum)
{
    static struct bmc_request request[MOST];
    static struct bmc_result result[MOST];
    char settings[64];
    double start = 0;
    const struct bmc_callbacks callbacks = {
        .size = sizeof callbacks, .arg = &start, .prefill = prefilled};
    snprintf(settings, sizeof settings, "{\"n\": %zu, \"ignore_eos\": true}", tokens);
    for (size_t i = 0; i < n; i++) {
        bmc_truncate(context, i, 0);
        request[i] = (struct bmc_request){
            .size = sizeof *request, .settings = settings, .ids = ids[i], .n_ids = n_prompt(i)};
        result[i] = (struct bmc_result){.size = sizeof *result};
    }
    if (bmc_generate(context, request, result, n, &callbacks, &error) < 0)
        return -1;
    const double ms = now_ms() - start;
    for (size_t i = 0; i < n; i++) {
        for (size_t t = 0; t < result[i].n_ids; t++)
            *sum += result[i].ids[t] * (uint32_t)(i + 1);
        bmc_result_release(&result[i]);
    }
    return ms;
}

int main(int argc, char **argv)
{
    struct bmc_model *model = NULL;
    struct bmc_context *context = NULL;
    if (argc != 6)
        return fprintf(stderr, "usage: api_eval MODEL.bmc SEQUENCES TOKENS THREADS ROUNDS\n"), 2;
    n = strtoul(argv[2], NULL, 10);
    tokens = strtoul(argv[3], NULL, 10);
    const struct bmc_options options = {.size = sizeof options,
                                        .context = 256,
                                        .sequences = n,
                                        .threads = (int)strtoul(argv[4], NULL, 10)};
    if (n > MOST || bmc_model_open(&model, argv[1], &error) < 0 ||
        bmc_context_open(&context, model, &options, &error) < 0)
        return fprintf(stderr, "api_eval: %s\n", error.text), 1;
    vocab = bmc_model_vocab(model);
    logits = calloc(n * vocab, sizeof *logits);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n_prompt(i); j++)
            ids[i][j] = (uint32_t)(100 + (7 * i + 3 * j) % 1000);
    for (size_t round = 0; logits && round <= strtoul(argv[5], NULL, 10); round++) {
        uint32_t sum[2] = {0, 0};
        const double by_eval = eval(context, &sum[0]), by_generate = generate(context, &sum[1]);
        if (by_eval < 0 || by_generate < 0 || sum[0] != sum[1])
            return fprintf(stderr, "api_eval: other ids, or %s\n", error.text), 1;
        const double all = (double)(n * (tokens - 1)) * 1e3;
        if (round) /* the first one warms up */
            printf("%.1f %.1f %.3f\n", all / by_eval, all / by_generate, by_generate / by_eval);
    }
    free(logits);
    bmc_context_close(context);
    bmc_model_close(model);
}
