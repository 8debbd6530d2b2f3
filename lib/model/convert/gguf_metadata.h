/* Metadata of GGUF files from a configuration: the tables that read them, in the other direction. */
#pragma once

#include "format/gguf/gguf_arch.h"
#include "model/convert/gguf_tensors.h"

/* Opens the model's family. */
int gguf_metadata_family(struct family *family, const struct gguf_out *out, struct err *err) MUST_USE;

/* The nth architecture that files of a family may have; NULL: there are no more. */
const struct gguf_arch *gguf_metadata_arch(const struct family *family, size_t nth);

/* Adds the vectors that are part of the configuration: factors of rotary frequencies. */
int gguf_metadata_vectors(struct gguf_tensors *tensors, const struct gguf_out *out,
                          struct err *err) MUST_USE;

/* Adds all keys. Those that have their usual value are left out unless the architecture needs them, or with
 * `all`. */
int gguf_metadata(struct gguf_values *values, const struct gguf_out *out, const struct gguf_arch *arch,
                  const struct family *family, bool all, struct err *err) MUST_USE;

/* Adds the keys tokenizer.* and general.sampling.*, of the model's vocabulary, chat templates and sampling defaults. Fails
 * for tokenizers that GGUF cannot express. */
int gguf_vocabulary(struct gguf_values *values, const struct gguf_out *out, struct err *err) MUST_USE;
