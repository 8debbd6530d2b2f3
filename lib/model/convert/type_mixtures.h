/* Mixtures: choices of types for the matrices of a whole model, by the names that they have in llama.cpp, such as
 * q4_k_m. One table of rules has the types that differ from the mixture's base type. */
#pragma once

#include "model/weight_kinds.h"

struct type_mixture {
    const char *name;
    enum dtype base; /* the type of matrices that no rule names, and of all with --pure */
};

/* The i-th mixture, in the order in which help lists them; NULL after the last. */
const struct type_mixture *type_mixture(size_t i);

/* A matrix whose type is to be chosen. */
struct typed_matrix {
    const struct config *config;
    const struct weight_kind *kind;
    size_t layer;    /* ignored for kinds outside layers */
    size_t columns;  /* inputs of an output: a row */
    enum dtype from; /* its type in the source */
    bool imatrix;    /* there are importance weights for it */
};

/* The type of a matrix in a mixture. The LM head, a tied embedding included, has 5 to 8 bits. Types with blocks of 256
 * weights are replaced by ones with blocks of 32 in matrices whose rows are no multiple of 256, as GGUF needs it.
 * DTYPE_COUNT: the matrix stays as it is in the source: routers, whose errors choose other experts, and small
 * tables that llama.cpp leaves, too. */
enum dtype type_mixture_choose(const struct type_mixture *mixture, const struct typed_matrix *matrix);

/* True for the LM head, and for the embedding that is tied to it. */
bool type_is_head(const struct weight_kind *kind, const struct config *config);

/* True for types whose few points (of eight weights each) spend their bits on the inputs that matter: without an
 * importance matrix, models of them are of no use. */
bool type_needs_imatrix(enum dtype type);
