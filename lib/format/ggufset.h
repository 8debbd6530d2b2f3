/* The file or files that make up one GGUF model: NAME.gguf, or NAME-00001-of-00003.gguf and the others, of which any may be
 * named. Values are those of the first. */
#ifndef BMC_GGUFSET_H
#define BMC_GGUFSET_H

#include "format/gguf.h"

struct gguf_set {
    struct gguf *part;
    size_t n_parts;
};

int gguf_set_open(struct gguf_set *set, const char *path, bool with_tensors, struct err *err) MUST_USE;
void gguf_set_release(struct gguf_set *set);

/* The tensor of that name in any of the parts, or NULL. */
const struct source_tensor *gguf_set_find(const struct gguf_set *set, const char *name);

#endif
