/* What a GGUF file says about its model, in the form of config.json and generation_config.json. */
#ifndef BMC_GGUF_CONFIG_H
#define BMC_GGUF_CONFIG_H

#include "format/gguf_arch.h"

/* `path` names the model in errors. The caller json_decref()s, after an error, too. */
int gguf_config(json_t **config, const struct gguf_arch *arch, const struct gguf_set *set,
                const char *path, struct err *err) MUST_USE;

int gguf_generation(json_t **generation, const struct gguf_set *set, struct err *err) MUST_USE;

#endif
