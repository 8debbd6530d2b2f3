/* Continues a text greedily by a few tokens: a minimal program that uses libbmc.
 *
 *   cc continue.c $(pkg-config --cflags --libs bmc) -o continue
 *   ./continue /usr/local/share/bmc/grimm.bmc "Once upon a time" 20 */
#include <bmc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t most_probable(const float *logits, size_t vocab)
{
    size_t best = 0;
    for (size_t id = 1; id < vocab; id++)
        if (logits[id] > logits[best])
            best = id;
    return (uint32_t)best;
}

/* Evaluates the prompt, then generates up to `n` tokens into `ids`, fewer if the text ends. Returns
 * their number; -1 on failure. */
static int generate(const struct bmc_model *model, struct bmc_context *context, const uint32_t *prompt,
                    size_t n_prompt, uint32_t *ids, size_t n, struct bmc_error *error)
{
    float *logits = calloc(bmc_model_vocab(model), sizeof *logits);
    struct bmc_input input = {
        .size = sizeof input, .ids = prompt, .n_ids = n_prompt, .n_outputs = 1, .logits = logits};
    size_t made = 0;
    int rc = logits ? bmc_eval(context, &input, 1, error) : -1;
    while (rc == 0 && made < n) {
        ids[made] = most_probable(logits, bmc_model_vocab(model));
        if (bmc_is_eog(model, ids[made]))
            break;
        input.ids = &ids[made++];
        input.n_ids = 1;
        rc = bmc_eval(context, &input, 1, error);
    }
    free(logits);
    return rc < 0 ? -1 : (int)made;
}

static int continue_text(const struct bmc_model *model, const char *text, size_t n,
                         struct bmc_error *error)
{
    struct bmc_context *context = NULL;
    uint32_t *prompt = NULL, *ids = calloc(n, sizeof *ids);
    char *more = NULL;
    size_t n_prompt;
    int made = -1;
    if (ids && bmc_tokenize(model, text, strlen(text), &prompt, &n_prompt, error) == 0 &&
        bmc_context_open(&context, model, NULL, error) == 0)
        made = generate(model, context, prompt, n_prompt, ids, n, error);
    if (made >= 0 && bmc_detokenize(model, ids, (size_t)made, &more, error) == 0)
        printf("%s%s\n", text, more);
    const int rc = more ? 0 : -1;
    bmc_context_close(context);
    free(prompt);
    free(ids);
    free(more);
    return rc;
}

int main(int argc, char **argv)
{
    struct bmc_model *model;
    struct bmc_error error = {"out of memory"};
    const long n = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (n < 1 || n > 1000)
        return fprintf(stderr, "usage: continue MODEL.bmc TEXT TOKENS\n"), 2;
    int rc = bmc_model_open(&model, argv[1], &error);
    if (rc == 0)
        rc = continue_text(model, argv[2], (size_t)n, &error);
    if (rc < 0)
        fprintf(stderr, "continue: %s\n", error.text);
    bmc_model_close(model);
    return rc < 0;
}
