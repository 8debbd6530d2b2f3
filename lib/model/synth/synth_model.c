/* A model with random weights in memory, for measurements without a file. */
#include "model/convert/tensor_types.h"
#include "quant/pack.h"
#include "base/vm.h"
#include "model/model.h"
#include "model/weight_kinds.h"
#include "model/synth/synth.h"

/* Places the model's tensors in memory at `base`, one after the other; while `base` is NULL, only
 * adds up their size. */
struct placement {
    struct model *model;
    const struct synth *synth;
    const struct tensor_types *types;
    char *base;
    size_t end, index;
    bool failed;
};

static void fill_vector(const struct weight_kind *kind, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = kind->fill == FILL_ONE ? 1 : 0;
}

/* Fills a stack of n matrices, each of `bytes` bytes, or a single one. */
static void fill_matrix(struct placement *p, const struct mat *mat, size_t n, size_t bytes, void *data)
{
    if (mat->layout == LAYOUT_PACKED)
        for (size_t i = 0; i < n; i++)
            p->failed |= !synth_fill_packed(p->synth, p->index, i, mat, (char *)data + i * bytes);
    else
        synth_fill(p->synth, p->index, 0, mat->out * mat->in, mat->dtype, data);
}

static void place_tensor(struct placement *p, const struct weight_kind *kind, size_t layer)
{
    struct config own;
    const struct config *c = config_of_layer(&p->model->config, layer, &own);
    void *target = weight_kind_at(kind, &p->model->weights, layer);
    const size_t out = config_dim(c, kind->out), in = config_dim(c, kind->in);
    const size_t stack = size_max(weight_kind_stack(kind, c), 1);
    const enum dtype type = tensor_types_random(p->types, &p->model->config, kind, layer);
    const enum layout layout = weight_kind_layout(kind, c, type);
    if (c->tied_head && strcmp(kind->name, "head.weight") == 0) {
        p->model->weights.head.weight = p->model->weights.embed;
        return;
    }
    void *data = p->base ? p->base + p->end : NULL;
    const size_t bytes = layout_bytes(layout, type, out, in);
    p->end = round_up(p->end + stack * bytes, 4096);
    if (!data)
        return;
    if (kind->in == DIM_NONE) {
        fill_vector(kind, stack * out, data);
        *(const float **)target = data;
    } else {
        struct mat *mat = target;
        *mat = (struct mat){.dtype = type,
                            .layout = layout,
                            .out = out,
                            .in = in,
                            .in_padded = layout_in(layout, in),
                            .data = data};
        fill_matrix(p, mat, stack, bytes, data);
    }
    p->index++;
}

static void place_tensors(struct placement *p)
{
    p->end = p->index = 0;
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t layer = 0; layer < weight_kind_copies(kind, &p->model->config); layer++)
            if (weight_kind_has(kind, &p->model->config, layer))
                place_tensor(p, kind, layer);
}

int model_synthesize(struct model **out, const struct config *config, const char *name, enum dtype type,
                     uint64_t seed, struct err *err)
{
    const struct tensor_types types = {.type = type};
    return model_synthesize_types(out, config, name, &types, false, seed, err);
}

int model_synthesize_types(struct model **out, const struct config *config, const char *name,
                           const struct tensor_types *types, bool fast, uint64_t seed, struct err *err)
{
    struct synth synth = {.repeats = fast};
    struct model *model = calloc(1, sizeof *model);
    struct placement placement = {.model = model, .synth = &synth, .types = types};
    *out = NULL;
    if (!model || !(model->name = strdup(name)) ||
        !(model->weights.layer = calloc(config->layers, sizeof *model->weights.layer)) ||
        !synth_open(&synth, seed)) {
        model_close(model);
        return err_no_memory(err, "a model");
    }
    model->config = *config;
    if (config_plan(&model->config, err) < 0) {
        model_close(model);
        synth_close(&synth);
        return -1;
    }
    place_tensors(&placement);
    model->synthetic_bytes = placement.end;
    model->synthetic = placement.base = vm_get(VM_THP, placement.end);
    if (!model->synthetic) {
        model_close(model);
        synth_close(&synth);
        return err_no_memory(err, "the weights of %s, %zu bytes; use fewer --layers", name,
                             placement.end);
    }
    place_tensors(&placement);
    synth_close(&synth);
    if (placement.failed) {
        model_close(model);
        return err_no_memory(err, "random weights");
    }
    *out = model;
    return 0;
}
