/* GGUF metadata in the form of config.json and generation_config.json. */
#ifndef BMC_GGUF_CONFIG_H
#define BMC_GGUF_CONFIG_H

#include "format/gguf/gguf_arch.h"

/* Makes the equivalent of config.json; `path` is used in errors. The caller must json_decref()
 * *config, even after an error. */
int gguf_config(json_t **config, const struct gguf_arch *arch, const struct gguf_set *set,
                const char *path, struct err *err) MUST_USE;

/* Makes the equivalent of generation_config.json, which has the EOS ids and sampling defaults. */
int gguf_generation(json_t **generation, const struct gguf_set *set, struct err *err) MUST_USE;

#endif
