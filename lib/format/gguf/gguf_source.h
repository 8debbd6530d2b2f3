/* What a GGUF file that is a source of weights has beside them, and the names of tensors without a file. */
#pragma once

#include "format/gguf/gguf_arch.h"
#include "format/source.h"

/* The (first) file of a source; NULL: it is of another format. */
const struct gguf *gguf_of_source(const struct weight_source *source);

/* Opens a source that has nothing but the names of an architecture's tensors. */
int gguf_names_open(struct weight_source *source, const struct gguf_arch *arch,
                    struct err *err) MUST_USE;

/* Opens a file of `size` bytes of which only the beginning, up to the data of tensors that configurations are
 * derived from, is in memory: no other data is read. `name` is used in errors, `head` is borrowed. The caller must weight_source_close() the
 * source, even after an error. */
int gguf_image_open(struct weight_source *source, const void *head, size_t size, const char *name,
                    struct err *err) MUST_USE;
