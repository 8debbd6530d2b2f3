/* The models that turn a piece of text into ids. */
#ifndef BMC_TOK_MODEL_H
#define BMC_TOK_MODEL_H

#include "text/bpe.h"
#include "text/spm.h"
#include "text/unigram.h"

/* What an encode keeps from piece to piece. Zero-initialised is empty. */
union tok_room {
    struct bpe bpe;
    struct spm spm;
    struct unigram unigram;
};

/* To add a model: a kind in tok_tables.h with its sections, a file with these two functions, a row in
 * tok_model.c, and what reads its files in tok_build.c. */
struct tok_model {
    const char *name; /* "type" in tokenizer.json */

    /* Appends the ids of a piece; `room` is the model's member of a union tok_room. */
    int (*encode)(const struct tokenizer *tok, void *room, const char *piece, size_t len,
                  struct ids *ids, struct err *err);
    void (*release)(void *room);
};

extern const struct tok_model tok_models[KIND_COUNT];

#endif
