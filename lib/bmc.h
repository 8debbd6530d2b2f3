/* libbmc: LLM inference on CPUs.
 *
 *    #include <bmc.h>
 *    cc program.c $(pkg-config --cflags --libs bmc)
 *
 * Functions that can fail return 0, or -1 with one sentence in `error`. Nothing here prints,
 * exits or reads the environment. Threads may share a model; a context belongs to one thread at
 * a time. */
#ifndef BMC_H
#define BMC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bmc_error {
    char text[512];
};

/* A memory-mapped model file. Opening reads its header only; processes share its pages. */
struct bmc_model;

int bmc_model_open(struct bmc_model **model, const char *path, struct bmc_error *error);
void bmc_model_close(struct bmc_model *model); /* NULL is accepted */

size_t bmc_model_vocab(const struct bmc_model *model);
size_t bmc_model_context(const struct bmc_model *model);
int bmc_model_is_end(const struct bmc_model *model, uint32_t id); /* true for an EOS token */

/* Token ids of `len` bytes of UTF-8 text, with BOS and EOS as the model's own tokenizer adds
 * them. *ids is malloc'ed; the caller frees it. */
int bmc_tokenize(const struct bmc_model *model, const char *text, size_t len, uint32_t **ids,
                 size_t *n_ids, struct bmc_error *error);

/* The text of token ids, malloc'ed and zero-terminated; the caller frees it. */
int bmc_detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                   struct bmc_error *error);

/* The KV cache of one or more sequences and the buffers of the forward pass. */
struct bmc_context;

struct bmc_options {
    size_t context;   /* maximum tokens per sequence; 0: the model's context length, at most 4096 */
    size_t sequences; /* number of sequences; 0: one */
    int threads;      /* 0: one per core in the process's CPU affinity */
    const char *kv;   /* KV cache policy, as in bmc-gen --kv; NULL: "bmc" */
};

/* Creates a context. `options` may be NULL: all defaults. The model must outlive the context. */
int bmc_context_open(struct bmc_context **context, const struct bmc_model *model,
                     const struct bmc_options *options, struct bmc_error *error);
void bmc_context_close(struct bmc_context *context); /* NULL is accepted */

/* Appends `n` tokens to a sequence and computes the logits after the last of them: [vocab]
 * floats, valid until the next call on this context. `logits` may be NULL. */
int bmc_feed(struct bmc_context *context, size_t sequence, const uint32_t *ids, size_t n,
             const float **logits, struct bmc_error *error);

/* Tokens in a sequence; 0 for an index out of range. */
size_t bmc_fed(const struct bmc_context *context, size_t sequence);

/* Truncates a sequence to its first `n` tokens, if it has more; 0 frees its cache. A rolling
 * cache (policy shift) that has evicted KV entries is emptied instead: bmc_fed() then returns 0. Of
 * models with recurrent state fewer tokens may remain, as many as bmc_fed() returns: feed the others
 * again. */
void bmc_cut(struct bmc_context *context, size_t sequence, size_t n);

#ifdef __cplusplus
}
#endif

#endif
