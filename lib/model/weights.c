/* Binds the tensors of a mapped file to struct weights. */
#include "model/weights.h"

#include "base/mem.h"
#include "quant/pack.h"
#include "model/convert/tensor_types.h"
#include "model/weight_kinds.h"

/* Fails unless a tensor has the shape, type and layout that the configuration implies; other code
 * then relies on the configuration alone. */
static int check_shape(const struct bmc_tensor *tensor, const struct weight_kind *kind,
                       const struct config *config, const char *name, const char *path, struct err *err)
{
    size_t shape[BMC_MAX_DIMS];
    const bool vector = kind->in == DIM_NONE;
    const size_t n_dims = weight_kind_shape(kind, config, shape);
    bool same = tensor->n_dims == n_dims;
    for (size_t i = 0; i < n_dims; i++)
        same &= tensor->shape[i] == shape[i];
    if (!same)
        return err_set(err,
                       "%s: tensor \"%s\" has shape [%llu][%llu][%llu], its configuration needs "
                       "[%zu][%zu][%zu]",
                       path, name, (unsigned long long)tensor->shape[0],
                       (unsigned long long)tensor->shape[1], (unsigned long long)tensor->shape[2],
                       shape[0], shape[1], shape[2]);
    if (vector && tensor->dtype != DTYPE_F32)
        return err_set(err, "%s: tensor \"%s\" is of type %s; vectors must be f32", path, name,
                       dtype_name(tensor->dtype));
    const enum layout layout = weight_kind_layout(kind, config, tensor->dtype);
    if (tensor->layout != layout)
        return err_set(err,
                       "%s: tensor \"%s\" has layout \"%s\", expected \"%s\"; convert the model again",
                       path, name, layout_name(tensor->layout), layout_name(layout));
    return 0;
}

static int bind(const struct weight_kind *kind, size_t layer, void *target, const struct config *config,
                const struct bmc_file *file, const char *path, struct err *err)
{
    char name[WEIGHT_NAME_SIZE];
    weight_kind_tensor_name(kind, layer, name);
    const struct bmc_tensor *tensor = bmc_file_find(file, name);
    if (!tensor)
        return err_set(err, "%s: tensor \"%s\" is missing; its configuration needs it", path, name);
    if (check_shape(tensor, kind, config, name, path, err) < 0)
        return -1;
    const void *data = file->data + tensor->offset;
    if (kind->in == DIM_NONE) {
        *(const float **)target = data;
        return 0;
    }
    const struct bmc_matrices m = bmc_matrices_of(tensor);
    *(struct mat *)target = (struct mat){
        .dtype = tensor->dtype,
        .layout = tensor->layout,
        .out = m.out,
        .in = m.in,
        .in_padded = layout_in(tensor->layout, m.in),
        .data = data,
    };
    return 0;
}

int weights_bind(struct weights *weights, const struct config *config, const struct bmc_file *file,
                 const char *path, struct err *err)
{
    *weights = (struct weights){.layer = mem_zalloc(config->layers, sizeof(struct layer))};
    if (!weights->layer)
        return err_no_memory(err, "%s: %zu layers", path, config->layers);
    struct config own;
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t layer = 0; layer < weight_kind_copies(kind, config); layer++) {
            if (!weight_kind_has(kind, config, layer))
                continue;
            if (bind(kind, layer, weight_kind_at(kind, weights, layer),
                     config_of_layer(config, layer, &own), file, path, err) < 0) {
                weights_release(weights);
                return -1;
            }
        }
    return 0;
}

int weights_shape(struct weights *weights, const struct config *config,
                  const struct tensor_types *types, struct err *err)
{
    static const float no_data[1];
    struct config own;
    *weights = (struct weights){.layer = mem_zalloc(config->layers, sizeof(struct layer))};
    if (!weights->layer)
        return err_no_memory(err, "%zu layers", config->layers);
    for (const struct weight_kind *kind = weight_kinds; kind < weight_kinds + n_weight_kinds; kind++)
        for (size_t layer = 0; layer < weight_kind_copies(kind, config); layer++) {
            const struct config *c = config_of_layer(config, layer, &own);
            void *to = weight_kind_at(kind, weights, layer);
            if (!weight_kind_has(kind, config, layer))
                continue;
            if (kind->in == DIM_NONE)
                *(const float **)to = no_data;
            else
                *(struct mat *)to =
                    (struct mat){.data = no_data,
                                 .dtype = tensor_types_random(types, config, kind, layer),
                                 .out = config_dim(c, kind->out),
                                 .in = config_dim(c, kind->in)};
        }
    if (config->tied_head)
        weights->head.weight = weights->embed;
    return 0;
}

void weights_release(struct weights *weights)
{
    free(weights->layer);
    *weights = (struct weights){0};
}
