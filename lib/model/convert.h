/* Making model.bmc: from a Hugging Face folder or a GGUF file, or with random weights from a shape. */
#ifndef BMC_CONVERT_H
#define BMC_CONVERT_H

#include "format/block_types.h"
#include "format/bmcfile.h"
#include "model/config.h"
#include "model/types_wanted.h"
#include "model/weighing.h"

/* The tensors of a quantised type of the source that are stored without a change of their values, and in what. */
struct held_type {
    enum dtype stored;
    size_t tensors, weights;
    size_t source_bytes, stored_bytes; /* padding included */
};

struct convert_options {
    const char *models_dir; /* holds families/ and shapes/ */
    const char *family;     /* a .family file to use, or NULL: found by architecture */
    struct types_wanted types;
    const struct weighing *weighing; /* NULL: rounding weighs all inputs the same */
    const char *chat;       /* name or path of the chat format; NULL: found by the source's template */
    bool *template_unknown; /* may be NULL; set to whether no format is like that template */
    struct held_type *held; /* [SOURCE_OTHER], added to; may be NULL */
    bool no_start;          /* the tokenizer puts no start tokens in front of texts */
    bmc_progress *progress; /* may be NULL */
    void *arg;
};

/* Converts `folder` to `out_path`. Weights that are NaN or infinite, or become so, are refused. */
int convert_folder(const char *folder, const char *out_path, const struct convert_options *options,
                   struct hash *model_id, struct err *err) MUST_USE;

/* Writes a model of a known shape whose matrices are N(0, 0.02), gains 1 and biases 0. Element i of
 * tensor t depends on (seed, t, i) only. `tokenizer_folder` gives the tokenizer and the end ids, as
 * far as it says them, NULL one token per byte; where it has more tokens than the shape, the vocabulary becomes as large.
 * Type DTYPE_COUNT means bf16. */
int convert_synth(const char *shape, const char *tokenizer_folder, uint64_t seed, const char *out_path,
                  const struct convert_options *options, struct hash *model_id,
                  struct err *err) MUST_USE;

#endif
