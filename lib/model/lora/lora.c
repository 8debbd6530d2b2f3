/* Lists of LoRA adapters, and what identifies them. */
#include "model/lora/lora.h"

#include <stdlib.h>

#include "base/mem.h"

static const char *const kinds[LORA_TARGETS] = {
    [LORA_Q] = "layer.q.weight",       [LORA_K] = "layer.k.weight",
    [LORA_V] = "layer.v.weight",       [LORA_ATTN_GATE] = "layer.attn_gate.weight",
    [LORA_OUT] = "layer.out.weight",   [LORA_GATE] = "layer.gate.weight",
    [LORA_UP] = "layer.up.weight",     [LORA_DOWN] = "layer.down.weight",
    [LORA_Q_A] = "layer.q_a.weight",   [LORA_Q_B] = "layer.q_b.weight",
    [LORA_KV_A] = "layer.kv_a.weight",
};

const char *lora_target_kind(enum lora_target target) { return kinds[target]; }

size_t loras_max_rank(const struct loras *loras)
{
    size_t most = 0;
    for (size_t i = 0; loras && i < loras->n; i++)
        most = size_max(most, loras->one[i]->max_rank);
    return most;
}

int loras_add(struct loras *loras, struct lora *lora, struct err *err)
{
    struct lora **more = realloc(loras->one, (loras->n + 1) * sizeof(struct lora *));
    if (!more) {
        lora_close(lora);
        return err_no_memory(err, "an adapter");
    }
    loras->one = more;
    loras->one[loras->n++] = lora;
    return 0;
}

static void add_adapter(struct hasher *all, const struct lora *lora, float factor)
{
    struct hasher hasher;
    struct hash hash = lora->hash;
    if (factor != 1) {
        hasher_init(&hasher);
        hasher_add(&hasher, &hash, sizeof hash);
        hasher_add(&hasher, &factor, sizeof factor);
        hash = hasher_result(&hasher);
    }
    hasher_add(all, &hash, sizeof hash);
}

struct hash loras_entries_id(const struct loras *loras, const float *factor,
                             const struct hash *model_id)
{
    static const char about[] = "bmc lora 1";
    struct hasher hasher;
    bool used = false;
    hasher_init(&hasher);
    hasher_add(&hasher, about, sizeof about);
    hasher_add(&hasher, model_id, sizeof *model_id);
    for (size_t i = 0; loras && i < loras->n; i++)
        if (!factor || factor[i] != 0) {
            add_adapter(&hasher, loras->one[i], factor ? factor[i] : 1);
            used = true;
        }
    return used ? hasher_result(&hasher) : *model_id;
}

void lora_close(struct lora *lora)
{
    if (!lora)
        return;
    for (size_t i = 0; lora->pair && i < lora->layers * LORA_TARGETS; i++) {
        free((void *)(uintptr_t)lora->pair[i].a.data);
        free((void *)(uintptr_t)lora->pair[i].b.data);
    }
    free(lora->pair);
    free(lora->path);
    free(lora);
}

void loras_close(struct loras *loras)
{
    if (!loras)
        return;
    for (size_t i = 0; i < loras->n; i++)
        lora_close(loras->one[i]);
    free(loras->one);
    free(loras);
}
