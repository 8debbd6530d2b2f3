/* LoRA adapters of an open model: matrices A and B beside some of its linear layers, in f32. */
#ifndef BMC_LORA_H
#define BMC_LORA_H

#include "base/hash.h"
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

/* y += B (A x); the scale is part of B. */
struct lora_pair {
    struct mat a, b; /* [rank][in], [out][rank]; a.data is NULL if the layer is not adapted */
};

struct lora {
    char *path;
    double scale;           /* given by the user, beside that of the file */
    struct lora_pair *pair; /* [layers][LORA_TARGETS] */
    size_t layers, max_rank;
    struct hash hash; /* of contents and scale */
};

/* The adapters of a model, which add up in this order. */
struct loras {
    struct lora **one;
    size_t n;
    /* identifies KV entries computed with all of them: a hash of model_id and the adapters */
    struct hash entries_id;
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

/* Adds an adapter and updates entries_id; takes it over, even on error. */
int loras_add(struct loras *loras, struct lora *lora, const struct hash *model_id,
              struct err *err) MUST_USE;

void lora_close(struct lora *lora); /* NULL is accepted */
void loras_close(struct loras *loras);

#endif
