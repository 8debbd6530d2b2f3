/* libbmc: text from a language model, on CPUs.
 *
 *   #include <bmc.h>
 *   cc program.c $(pkg-config --cflags --libs bmc)
 *
 * Functions that can fail return 0, or -1 after filling `error` with one sentence. Nothing here prints,
 * exits or reads the environment. A model may be shared by threads; a context belongs to one thread at
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

/* A model file, mapped: opening reads its header only, and processes share its pages. */
struct bmc_model;

int bmc_model_open(struct bmc_model **model, const char *path, struct bmc_error *error);
void bmc_model_close(struct bmc_model *model); /* NULL is accepted */

size_t bmc_model_vocab(const struct bmc_model *model);
size_t bmc_model_context(const struct bmc_model *model);
int bmc_model_is_end(const struct bmc_model *model, uint32_t id); /* an end-of-text token */

/* Ids of `len` bytes of UTF-8 text, with the start token that the model's files ask for. *ids is
 * malloc'ed: the caller frees it. */
int bmc_tokenize(const struct bmc_model *model, const char *text, size_t len, uint32_t **ids,
                 size_t *n_ids, struct bmc_error *error);

/* Text of ids, malloc'ed and ended by a zero byte: the caller frees it. */
int bmc_detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                   struct bmc_error *error);

/* A cache for sequences of one model, and the buffers of its steps. */
struct bmc_context;

struct bmc_options {
    size_t context;   /* N: rows per sequence; 0: the model's, at most 4096 */
    size_t sequences; /* 0: 1 */
    int threads;      /* 0: all cores that the process may use */
    const char *kv;   /* cache policy as bmc-gen --kv spells it; NULL: bmc */
};

/* `options` may be NULL. The model must stay open. */
int bmc_context_open(struct bmc_context **context, const struct bmc_model *model,
                     const struct bmc_options *options, struct bmc_error *error);
void bmc_context_close(struct bmc_context *context); /* NULL is accepted */

/* Feeds the next `n` tokens of a sequence and gives the logits that follow the last of them, [vocab]
 * floats that stay valid until the next call. logits may be NULL. */
int bmc_feed(struct bmc_context *context, size_t sequence, const uint32_t *ids, size_t n,
             const float **logits, struct bmc_error *error);

/* Tokens fed to a sequence so far; 0 for one that is not there. */
size_t bmc_fed(const struct bmc_context *context, size_t sequence);

/* Cuts a sequence to its first `n` tokens, if it has more; 0 gives its memory back. One of which rows were dropped (policy
 * shift) is emptied: bmc_fed() tells. */
void bmc_cut(struct bmc_context *context, size_t sequence, size_t n);

#ifdef __cplusplus
}
#endif

#endif
