/* All files of a GGUF model, found by any of them: NAME.gguf, or NAME-00001-of-00003.gguf etc.
 * Metadata comes from the first file. */
#ifndef BMC_GGUF_SPLIT_H
#define BMC_GGUF_SPLIT_H

#include "format/gguf/gguf.h"

struct gguf_set {
    struct gguf *file;
    size_t n_files;
};

int gguf_set_open(struct gguf_set *set, const char *path, bool with_tensors, struct err *err) MUST_USE;
void gguf_set_release(struct gguf_set *set);

/* The tensor of that name in any of the files, or NULL. */
const struct source_tensor *gguf_set_find(const struct gguf_set *set, const char *name);

#endif
