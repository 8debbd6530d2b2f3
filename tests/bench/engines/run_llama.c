/* llama.cpp and forks of it by their C interface, greedy: the protocol of driver.py. With -DOLD, the interface of forks of
 * early 2025. Weights are re-laid when they are loaded, flash attention is on, caches are
 * f32, f16, q8_0 or q4_0. Usage: run_llama MODEL.gguf THREADS BATCH CONTEXT CACHE VERSION */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "llama.h"

#ifdef OLD
#define VOCAB(model)   llama_n_vocab(model)
#define CLEAR(context) llama_kv_cache_clear(context)
#define FLASH(p)       ((p).flash_attn = true)
#define REPACK(p)      ((p).repack_tensors = true)
#else
#define VOCAB(model)   llama_vocab_n_tokens(llama_model_get_vocab(model))
#define CLEAR(context) llama_memory_clear(llama_get_memory(context), true)
#define FLASH(p)       ((p).flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED)
#define REPACK(p)      ((void)(p)) /* its default */
#endif

enum { PASS = 2048 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct engine {
    struct llama_context *context;
    struct llama_batch batch;
    int vocab;
    int *row_of; // of each sequence, its row in the pass, or -1
};

static int best(struct engine *e, int row)
{
    const float *x = llama_get_logits_ith(e->context, row);
    int top = 0;
    for (int i = 1; x && i < e->vocab; i++)
        if (x[i] > x[top])
            top = i;
    return x ? top : -1;
}

static void put(struct engine *e, int id, int position, int sequence, int last)
{
    struct llama_batch *b = &e->batch;
    b->token[b->n_tokens] = id;
    b->pos[b->n_tokens] = position;
    b->n_seq_id[b->n_tokens] = 1;
    b->seq_id[b->n_tokens][0] = sequence;
    b->logits[b->n_tokens] = (int8_t)last;
    e->row_of[sequence] = last ? b->n_tokens : -1;
    b->n_tokens++;
}

// Computes the tokens collected so far and appends the next token of each sequence whose last one was among them.
static int pass(struct engine *e, json_t *tokens, int sequences)
{
    int status = e->batch.n_tokens ? llama_decode(e->context, e->batch) : 0;
    for (int s = 0; s < sequences && !status; s++)
        if (e->row_of[s] >= 0)
            json_array_append_new(json_array_get(tokens, (size_t)s),
                                  json_integer(best(e, e->row_of[s])));
    for (int s = 0; s < sequences; s++)
        e->row_of[s] = -1;
    e->batch.n_tokens = 0;
    return status;
}

static int id_of(const json_t *row, size_t i)
{
    return (int)json_integer_value(json_array_get(row, i));
}

static json_t *generate(struct engine *e, const json_t *prompts, int new)
{
    int sequences = (int)json_array_size(prompts), status = 0;
    json_t *tokens = json_array();
    for (int s = 0; s < sequences; s++) {
        json_array_append_new(tokens, json_array());
        e->row_of[s] = -1;
    }
    CLEAR(e->context);
    double begin = now();
    for (int s = 0; s < sequences; s++) {
        const json_t *prompt = json_array_get(prompts, (size_t)s);
        size_t n = json_array_size(prompt);
        for (size_t i = 0; i < n && !status; i++) {
            put(e, id_of(prompt, i), (int)i, s, i + 1 == n);
            if (e->batch.n_tokens == PASS)
                status = pass(e, tokens, sequences);
        }
    }
    if (!status)
        status = pass(e, tokens, sequences);
    double first = now() - begin;
    for (int i = 1; i < new && !status; i++) {
        for (int s = 0; s < sequences; s++) {
            int position = (int)json_array_size(json_array_get(prompts, (size_t)s)) + i - 1;
            put(e, id_of(json_array_get(tokens, (size_t)s), (size_t)i - 1), position, s, 1);
        }
        status = pass(e, tokens, sequences);
    }
    double seconds = now() - begin;
    if (status) {
        json_decref(tokens);
        return json_pack("{s:o}", "error", json_sprintf("llama_decode: %d", status));
    }
    return json_pack("{s:o s:f s:f s:i}", "tokens", tokens, "seconds", seconds, "first", first, "after",
                     sequences * (new - 1));
}

static void quiet(enum ggml_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stderr);
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return fputs("run_llama MODEL.gguf THREADS BATCH CONTEXT CACHE VERSION\n", stderr), 2;
    FILE *out = fdopen(dup(1), "w");
    dup2(2, 1);
    int threads = atoi(argv[2]), sequences = atoi(argv[3]);
    llama_log_set(quiet, NULL);
    llama_backend_init();
    struct llama_model_params weights = llama_model_default_params();
    REPACK(weights);
    struct llama_model *model = llama_model_load_from_file(argv[1], weights);
    struct llama_context_params p = llama_context_default_params();
    p.n_ctx = (uint32_t)(sequences * atoi(argv[4]));
    p.n_batch = PASS;
    p.n_ubatch = 512;
    p.n_seq_max = (uint32_t)sequences;
    p.n_threads = p.n_threads_batch = threads;
    p.type_k = p.type_v = strcmp(argv[5], "f32") == 0    ? GGML_TYPE_F32
                          : strcmp(argv[5], "q8_0") == 0 ? GGML_TYPE_Q8_0
                          : strcmp(argv[5], "q4_0") == 0 ? GGML_TYPE_Q4_0
                                                         : GGML_TYPE_F16;
    FLASH(p);
    struct engine e = {.context = model ? llama_init_from_model(model, p) : NULL};
    if (!e.context)
        return fprintf(stderr, "run_llama: %s cannot be loaded\n", argv[1]), 1;
    e.batch = llama_batch_init(PASS, 0, 1);
    e.vocab = VOCAB(model);
    e.row_of = calloc((size_t)sequences, sizeof *e.row_of);
    fprintf(out, "{\"llama.cpp\": \"%s\"}\n", argv[6]);
    fflush(out);
    char *line = NULL;
    size_t size = 0;
    while (e.row_of && getline(&line, &size, stdin) > 0) {
        json_t *request = json_loads(line, 0, NULL), *prompts = json_object_get(request, "prompts");
        int fits = (int)json_array_size(prompts) <= sequences &&
                   json_integer_value(json_object_get(request, "beams")) <= 1;
        json_t *answer =
            fits ? generate(&e, prompts, (int)json_integer_value(json_object_get(request, "new")))
                 : json_pack("{s:s}", "error", "no beam search, or more sequences than -np");
        char *text = json_dumps(answer, JSON_COMPACT);
        fprintf(out, "%s\n", text);
        fflush(out);
        free(text);
        json_decref(answer);
        json_decref(request);
    }
    free(line);
    free(e.row_of);
    return 0;
}
