/* Lists of LoRA adapters, and what identifies them. */
#include "model/lora/lora.h"

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

/* ---- sequences and rows ---- */

/* The matrices of an adapter in the memory of a backend; NULL: out of memory. */
static struct op_adapter *adopt_adapter(const struct lora *lora, struct adopted *adopted,
                                        struct err *err)
{
    const size_t n = lora->layers * LORA_TARGETS;
    struct op_adapter *to = mem_alloc(n, sizeof *to);
    if (!to)
        err_no_memory(err, "an adapter of %zu layers", lora->layers);
    for (size_t i = 0; to && i < n; i++)
        if (adopt_matrix(adopted, &lora->pair[i].a, &to[i].a, err) < 0 ||
            adopt_matrix(adopted, &lora->pair[i].b, &to[i].b, err) < 0) {
            free(to);
            return NULL;
        }
    return to;
}

int lora_uses_open(struct lora_uses *o, const struct loras *loras, size_t seqs, struct adopted *adopted,
                   struct err *err)
{
    *o = (struct lora_uses){0};
    if (!loras || !loras->n)
        return 0;
    o->loras = loras;
    o->factor = mem_alloc(seqs, loras->n * sizeof *o->factor);
    o->span = mem_alloc(seqs, sizeof *o->span);
    o->adapter = mem_zalloc(loras->n, sizeof *o->adapter);
    if (!o->factor || !o->span || !o->adapter)
        return err_no_memory(err, "%zu adapters of %zu sequences", loras->n, seqs);
    for (size_t i = 0; i < seqs * loras->n; i++)
        o->factor[i] = 1;
    for (size_t i = 0; i < loras->n; i++)
        if (!(o->adapter[i] = adopt_adapter(loras->one[i], adopted, err)))
            return -1;
    return 0;
}

void lora_uses_close(struct lora_uses *o)
{
    for (size_t i = 0; o->adapter && i < o->loras->n; i++)
        free(o->adapter[i]);
    free(o->adapter);
    free(o->factor);
    free(o->span);
    *o = (struct lora_uses){0};
}

bool lora_use(struct lora_uses *o, size_t seq, const float *factor)
{
    bool changed = false;
    for (size_t i = 0; o->loras && i < o->loras->n; i++) {
        float *own = &o->factor[seq * o->loras->n + i];
        const float to = factor ? factor[i] : 1;
        changed |= *own != to;
        *own = to;
    }
    return changed;
}

static bool same_factors(const struct lora_uses *o, const float *a, const float *b)
{
    for (size_t i = 0; i < o->loras->n; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

const float *lora_factors(const struct lora_uses *o, size_t seq)
{
    return o->loras ? o->factor + seq * o->loras->n : NULL;
}

bool lora_same_use(const struct lora_uses *o, size_t a, size_t b)
{
    return !o->loras || same_factors(o, lora_factors(o, a), lora_factors(o, b));
}

void lora_add_rows(const struct lora_uses *o, struct op_step *step, size_t seq, struct row_range rows)
{
    if (!o->loras)
        return;
    struct op_span *last = step->n_spans ? &o->span[step->n_spans - 1] : NULL;
    const float *factor = lora_factors(o, seq);
    if (last && same_factors(o, last->factor, factor))
        last->rows.n += rows.n;
    else
        o->span[step->n_spans++] = (struct op_span){rows, factor};
    step->span = o->span;
    step->adapter = (const struct op_adapter *const *)o->adapter;
    step->n_adapters = o->loras->n;
}
