/* A model, open: its configuration, tokenizer and weights, in place in the mapped file. */
#ifndef BMC_MODEL_H
#define BMC_MODEL_H

#include "format/bmcfile.h"
#include "model/config.h"
#include "model/weights.h"
#include "text/tokenizer.h"

struct model {
    char *path;
    struct bmc_file file;
    struct config config;
    struct tokenizer *tok;
    struct weights weights;
};

/* Maps and checks the file; nothing is read but the header. */
int model_open(struct model **model, const char *path, struct err *err) MUST_USE;
void model_close(struct model *model);

/* Keeps the file's pages in memory. */
int model_lock(const struct model *model, struct err *err) MUST_USE;

bool model_is_eos(const struct model *model, uint32_t id);

/* Type of the large matrices. */
enum dtype model_weight_type(const struct model *model);

/* Elements of all distinct tensors. */
size_t model_parameters(const struct model *model);

#endif
