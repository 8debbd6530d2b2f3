/* Chooses the type of each tensor in a conversion. */
#pragma once

#include "base/err.h"
#include "model/convert/type_mixtures.h"

/* Options that choose types; DTYPE_COUNT stands for the tensor's type in the source. */
struct tensor_types {
    enum dtype type;
    const struct type_mixture *mixture; /* NULL: every matrix has `type`, but for routers */
    bool leave_output_tensor;           /* the LM head (or tied embedding) keeps the source's type */
    char *const *tensor_type;           /* [n_tensor_types] "PATTERN=TYPE"; the last match wins */
    size_t n_tensor_types;
};

/* The name of the i-th type that tensors can be converted to, the first being "auto"; NULL after the
 * last. */
const char *importable_type_name(size_t i);

/* The i-th choice of types for a whole model: an importable type, or a mixture of several such as
 * "q4_k_m". The name is NULL after the last. */
struct tensor_types model_types(size_t i);
const char *model_types_name(size_t i);

/* The i-th choice of types for random weights, and its name: every type, for all matrices but routers, then mixtures
 * that are not called like a type. The name is NULL after the last. */
struct tensor_types random_types(size_t i);
const char *random_types_name(size_t i);

/* The type of a tensor of a model with random weights. */
enum dtype tensor_types_random(const struct tensor_types *types, const struct config *config,
                               const struct weight_kind *kind, size_t layer);

/* The name of a choice that is spelled otherwise: in capitals, as in earlier versions, or, as in llama.cpp, q4_k for
 * q4_k_m. NULL: there is none. */
const char *model_types_find(const char *text);

/* Parses "PATTERN=TYPE"; false on a syntax error or an unsupported type. */
bool tensor_types_parse(const char *text, char pattern[WEIGHT_NAME_SIZE], enum dtype *type);

/* Fails unless every pattern in tensor_type[] is valid and matches a matrix of the model, or of its
 * draft head (NULL: none), whose names begin with DRAFT_PREFIX. */
int tensor_types_check(const struct tensor_types *types, const struct config *config,
                       const struct config *draft, struct err *err) MUST_USE;

/* Chooses the type of a tensor by its name and its matrix. Vectors are f32. */
enum dtype tensor_types_choose(const struct tensor_types *types, const struct typed_matrix *matrix,
                               const char *name);
