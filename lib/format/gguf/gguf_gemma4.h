/* GGUF metadata of Gemma 4 in the form of config.json. */
#ifndef BMC_GGUF_GEMMA4_H
#define BMC_GGUF_GEMMA4_H

#include <jansson.h>

#include "format/gguf/gguf_arch.h"

/* Completes `config`: sizes of heads and KV heads of both kinds of layers, rotation, shared keys and values,
 * inputs of layers and experts. Does nothing for other architectures. */
int gguf_gemma4(json_t *config, const struct gguf_arch *arch, const struct gguf_set *set,
                const char *path, struct err *err) MUST_USE;

#endif
