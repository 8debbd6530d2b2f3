/* The vocabulary, chat templates and sampling defaults of a model as metadata of GGUF. */
#pragma once

#include "format/gguf/gguf_write.h"
#include "model/convert/gguf_out.h"

/* Adds the keys tokenizer.* and general.sampling.*. Fails for tokenizers that GGUF cannot express. */
int gguf_vocabulary(struct gguf_values *values, const struct gguf_out *out, struct err *err) MUST_USE;
