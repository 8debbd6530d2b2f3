/* What a GGUF file says that would change results and is not read, or lacks and is needed. */
#ifndef BMC_GGUF_CHECK_H
#define BMC_GGUF_CHECK_H

#include "format/gguf_arch.h"

/* Refuses files that hold something else than a model. */
int gguf_check_kind(const struct gguf_set *set, const char *path, struct err *err) MUST_USE;

/* Refuses a model that lacks a value, or has one that nothing here follows. */
int gguf_check_values(const struct gguf_arch *arch, const struct gguf_set *set, const char *path,
                      struct err *err) MUST_USE;

#endif
