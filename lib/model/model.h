/* A model, open: its configuration, tokenizer and weights, in place in the mapped file. */
#ifndef BMC_MODEL_H
#define BMC_MODEL_H

#include "base/ranks.h"
#include "format/bmcfile.h"
#include "model/config.h"
#include "model/weights.h"
#include "text/chat.h"
#include "text/tokenizer.h"

struct model {
    char *path;
    struct bmc_file file;
    struct config config;
    struct tokenizer *tok;
    struct weights weights;
    struct ranks *ranks; /* that it is split over; NULL: this process has all */
    bool by_layers;      /* split so: this one has layers [first_layer, first_layer + n_layers) */
    size_t first_layer, n_layers;
    size_t most_layers; /* that one of the ranks has */
    void *synthetic;    /* weights in memory, not in a file */
    size_t synthetic_bytes;
};

/* Of a list of all types. */
enum { MODEL_TYPES_SIZE = 64 };

/* Maps and checks the file; nothing is read but the header. */
int model_open(struct model **model, const char *path, struct err *err) MUST_USE;
void model_close(struct model *model);

/* A model of that configuration in memory, with random weights as bmc-convert --synth makes them, and no
 * tokenizer. `name` is what reports call it. */
int model_synthesize(struct model **model, const struct config *config, const char *name,
                     enum dtype type, uint64_t seed, struct err *err) MUST_USE;

/* Keeps the file's pages in memory. */
int model_lock(const struct model *model, struct err *err) MUST_USE;

/* The chat format; an error where the model has none. The caller releases it. */
int model_chat(const struct model *model, struct chat *chat, struct err *err) MUST_USE;

bool model_is_eos(const struct model *model, uint32_t id);

/* Type of most bytes of the matrices that a step reads, and all their types, those of most bytes first: "q4k+q6k". */
enum dtype model_weight_type(const struct model *model);
void model_weight_types(const struct model *model, char text[MODEL_TYPES_SIZE]);

/* Some of its matrices are of few bits. */
bool model_few_bits(const struct model *model);

/* Elements of all distinct tensors. */
size_t model_parameters(const struct model *model);

/* Bytes of weights that a decode step must read: all matrices, with their scales, and vectors of the layers and the head;
 * of an embedding that is not the head, one row, left out, as is all padding. */
size_t model_step_bytes(const struct model *model);

/* Multiply-adds of a row through all matrices, attention left out. The head counts when `with_head`. */
size_t model_row_macs(const struct model *model, bool with_head);

#endif
