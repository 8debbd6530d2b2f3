/* The tokenizer models, which encode pre-tokens. */
#ifndef BMC_TOK_MODEL_H
#define BMC_TOK_MODEL_H

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/spm.h"
#include "text/tokenizer/unigram.h"

/* Scratch memory of a model's encode(), reused for all pre-tokens; to be initialised with zeros. */
union tok_scratch {
    struct bpe bpe;
    struct spm spm;
    struct unigram unigram;
};

/* A tokenizer model. To add one: a kind in tok_tables.h with its sections, a file with these two
 * functions, a row in tok_model.c, and a reader in tok_build.c. */
struct tok_model {
    const char *name; /* "type" in tokenizer.json */

    /* Appends the ids of a pre-token; `scratch` is the model's member of union tok_scratch. */
    int (*encode)(const struct tokenizer *tok, void *scratch, const char *pretoken, size_t len,
                  struct ids *ids, struct err *err);
    void (*release)(void *scratch);
};

extern const struct tok_model tok_models[KIND_COUNT];

#endif
