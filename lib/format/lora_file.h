/* A LoRA adapter: for each adapted linear layer a pair of matrices A and B, whose product, scaled, is
 * added to the layer's weights. Read from a folder as PEFT writes it (adapter_config.json and
 * adapter_model.safetensors) or from a GGUF file of general.type "adapter". */
#pragma once

#include "base/hash.h"
#include "format/gguf/gguf_arch.h"
#include "format/tensorfile.h"

/* An adapted linear layer: y += scale B (A x). */
struct lora_module {
    char *name; /* the layer's tensor in a model of the same format, without ".weight" */
    const struct source_tensor *a, *b; /* [rank][in], [out][rank] */
    size_t rank;
    double scale;
};

struct lora_file {
    struct tensor_file weights; /* PEFT: empty if it is a GGUF file */
    struct gguf gguf;
    const struct gguf_arch *arch; /* names and layout of GGUF tensors; NULL: PEFT */
    struct lora_module *module;   /* sorted by name */
    size_t n_modules;
    char *base_class; /* PEFT: the architecture of the model that it was made for; NULL: unknown */
    struct hash hash; /* of the contents */
};

/* Opens an adapter: a GGUF file, a PEFT folder, or the safetensors file in one. Checks that every
 * tensor belongs to a pair with matching ranks; sizes are compared with a model later. After an error
 * nothing needs releasing. */
int lora_file_open(struct lora_file *file, const char *path, struct err *err) MUST_USE;

/* The same for contents in memory, which are borrowed and called `name` in errors: a GGUF file, or a
 * safetensors file with its configuration. */
int lora_parse_gguf(struct lora_file *file, const void *data, size_t size, const char *name,
                    struct err *err) MUST_USE;
int lora_parse_peft(struct lora_file *file, const void *data, size_t size, const char *config,
                    size_t config_size, const char *name, struct err *err) MUST_USE;

/* A zeroed struct is accepted. */
void lora_file_release(struct lora_file *file);
