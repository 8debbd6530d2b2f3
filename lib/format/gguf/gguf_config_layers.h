/* Parts of the conversion of GGUF metadata to config.json (gguf_config.c) that read values of each layer. */
#pragma once

#include "format/gguf/gguf_arch.h"

struct config_job {
    const struct gguf_arch *arch;
    const struct gguf_set *set;
    const char *path;
    json_t *config;
    size_t layers; /* Gemma 4: entries of layer_types */
};

/* Sets value at each of the comma-separated paths of a JSON object, which takes over the reference. */
int gguf_config_put(json_t *object, const char *paths, json_t *value, struct err *err) MUST_USE;

/* The number at a key of the architecture, the first one of a list; `fallback`: there is none. */
int64_t gguf_config_integer(const struct config_job *job, const char *key, int64_t fallback);

/* The model's head_dim, or 0 if unknown. */
int64_t gguf_head_dim(const struct config_job *job);

/* Rotary dimensions of Step 3.5's layers with full attention, half of what files say. */
int64_t gguf_step_rotated(const struct config_job *job);

/* Completes the configuration of these architectures, and does nothing for others. */
int gguf_put_gemma3n(const struct config_job *job, struct err *err) MUST_USE;
int gguf_put_gemma4(struct config_job *job, struct err *err) MUST_USE;
int gguf_put_step(struct config_job *job, struct err *err) MUST_USE;
