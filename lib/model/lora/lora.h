/* LoRA adapters of an open model: matrices A and B beside some of its linear layers, in f32. */
#pragma once

#include "backend/op.h"
#include "base/hash.h"
#include "model/adopted.h"
#include "model/weights.h"

/* Linear layers that adapters can change; lora.c has their weight kinds. */
enum lora_target {
    LORA_Q,
    LORA_K,
    LORA_V,
    LORA_ATTN_GATE,
    LORA_OUT,
    LORA_GATE,
    LORA_UP,
    LORA_DOWN,
    LORA_Q_A, /* latent attention */
    LORA_Q_B,
    LORA_KV_A,
    LORA_TARGETS
};

/* A LoRA adapter of a matrix: y += B (A x); the scale is part of B. */
struct lora_pair {
    struct mat a, b; /* [rank][in], [out][rank]; a.data is NULL if the matrix is not adapted */
};

struct lora {
    char *path;
    double scale;           /* given by the user, beside that of the file */
    struct lora_pair *pair; /* [layers][LORA_TARGETS] */
    size_t layers, max_rank;
    struct hash hash; /* of contents and scale */
};

enum { LORAS_MAX = 64 }; /* adapters that programs and the library accept */

/* The adapters of a model, which add up in this order. A sequence uses all of them, or has a list of
 * factors, one for each, by which their scales are multiplied; 0: it does not use this one. */
struct loras {
    struct lora **one;
    size_t n;
};

static inline const struct lora_pair *lora_pair(const struct lora *lora, size_t layer,
                                                enum lora_target target)
{
    return &lora->pair[layer * LORA_TARGETS + target];
}

/* The weight kind of a target: "layer.q.weight". */
const char *lora_target_kind(enum lora_target target);

/* Largest rank of any adapter; 0: there are none. */
size_t loras_max_rank(const struct loras *loras);

/* Adds an adapter; takes it over, even on error. */
int loras_add(struct loras *loras, struct lora *lora, struct err *err) MUST_USE;

/* Identifies KV entries that are computed with these factors (NULL: 1 each): model_id if none is used,
 * else a hash of it and the adapters in use. `loras` may be NULL. */
struct hash loras_entries_id(const struct loras *loras, const float *factor,
                             const struct hash *model_id);

void lora_close(struct lora *lora); /* NULL is accepted */
void loras_close(struct loras *loras);

/* ---- the adapters of sequences, and those of the rows of a pass ---- */

struct lora_uses {
    const struct loras *loras;   /* NULL: the model has none */
    struct op_adapter **adapter; /* [adapters][layers * LORA_TARGETS] */
    float *factor;               /* [sequences][adapters] */
    struct op_span *span;        /* [sequences] */
};

/* Every sequence uses all adapters of `loras`, which may be NULL; their matrices become memory of a backend. */
int lora_uses_open(struct lora_uses *uses, const struct loras *loras, size_t seqs,
                   struct adopted *adopted, struct err *err) MUST_USE;
void lora_uses_close(struct lora_uses *uses);

/* Sets the factors of a sequence's adapters, which are 1 at first and with NULL; true if that changes any,
 * so that KV entries which the sequence has do not fit. */
bool lora_use(struct lora_uses *uses, size_t seq, const float *factor);
const float *lora_factors(const struct lora_uses *uses, size_t seq); /* NULL: no adapters */
bool lora_same_use(const struct lora_uses *uses, size_t a, size_t b);

/* Adds the rows of a sequence to those of a pass, in ascending order. */
void lora_add_rows(const struct lora_uses *uses, struct op_step *step, size_t seq,
                   struct row_range rows);
