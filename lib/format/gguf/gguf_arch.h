/* GGUF's names of architectures and of their tensors. */
#ifndef BMC_GGUF_ARCH_H
#define BMC_GGUF_ARCH_H

#include "format/gguf/gguf_split.h"

struct gguf_arch {
    const char *name;         /* general.architecture */
    const char *architecture; /* name in config.json */
    bool partial;             /* supports partial rotary dimensions */
};

/* Finds a model's architecture; the error lists the known ones. `path` is used in errors. */
int gguf_arch_find(const struct gguf_arch **arch, const struct gguf_set *set, const char *path,
                   struct err *err) MUST_USE;

/* True if a blank-separated list contains the architecture's name. */
bool gguf_arch_listed(const struct gguf_arch *arch, const char *list);

/* The value of "ARCHITECTURE.key", or NULL. */
const struct gguf_value *gguf_arch_value(const struct gguf_arch *arch, const struct gguf_set *set,
                                         const char *key);

/* The text after the kind in the nth `tensor` line (bmc-family(5)) of a weight kind; false if
 * there is none. */
bool gguf_tensor_line(const struct gguf_arch *arch, const char *kind, size_t nth, char *line,
                      size_t size);

#endif
