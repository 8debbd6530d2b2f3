/* Opens an attention backend and runs it layer by layer; table of backends. */
#include "attn/attn.h"

#include "attn/retrieval_score.h"
#include "base/mem.h"

extern const struct attn_backend attn_fused, attn_blas, attn_onednn;

const struct attn_backend *const attn_backends[] = {&attn_fused, &attn_blas, &attn_onednn, NULL};

const struct attn_backend *attn_find(const char *name, struct err *err)
{
    char names[128] = "";
    if (!name)
        return attn_backends[0];
    for (size_t i = 0; attn_backends[i]; i++) {
        if (strcmp(attn_backends[i]->name, name) == 0)
            return attn_backends[i];
        const size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", attn_backends[i]->name);
    }
    err_set(err, "attention backend \"%s\" is unknown; there are: %s", name, names);
    return NULL;
}

struct attn_counts attn_counts(const struct attn_backend *backend)
{
    return backend->counts ? backend->counts() : (struct attn_counts){0};
}

int attn_open(struct attn **out, const struct attn_backend *backend, const struct attn_shape *shapes,
              size_t n_shapes, const struct attn_limits *limits, struct err *err)
{
    struct attn *attn = *out = mem_zalloc(1, backend->state_size);
    if (!attn)
        return err_no_memory(err, "attention");
    attn->backend = backend;
    attn->n_shapes = n_shapes;
    for (size_t i = 0; i < n_shapes; i++)
        if (shapes[i].chosen && !backend->chooses) {
            free(attn);
            *out = NULL;
            return err_set(err,
                           "attention backend %s does not support sparse attention: use --attn fused",
                           backend->name);
        }
    attn->shapes = mem_alloc(n_shapes, sizeof *attn->shapes);
    for (size_t i = 0; attn->shapes && i < n_shapes; i++) {
        struct attn_shape *shape = &attn->shapes[i];
        *shape = shapes[i];
        if (shape->v_dim == 0)
            shape->v_dim = shape->head_dim;
        if (shape->scale == 0)
            shape->scale = 1 / sqrtf((float)shape->head_dim);
    }
    const int rc =
        attn->shapes ? backend->open(attn, limits, err) : err_no_memory(err, "%zu shapes", n_shapes);
    if (rc == 0)
        return 0;
    attn_close(attn);
    *out = NULL;
    return -1;
}

void attn_close(struct attn *attn)
{
    if (!attn)
        return;
    attn->backend->close(attn);
    free(attn->shapes);
    free(attn);
}

int attn_begin(struct attn *attn, const struct attn_step *step, struct err *err)
{
    return attn->backend->begin ? attn->backend->begin(attn, step, err) : 0;
}

static void prefetch(const struct attn_step *step, size_t layer, size_t head, size_t heads)
{
    for (size_t i = 0; i < step->n_queries; i++)
        kv_prefetch(step->kv, step->query[i].seq, layer, head, heads);
}

/* Computes a layer one slice of KV heads at a time. Before each slice, starts to prefetch the next,
 * which may be the next layer's first. */
static int run_slices(struct attn *attn, const struct attn_step *step, struct attn_slice *slice,
                      struct err *err)
{
    const size_t layer = slice->layer->index, end = slice->heads;
    const size_t most = kv_offload(step->kv).heads_at_once;
    const struct kv_shape *shape = &kv_setup(step->kv)->shape;
    prefetch(step, layer, 0, size_min(most, end));
    for (size_t head = 0, next; head < end; head = next) {
        next = head + size_min(most, end - head);
        if (next < end)
            prefetch(step, layer, next, size_min(most, end - next));
        else if (layer + 1 < shape->layers)
            prefetch(step, layer + 1, 0, size_min(most, kv_sizes_of(shape, layer + 1)->kv_heads));
        slice->head = head;
        slice->heads = next - head;
        if (attn->backend->run(attn, step, slice, err) < 0)
            return -1;
    }
    return 0;
}

int attn_run(struct attn *attn, const struct attn_step *step, const struct attn_layer *layer,
             const float *q, float *out, struct err *err)
{
    attn->shape = &attn->shapes[layer->shape];
    attn->gqa = attn_gqa(attn->shape);
    struct attn_slice all = {layer, 0, attn->shape->kv_heads, q, out};
    if (attn->retrieval && retrieval_score_add(attn, step, layer, q, err) < 0)
        return -1;
    return kv_offload(step->kv).heads_at_once ? run_slices(attn, step, &all, err)
                                              : attn->backend->run(attn, step, &all, err);
}
