/* Conversion to model.bmc: from a Hugging Face folder, a GGUF file or a model.bmc, or synthetic from a shape. */
#pragma once

#include "format/gguf/block_types.h"
#include "format/bmc/bmcfile.h"
#include "model/config.h"
#include "model/convert/tensor_types.h"
#include "model/convert/imatrix_weights.h"

/* Statistics of the source's quantised tensors that are transcoded losslessly to `stored`. */
struct transcoded_type {
    enum dtype stored;
    size_t tensors, weights;
    size_t source_bytes, stored_bytes; /* padding included */
};

/* What became of the source's chat template. */
struct chat_report {
    bool no_format;     /* it has one, but it is not stored, and no format replaces it */
    struct err refused; /* why the template is not stored; empty: it is, or there is none */
    struct err others;  /* why one of its other templates is not stored; empty: all are */
    struct err ignored; /* about a sampling default that is not used; empty: all are */
};

/* What a user should know about a conversion that succeeded; empty texts: nothing. */
struct convert_notes {
    struct err left_out; /* tensors beside the language model */
    struct err head; /* there is no LM head, or the configuration and the weights disagree about it */
    struct err pooling;     /* embeddings are declared to be made in a way that is not supported */
    struct err requantized; /* quantised matrices are quantised again */
    struct err kept; /* quantised matrices keep a type that takes fewer bytes than the asked one */
    struct err dequantized; /* quantised matrices whose values no quantised type holds */
    struct err unrounded;   /* inputs of products that are rounded: a GGUF file does not say so */
    struct err replaced;    /* types with blocks of 256 weights do not fit rows of other widths */
    struct err prompts;     /* texts are to be embedded behind prompts */
    struct err draft, chat; /* a GGUF file is written without the draft head, or the chat format */
};

/* A tensor that is written; the model's tied LM head is none. */
struct planned_tensor {
    const char *prefix, *name;
    const char *source; /* its type in the source, as GGUF calls it; NULL: random weights */
    enum dtype type;
    const size_t *shape;
    size_t n_dims, bytes; /* in a .bmc model padding included */
};

struct convert_options {
    const char *models_dir;
    const char *family; /* path of a .family file; NULL: found by architecture */
    struct tensor_types types;
    const struct imatrix_weights *imatrix_weights; /* NULL: unweighted quantisation errors */
    /* they are, in a dry run would be, of random tokens: mixtures are those of models without an importance matrix */
    bool calibrated;
    /* chat format, name or path; NULL: detected from the chat template */
    const char *chat;
    struct chat_report *chat_report;    /* may be NULL */
    struct convert_notes *notes;        /* may be NULL */
    struct transcoded_type *transcoded; /* counters [SOURCE_OTHER] by source type, or NULL */
    bool dry_run;                       /* nothing is written, of a file that is planned in full */
    /* each planned tensor is passed to this, before any is written; may be NULL */
    int (*planned)(void *arg, const struct planned_tensor *tensor, struct err *err);
    void *planned_arg;
    /* receives the size of the file, of a .bmc model before `planned` is called; may be NULL */
    size_t *size;
    /* lines "quality_KEY VALUE" of what was measured, to keep with it; or NULL */
    const char *certificate;
    bool no_bos;            /* the tokenizer adds no BOS */
    bool private;           /* a .bmc model is readable by the user only */
    bmc_progress *progress; /* may be NULL */
    void *arg;
};

/* True for the name of a GGUF file, in any case; a conversion to any other name makes a model.bmc, as one without a
 * name (NULL). */
bool convert_makes_gguf(const char *out_path);

/* Converts `folder`, a Hugging Face folder, a GGUF file or a model.bmc, to the file `out_path`. It is an error
 * if weights are, or become, NaN or infinite. */
int convert_folder(const char *folder, const char *out_path, const struct convert_options *options,
                   struct hash *model_id, struct err *err) MUST_USE;

/* Writes a model of a shape with random weights: matrices N(0, 0.02), norm gains 1, biases 0;
 * element i of tensor t depends only on (seed, t, i). The tokenizer and eos ids come from
 * `tokenizer_folder`, and the vocabulary grows to its size if needed; NULL: one token per byte.
 * Type DTYPE_COUNT means bf16. */
int convert_synth(const char *shape, const char *tokenizer_folder, uint64_t seed, const char *out_path,
                  const struct convert_options *options, struct hash *model_id,
                  struct err *err) MUST_USE;
