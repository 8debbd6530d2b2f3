/* libbmc: LLM inference on CPUs. See bmc(3).
 *
 *    #include <bmc.h>
 *    cc program.c $(pkg-config --cflags --libs bmc)
 *
 * Functions that can fail return 0, or one of the negative codes of enum bmc_status with one
 * sentence in `error`, which may be NULL. Nothing here prints, exits or reads the environment.
 * Threads may share a model; everything else belongs to one thread at a time.
 *
 * Structures of options begin with their size, so that later versions of the library can add
 * members: set it to sizeof and the other members to zero, which always means the default. */
#ifndef BMC_H
#define BMC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* The library's version, as "0.1.0"; and the compiler and the flags that it was built with. */
const char *bmc_version(void);
const char *bmc_build(void);

/* ---- errors ---- */

enum bmc_status {
    BMC_OK = 0,
    BMC_FAILED = -1,    /* any other reason */
    BMC_INVALID = -2,   /* an argument is wrong, such as an unknown name or token id */
    BMC_NO_MEMORY = -3, /* out of memory */
    BMC_BAD_FILE = -4,  /* a file cannot be read or written, is damaged or does not fit the model */
    BMC_FULL = -5,      /* the tokens do not fit in the context */
};

/* The sentence of an error; unchanged by functions that succeed. */
struct bmc_error {
    char text[512];
};

/* ---- models ---- */

/* A memory-mapped model file. Opening reads its header only; processes share its pages. */
struct bmc_model;

int bmc_model_open(struct bmc_model **model, const char *path, struct bmc_error *error);
void bmc_model_close(struct bmc_model *model); /* NULL is accepted */

size_t bmc_model_vocab(const struct bmc_model *model);   /* number of logits */
size_t bmc_model_context(const struct bmc_model *model); /* context length, in tokens */
size_t bmc_model_hidden(const struct bmc_model *model);  /* elements of a hidden state */

/* True for tokens that end a text (EOS). */
int bmc_is_eog(const struct bmc_model *model, uint32_t id);

/* ---- tokens ---- */

/* Token ids of `len` bytes of UTF-8 text, with BOS and EOS as the model's own tokenizer adds
 * them; special tokens spelled in the text are parsed. *ids is allocated with malloc(), the caller
 * frees it. */
int bmc_tokenize(const struct bmc_model *model, const char *text, size_t len, uint32_t **ids,
                 size_t *n_ids, struct bmc_error *error);

enum bmc_tokenize_flags {
    BMC_NO_SPECIAL = 1, /* without BOS and EOS */
    BMC_PLAIN = 2,      /* special tokens spelled in the text are plain text */
};

/* bmc_tokenize() with flags. */
int bmc_tokenize_flags(const struct bmc_model *model, const char *text, size_t len, unsigned flags,
                       uint32_t **ids, size_t *n_ids, struct bmc_error *error);

/* The text of token ids, allocated with malloc() and zero-terminated; the caller frees it. Special
 * tokens have no text, incomplete characters become U+FFFD. */
int bmc_detokenize(const struct bmc_model *model, const uint32_t *ids, size_t n_ids, char **text,
                   struct bmc_error *error);

/* ---- contexts ---- */

/* The KV cache of one or more sequences and the buffers of forward passes. */
struct bmc_context;

/* Names are those of the options of bmc-gen(1); NULL is the default there. */
struct bmc_options {
    size_t size;            /* sizeof(struct bmc_options) */
    size_t context;         /* maximum tokens per sequence; 0: the model's, at most 4096 */
    size_t sequences;       /* number of sequences; 0: one */
    int threads;            /* of decoding; 0: one per core in the process's CPU affinity */
    int threads_batch;      /* of prompts; 0: as `threads` */
    const char *kv;         /* cache policy, as "bmc" or "paged:32" */
    const char *cache_type; /* element type of the cache */
    const char *attn;       /* attention kernels */
    const char *kernels;    /* instruction set, as of --isa */
    const char *precision;  /* precision of products */
    size_t chunk;           /* maximum tokens of a forward pass over prompts; 0: 512 */
    int hidden_states;      /* not 0: bmc_eval() can return hidden states */
};

/* Creates a context. `options` may be NULL: all defaults. The model must outlive the context. On
 * error *context is NULL. */
int bmc_context_open(struct bmc_context **context, const struct bmc_model *model,
                     const struct bmc_options *options, struct bmc_error *error);
void bmc_context_close(struct bmc_context *context); /* NULL is accepted */

size_t bmc_context_size(const struct bmc_context *context);      /* maximum tokens per sequence */
size_t bmc_context_sequences(const struct bmc_context *context); /* number of sequences */

/* ---- sequences: those of a context have the indices 0 to sequences - 1 ---- */

/* New tokens of a sequence, and what bmc_eval() returns of them. */
struct bmc_input {
    size_t size;         /* sizeof(struct bmc_input) */
    size_t sequence;     /* each at most once per call */
    const uint32_t *ids; /* [n_ids]: tokens to append, at least one */
    size_t n_ids;
    size_t n_outputs;        /* tokens whose outputs are wanted; 0: none */
    const size_t *output_at; /* [n_outputs]: their indices in `ids`, ascending; NULL: the last ones */
    float *logits; /* [n_outputs][vocab], written: logits of the tokens that follow; or NULL */
    float *hidden; /* [n_outputs][hidden], written: states after the final norm; or NULL */
};

/* Appends tokens to sequences, any number to each, and computes the requested outputs. Outputs do not
 * depend on the other sequences, nor on how the tokens are divided among calls.
 *
 * On error all sequences are as they were before. Exceptions, where earlier states are not kept:
 * a sequence is empty if the rolling cache (policy shift) has evicted some of its entries. */
int bmc_eval(struct bmc_context *context, const struct bmc_input *inputs, size_t n,
             struct bmc_error *error);

/* Tokens in a sequence; 0 for an index out of range. */
size_t bmc_length(const struct bmc_context *context, size_t sequence);

/* The ids of these tokens, valid until the sequence changes; NULL for an empty one. */
const uint32_t *bmc_tokens(const struct bmc_context *context, size_t sequence);

/* Empties a sequence and announces how many tokens it will have: of some models the rotary
 * frequencies depend on that (RoPE scaling by length). Without this call it is the context. */
int bmc_begin(struct bmc_context *context, size_t sequence, size_t length, struct bmc_error *error);

/* Truncates a sequence to its first `n` tokens, if it has more, and returns the number that remains;
 * 0 frees its cache. Fewer than `n` remain in models with recurrent state, which is kept at few
 * positions, and none if the rolling cache has evicted entries: evaluate the others again. */
size_t bmc_truncate(struct bmc_context *context, size_t sequence, size_t n);

/* Replaces sequence `to` by the first `n` tokens of `from`, or fewer as for bmc_truncate(); sets
 * *forked, unless that is NULL, to the number. Cache policies that can share memory do so. On error
 * `to` is empty and `from` unchanged. */
int bmc_fork(struct bmc_context *context, size_t to, size_t from, size_t n, size_t *forked,
             struct bmc_error *error);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif
