/* Chooses the layers of a model that a device computes. */
#include "model/split_layers.h"

#include "base/mem.h"

struct splitting {
    bool *on_host;
    size_t layers;
    const struct backend *device;
    const struct kv_shape *shape;
    bool fallback;
    struct err *err; /* why the first part is the CPU's that would be the device's */
};

static bool uses_kv(const struct op *op) { return op->kind == OP_APPEND || op->kind == OP_ATTEND; }

/* Parts of the range that the device cannot run become the CPU's; `part`: all of it, SIZE_MAX: each layer. Taps run wherever
 * the operations around them do, and the last has no layer. */
static int refuse_range(struct splitting *s, const struct op_list *list, struct op_range range,
                        size_t part)
{
    for (const struct op *op = list->op + range.first; op < list->op + range.first + range.n; op++) {
        if (op->kind == OP_TAP)
            continue;
        bool *host = &s->on_host[part == SIZE_MAX ? op->layer : part];
        if (*host || !s->device->refuse || s->device->refuse(op, s->shape, s->err) == 0)
            continue;
        if (!s->fallback)
            return -1;
        *host = true;
    }
    return 0;
}

/* Layers that read the same KV entries are on one side. */
static int join_sharers(struct splitting *s, const struct op_list *list, struct err *err)
{
    AUTO(free_auto) bool *host = mem_zalloc(size_max(s->shape->layers, 1), sizeof *host);
    if (!host)
        return err_no_memory(err, "%zu layers", s->shape->layers);
    for (int twice = 0; twice < 2; twice++)
        for (size_t i = 0; i < list->n; i++) {
            const struct op *op = &list->op[i];
            if (!uses_kv(op))
                continue;
            bool *entries = &host[op->kind == OP_APPEND ? op->append.layer : op->attend.layer],
                 *layer = &s->on_host[op->layer];
            *entries = *layer = *entries || *layer;
        }
    return 0;
}

static int split_list(struct splitting *s, const struct op_list *list, struct err *err)
{
    const size_t head = s->layers + SPLIT_HEAD, embed = s->layers + SPLIT_EMBED;
    if (refuse_range(s, list, list->layers, SIZE_MAX) < 0 || join_sharers(s, list, err) < 0)
        return -1;
    s->on_host[embed] = s->on_host[0];
    return refuse_range(s, list, list->embed, embed) < 0 ||
                   refuse_range(s, list, list->head, head) < 0 ||
                   refuse_range(s, list, list->pooled, head) < 0
               ? -1
               : 0;
}

int split_layers(bool *on_host, const struct model *model, const struct backend *device,
                 const struct kv_shape *shape, size_t gpu_layers, bool fallback, struct err *err)
{
    struct op_list list;
    const size_t layers = model->config.layers, all = layers + 1;
    struct err why;
    struct splitting s = {on_host, layers, device, shape, fallback, &why};
    (void)!err_set(&why, "the last %zu read KV entries of layers before them", gpu_layers - 1);
    for (size_t i = 0; i < layers + SPLIT_PARTS; i++)
        on_host[i] = i < all - size_min(gpu_layers, all);
    if (forward_list(&list, model, err) < 0)
        return -1;
    const int rc = split_list(&s, &list, &why);
    forward_list_close(&list);
    if (rc < 0) {
        return err_set(err, "%.400s: use --backend %s, or --fallback %s", why.text, backends[0]->name,
                       backends[0]->name);
    }
    size_t n = 0;
    for (size_t i = 0; i < layers; i++)
        n += !on_host[i];
    if (!n && (gpu_layers > 1 || on_host[layers + SPLIT_HEAD]))
        return err_set(err, "no layer is left to the device: %.400s: use --backend %s", why.text,
                       backends[0]->name);
    return (int)(n + !on_host[layers + SPLIT_HEAD]);
}
