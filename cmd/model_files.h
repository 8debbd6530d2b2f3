/* Files of options that change a model: LoRA adapters, and lists of retrieval heads. */
#pragma once

#include "kv/kv_sensitivity.h"
#include "kv/offload/kv_streaming.h"
#include "model/model.h"
#include "opt/opt.h"

/* Adds the adapters of --lora, given[n], to the model: FILE, or FILE:FACTOR. */
int cli_open_adapters(struct model *model, char *const *given, size_t n, struct err *err) MUST_USE;

/* Reads the list of --retrieval-heads, for a model whose layers all have heads of their own and of one size. On error there is
 * nothing to release. */
int cli_open_heads(struct kv_streaming *heads, const char *path, const struct config *config,
                   struct err *err) MUST_USE;

/* The file beside the tuned profile where bmc-prof cache-types saves what types of KV entries cost the model; false: there
 * is no home folder, or the path is too long. */
bool cli_cache_types_path(const struct model *model, char *path, size_t size);

/* Chooses the types of layers for --cache-kld, "X" or "X:FILE", and says which on stderr unless `quiet`. The caller releases
 * *chosen, also after an error. */
int cli_choose_cache_types(struct kv_chosen_types *chosen, const char *text, const struct model *model,
                           const struct program *program, bool quiet, struct err *err) MUST_USE;
