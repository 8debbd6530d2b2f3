/* The adapters of sequences, and those of the rows of a pass. */
#include "model/lora/forward_lora.h"

#include <stdlib.h>

#include "base/mem.h"

struct forward_lora {
    const struct loras *loras;
    const struct lora_pair **pair; /* [adapters]: of all layers */
    float *factor;                 /* [sequences of the cache][adapters] */
    struct op_span *span;          /* [sequences of the cache] */
};

int forward_lora_open(struct forward *f, struct err *err)
{
    const struct loras *loras = f->model->loras;
    const size_t seqs = kv_setup(f->kv)->n_seqs;
    if (!loras || !loras->n)
        return 0;
    struct forward_lora *o = f->lora = mem_zalloc(1, sizeof *o);
    if (!o)
        return err_no_memory(err, "the buffers of LoRA adapters");
    o->loras = loras;
    o->factor = mem_alloc(seqs, loras->n * sizeof *o->factor);
    o->span = mem_alloc(seqs, sizeof *o->span);
    o->pair = mem_alloc(loras->n, sizeof *o->pair);
    if (!o->factor || !o->span || !o->pair)
        return err_no_memory(err, "%zu adapters of %zu sequences", loras->n, seqs);
    for (size_t i = 0; i < seqs * loras->n; i++)
        o->factor[i] = 1;
    for (size_t i = 0; i < loras->n; i++)
        o->pair[i] = loras->one[i]->pair;
    return 0;
}

void forward_lora_close(struct forward *f)
{
    struct forward_lora *o = f->lora;
    if (!o)
        return;
    free(o->factor);
    free(o->span);
    free(o->pair);
    free(o);
    f->lora = NULL;
}

bool forward_lora_set(struct forward *f, size_t seq, const float *factor)
{
    struct forward_lora *o = f->lora;
    bool changed = false;
    for (size_t i = 0; o && i < o->loras->n; i++) {
        float *own = &o->factor[seq * o->loras->n + i];
        const float to = factor ? factor[i] : 1;
        changed |= *own != to;
        *own = to;
    }
    return changed;
}

static bool same_factors(const struct forward_lora *o, const float *a, const float *b)
{
    for (size_t i = 0; i < o->loras->n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

const float *forward_lora_factors(const struct forward *f, size_t seq)
{
    return f->lora ? f->lora->factor + seq * f->lora->loras->n : NULL;
}

bool forward_lora_same(const struct forward *f, size_t a, size_t b)
{
    return !f->lora || same_factors(f->lora, forward_lora_factors(f, a), forward_lora_factors(f, b));
}

void forward_lora_begin(struct forward *f, struct op_step *step)
{
    struct forward_lora *o = f->lora;
    if (!o)
        return;
    for (size_t i = 0; i < step->n_queries; i++) {
        const struct attn_query *q = &step->query[i];
        struct op_span *last = step->n_spans ? &o->span[step->n_spans - 1] : NULL;
        const float *factor = forward_lora_factors(f, q->seq);
        if (last && same_factors(o, last->factor, factor))
            last->rows.n += q->rows;
        else
            o->span[step->n_spans++] = (struct op_span){{q->first, q->rows}, factor};
    }
    step->span = o->span;
    step->adapter = o->pair;
    step->n_adapters = o->loras->n;
}
