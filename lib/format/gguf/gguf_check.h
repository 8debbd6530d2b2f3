/* Rejects GGUF files that are not models, lack required keys, or have unsupported features. */
#ifndef BMC_GGUF_CHECK_H
#define BMC_GGUF_CHECK_H

#include "format/gguf/gguf_arch.h"

/* Fails for files of other kinds: adapters, importance matrices, projectors, vocabularies. */
int gguf_check_kind(const struct gguf_set *set, const char *path, struct err *err) MUST_USE;

/* Fails if a required key is missing, or a key requests an unsupported feature. */
int gguf_check_values(const struct gguf_arch *arch, const struct gguf_set *set, const char *path,
                      struct err *err) MUST_USE;

#endif
