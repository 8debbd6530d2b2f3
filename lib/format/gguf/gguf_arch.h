/* GGUF's names of architectures and of their tensors. */
#pragma once

#include "format/gguf/gguf.h"

struct gguf_arch {
    const char *name;         /* general.architecture */
    const char *architecture; /* name in config.json */
    bool partial;             /* RoPE may cover only part of head_dim */
};

/* Finds a model's architecture; the error lists the known ones. `path` is used in errors. */
int gguf_arch_find(const struct gguf_arch **arch, const struct gguf_set *set, const char *path,
                   struct err *err) MUST_USE;

/* True if the blank-separated `list` contains the architecture's name. */
bool gguf_arch_listed(const struct gguf_arch *arch, const char *list);

/* True if models of an architecture, by its name in config.json, have this one in GGUF files. */
bool gguf_arch_has(const struct gguf_arch *arch, const char *architecture);

/* The nth architecture that models of another, by its name in config.json, have in GGUF files; NULL: there are no more. */
const struct gguf_arch *gguf_arch_of(const char *architecture, size_t nth);

/* The metadata value of "ARCHITECTURE.key" ("llama.block_count"), or NULL. */
const struct gguf_value *gguf_arch_value(const struct gguf_arch *arch, const struct gguf_set *set,
                                         const char *key);

/* Writes the GGUF tensor name for a weight kind ("layer.q.weight") to `line`, as a `tensor` line of
 * bmc-family(5) has it after the kind. `nth` counts alternative names; false after the last. */
bool gguf_tensor_line(const struct gguf_arch *arch, const char *kind, size_t nth, char *line,
                      size_t size);
