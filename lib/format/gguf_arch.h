/* What the architectures are called in GGUF files, and their tensors. */
#ifndef BMC_GGUF_ARCH_H
#define BMC_GGUF_ARCH_H

#include "format/ggufset.h"

struct gguf_arch {
    const char *name;         /* general.architecture */
    const char *architecture; /* of config.json */
    bool partial; /* its configuration says how much of a head turns; others turn whole heads */
};

/* That of a model; the error says which are known. `path` names it. */
int gguf_arch_find(const struct gguf_arch **arch, const struct gguf_set *set, const char *path,
                   struct err *err) MUST_USE;

/* True when its name is one of a list, with blanks between them. */
bool gguf_arch_listed(const struct gguf_arch *arch, const char *list);

/* The nth text that follows the role in `tensor` lines of bmc-family(5); false: there is none. */
bool gguf_tensor_line(const struct gguf_arch *arch, const char *role, size_t nth, char *line,
                      size_t size);

#endif
