/* Converts single sequences to a smaller type, where memory is short: they move to a second cache of the same policy. */
#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"

/* Makes types of the shape smaller where `type` takes fewer bytes; false: nowhere. */
static bool make_smaller(struct kv_shape *shape, enum dtype type)
{
    bool any = false;
    for (size_t i = 0; i < shape->n_sizes; i++) {
        struct kv_sizes *sizes = &shape->sizes[i];
        for (size_t m = 0; m < 2; m++)
            if (dtype_row_bytes(type, sizes->head_dim) < kv_sizes_row_bytes(sizes, m)) {
                sizes->type[m] = type;
                any = true;
            }
    }
    return any;
}

int kv_open_smaller(struct kv *kv, enum dtype type, struct err *err)
{
    struct kv_shape shape = kv->setup.shape;
    struct kv_spec spec = kv->spec;
    if (kv->policy->rolling || kv->policy->prefetch || kv->spec.lockstep || kv->state)
        return err_set(err,
                       kv->state ? "the model has recurrent state, which is not converted"
                                 : "cache policy %s does not convert sequences",
                       kv->policy->name);
    if (!make_smaller(&shape, type) || kv_shape_dim(&shape) > MEMORY_STORE_ELEMENTS)
        return err_set(err, "the cache has no larger type than %s", cache_type_name(type));
    spec.T = 0;
    spec.tuned = false;
    spec.r = kv->setup.r;
    spec.windows = NULL;
    spec.shards = (struct kv_shards){0};
    spec.state = (struct state_options){0};
    spec.scales = NULL;
    kv->in_smaller = mem_zalloc(kv->setup.n_seqs, sizeof *kv->in_smaller);
    if (!kv->in_smaller)
        return err_no_memory(err, "the cache's tables");
    if (kv_open(&kv->smaller, &spec, &shape, kv->setup.n_seqs, err) < 0)
        return -1;
    kv->smaller->owner = kv;
    return 0;
}

/* Converts the rows of one layer, span by span. */
static int convert_layer(struct kv *kv, size_t seq, size_t layer, struct err *err)
{
    const struct kv_sizes *sizes = kv_layer_sizes(kv, layer);
    struct kv_view view;
    if (kv_view(kv, seq, layer, 0, sizes->kv_heads, &view, err) < 0)
        return -1;
    for (size_t i = 0; i < view.n_spans; i++) {
        const struct kv_span *span = &view.span[i];
        assert(!span->row); /* of reordered beams */
        kv_rows_store(
            kv->smaller, seq, layer, span->first, span->valid,
            (const struct kv_row_source[]){{addr_add(span->k, view.offset[KV_K]), view.type[KV_K],
                                            span->row_stride[KV_K], span->head_stride[KV_K]},
                                           {addr_add(span->v, view.offset[KV_V]), view.type[KV_V],
                                            span->row_stride[KV_V], span->head_stride[KV_V]}},
            NULL);
    }
    return 0;
}

int kv_convert(struct kv *kv, size_t seq, struct err *err)
{
    struct kv *to = kv->smaller;
    const size_t n = kv->seq[seq].n;
    assert(to && !kv->in_smaller[seq] && n && !kv->seq[seq].pending);
    if (to->policy->ensure(to, seq, n, err) < 0)
        return -1;
    to->seq[seq].pending = n;
    const double start = clock_ms();
    int rc = 0;
    for (size_t l = 0; l < kv->setup.shape.layers && rc == 0; l++)
        rc = convert_layer(kv, seq, l, err);
    to->stats.copy_ms += clock_ms() - start;
    to->seq[seq].pending = 0;
    if (rc < 0) {
        kv_truncate(to, seq, 0);
        return -1;
    }
    atomic_fetch_add(&to->converted_rows, to->n_heads * n);
    to->seq[seq].n = n;
    kv_truncate(kv, seq, 0);
    kv->in_smaller[seq] = true;
    return 0;
}

const struct kv_shape *kv_smaller_shape(const struct kv *kv) { return &kv->smaller->setup.shape; }
