/* Binds the tensors of a mapped file to the weights of a decoder. */
#include "model/weights.h"

#include <stdlib.h>

#include "base/mem.h"
#include "model/roles.h"

/* The shape that the configuration gives is compared with the one that the file gives: from here on
 * code may rely on the former. */
static int check_shape(const struct bmc_tensor *tensor, const struct role *role,
                       const struct config *config, const char *name, const char *path, struct err *err)
{
    const size_t out = config_dim(config, role->out), in = config_dim(config, role->in);
    const bool vector = role->in == DIM_NONE;
    if (tensor->n_dims != (vector ? 1 : 2) || tensor->shape[0] != out ||
        (!vector && tensor->shape[1] != in))
        return err_set(err, "%s: tensor \"%s\" is [%llu][%llu], its configuration needs [%zu][%zu]",
                       path, name, (unsigned long long)tensor->shape[0],
                       (unsigned long long)tensor->shape[1], out, in);
    if (vector && tensor->dtype != DTYPE_F32)
        return err_set(err, "%s: tensor \"%s\" is %s, vectors are f32", path, name,
                       dtype_name(tensor->dtype));
    const enum layout layout = role_layout(role, config, tensor->dtype);
    if (tensor->layout != layout)
        return err_set(err, "%s: tensor \"%s\" has layout \"%s\", it must be \"%s\"; convert again",
                       path, name, layout_name(tensor->layout), layout_name(layout));
    return 0;
}

static int bind(const struct role *role, size_t layer, void *base, const struct config *config,
                const struct bmc_file *file, const char *path, struct err *err)
{
    char name[ROLE_NAME_SIZE];
    role_tensor_name(role, layer, name);
    const struct bmc_tensor *tensor = bmc_file_find(file, name);
    if (!tensor)
        return err_set(err, "%s: has no tensor \"%s\", which its configuration needs", path, name);
    if (check_shape(tensor, role, config, name, path, err) < 0)
        return -1;
    const void *data = file->map.data + tensor->offset;
    if (role->in == DIM_NONE) {
        *(const float **)((char *)base + role->at) = data;
        return 0;
    }
    *(struct mat *)(void *)((char *)base + role->at) = (struct mat){
        .dtype = tensor->dtype,
        .layout = tensor->layout,
        .out = (size_t)tensor->shape[0],
        .in = (size_t)tensor->shape[1],
        .in_padded = (size_t)tensor->padded[1],
        .data = data,
    };
    return 0;
}

int weights_bind(struct weights *weights, const struct config *config, const struct bmc_file *file,
                 const char *path, struct err *err)
{
    *weights = (struct weights){.layer = mem_zalloc(config->layers, sizeof(struct layer))};
    if (!weights->layer)
        return err_set(err, "%s: out of memory for %zu layers", path, config->layers);
    for (size_t i = 0; i < n_roles; i++) {
        if (!role_wanted(&roles[i], config))
            continue;
        const size_t copies = role_in_layer(&roles[i]) ? config->layers : 1;
        for (size_t layer = 0; layer < copies; layer++) {
            void *base = role_in_layer(&roles[i]) ? (void *)&weights->layer[layer] : weights;
            if (bind(&roles[i], layer, base, config, file, path, err) < 0) {
                weights_release(weights);
                return -1;
            }
        }
    }
    return 0;
}

void weights_release(struct weights *weights)
{
    free(weights->layer);
    *weights = (struct weights){0};
}
