/* Types of a model's matrices for a size: few matrices are quantised at a time and the divergence of next-token
 * distributions measured; bytes then go where they lower the sum most. */
#ifndef BMC_TYPE_SEARCH_H
#define BMC_TYPE_SEARCH_H

#include "decode/session.h"
#include "model/convert/imatrix_weights.h"
#include "prof/quality.h"

/* What the chosen types are to reach. */
enum type_goal {
    GOAL_BYTES, /* at most so many bytes of the file */
    GOAL_BITS,  /* at most so many bits per weight, all tensors together */
    GOAL_KLD    /* a mean divergence of at most this, with as few bytes as possible */
};

struct chosen_types;

struct type_search {
    const struct model *model;             /* the source */
    const struct session_options *options; /* of one sequence, in f32 arithmetic; threads */
    const struct imatrix_weights *imatrix; /* NULL: unweighted errors */
    const uint32_t *id;                    /* [n] the text; the first tokens are used */
    size_t n;
    /* For a GGUF file, whose rows are whole blocks: [n_weight_kinds], by kind the first one that is in the same tensor,
     * and so has the same type. NULL: a .bmc model */
    const struct weight_kind *const *fused;
    enum type_goal goal;
    double value; /* of the goal */
    /* Computes the size of the file with the types and the certificate */
    int (*size)(void *size_arg, const struct chosen_types *types, size_t *bytes, struct err *err);
    void *size_arg;
    void (*progress)(void *arg, size_t done, size_t total);
    void *arg;
    const volatile sig_atomic_t *interrupted;
};

/* The type chosen for a matrix, as "NAME=TYPE". */
struct chosen_types {
    char **text; /* [n] */
    size_t n;
    size_t bytes;  /* of the file; with an empty certificate, or a shorter one, it is smaller */
    double kld;    /* mean divergence of the model with all of them from the source */
    size_t tokens; /* that were measured */
    /* What was measured, as lines "key value": a hash of the tokens, their number, statistics */
    struct buf certificate;
};

/* The caller releases *chosen, also after an error. */
int type_search(struct chosen_types *chosen, const struct type_search *search,
                struct err *err) MUST_USE;
void chosen_types_release(struct chosen_types *chosen);

#endif
