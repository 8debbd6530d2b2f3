/* Programs built against the headers of the first and the second version, whose structures had fewer
 * members, with today's libbmc.so: declarations are their own. Structures end where memory ends.
 *
 *    test_abi MODEL.bmc */
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

int bmc_model_open(void **model, const char *path, struct first_error *error);
void bmc_model_close(void *model);
size_t bmc_model_vocab(const void *model);
int bmc_context_open(void **context, const void *model, const struct first_options *options,
                     struct first_error *error);
void bmc_context_close(void *context);
int bmc_eval(void *context, const void *inputs, size_t n, struct first_error *error);
size_t bmc_length(const void *context, size_t sequence);

/* Memory for `size` bytes that end at a page without access. */
static void *at_end(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + page, page, PROT_NONE) < 0)
        exit(1);
    return map + page - size;
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
