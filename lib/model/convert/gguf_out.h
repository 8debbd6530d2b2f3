/* Writes a planned conversion as a GGUF file in place of model.bmc. */
#pragma once

#include "format/bmc/bmcfile.h"
#include "base/mem.h"
#include "format/source.h"
#include "model/config.h"
#include "model/weight_kinds.h"

/* What a source of weights says of a model, as model.bmc has it. */
struct model_texts {
    struct buf config, tokenizer, chat;
};

struct gguf_out {
    const struct bmc_plan *plan; /* texts, tensors, and their rows */
    const struct config *config;
    const char *models_dir;
    const struct weight_source *source; /* where the weights are from; its format is NULL: elsewhere */
    const char *name;                   /* of the source, for errors */
    const char *certificate; /* lines "quality_KEY VALUE" that become bmc.quality_KEY; or NULL */
    bool dry_run;            /* nothing is written */
    size_t *size;            /* receives the size of the file; may be NULL */
    /* Reads the texts of a source; the caller releases them. */
    int (*read_texts)(void *arg, struct weight_source *source, struct model_texts *texts,
                      struct err *err);
    void *arg;
};

/* Finds the weight kinds that are one tensor in GGUF files of the model's family: first[i], of n_weight_kinds, receives
 * the first kind of the tensor that weight_kinds[i] is in. Unknown families have no such tensors. */
int gguf_out_fused(const char *models_dir, const struct config *config,
                   const struct weight_kind **first, struct err *err) MUST_USE;

/* Writes the file atomically. Tensors keep the types of the plan, and have the names and the order of rows that the
 * model's architecture has in GGUF files, by the tables that read them (format/gguf). Metadata of a GGUF file are
 * copied, and so are its tensors that the plan does not use; others are made of the configuration, and the
 * file is refused if reading it would give another one. */
int gguf_out_write(const struct gguf_out *out, const char *path, struct err *err) MUST_USE;
