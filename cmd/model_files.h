/* Files of options that change a model: LoRA adapters, and lists of retrieval heads. */
#pragma once

#include "kv/offload/kv_streaming.h"
#include "model/model.h"

/* Adds the adapters of --lora, given[n], to the model: FILE, or FILE:FACTOR. */
int cli_open_adapters(struct model *model, char *const *given, size_t n, struct err *err) MUST_USE;

/* Reads the list of --retrieval-heads, for a model whose layers all have heads of their own and of one size. On error there is
 * nothing to release. */
int cli_open_heads(struct kv_streaming *heads, const char *path, const struct config *config,
                   struct err *err) MUST_USE;
