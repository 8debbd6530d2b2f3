/* A model in memory with random weights of a known shape: for measuring without a file. */
#include <stdlib.h>

#include "base/pack.h"
#include "base/pages.h"
#include "model/model.h"
#include "model/roles.h"
#include "model/synth.h"

/* Places the tensors of a model one after the other in a block, or only measures it while `base` is NULL. */
struct placing {
    struct model *model;
    const struct synth *synth;
    enum dtype type;
    char *base;
    size_t end, index;
    bool failed;
};

/* Vectors are f32 and constant, matrices random. */
static void fill_vector(const struct role *role, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = role->fill == FILL_ONE ? 1 : 0;
}

static void fill_matrix(struct placing *p, const struct mat *mat, void *data)
{
    if (mat->layout == LAYOUT_PACKED)
        p->failed |= !synth_fill_packed(p->synth, p->index, mat->out, mat->in, mat->dtype, data);
    else
        synth_fill(p->synth, p->index, 0, mat->out * mat->in, mat->dtype, data);
}

static void place(struct placing *p, const struct role *role, void *target)
{
    const struct config *c = &p->model->config;
    const size_t out = config_dim(c, role->out), in = config_dim(c, role->in);
    const enum dtype type = role->in == DIM_NONE ? DTYPE_F32 : p->type;
    const enum layout layout = role_layout(role, c, type);
    if (c->tied_head && strcmp(role->name, "head.weight") == 0) {
        p->model->weights.head.weight = p->model->weights.embed;
        return;
    }
    void *data = p->base ? p->base + p->end : NULL;
    p->end = round_up(p->end + layout_bytes(layout, type, out, in), 4096);
    if (!data)
        return;
    if (role->in == DIM_NONE) {
        fill_vector(role, out, data);
        *(const float **)target = data;
    } else {
        struct mat *mat = target;
        *mat = (struct mat){.dtype = type,
                            .layout = layout,
                            .out = out,
                            .in = in,
                            .in_padded = layout_in(layout, in),
                            .data = data};
        fill_matrix(p, mat, data);
    }
    p->index++;
}

static void place_all(struct placing *p)
{
    struct model *model = p->model;
    p->end = p->index = 0;
    for (size_t i = 0; i < n_roles; i++) {
        const bool in_layer = role_in_layer(&roles[i]);
        if (!role_wanted(&roles[i], &model->config))
            continue;
        for (size_t layer = 0; layer < (in_layer ? model->config.layers : 1); layer++) {
            char *owner = in_layer ? (char *)&model->weights.layer[layer] : (char *)&model->weights;
            place(p, &roles[i], owner + roles[i].at);
        }
    }
}

int model_synthesize(struct model **out, const struct config *config, const char *name, enum dtype type,
                     uint64_t seed, struct err *err)
{
    struct synth synth = {0};
    struct model *model = calloc(1, sizeof *model);
    struct placing placing = {.model = model, .synth = &synth, .type = type};
    *out = NULL;
    if (!model || !(model->path = strdup(name)) ||
        !(model->weights.layer = calloc(config->layers, sizeof *model->weights.layer)) ||
        !synth_open(&synth, seed)) {
        model_close(model);
        return err_set(err, "out of memory for a model");
    }
    model->config = *config;
    place_all(&placing);
    model->synthetic_bytes = placing.end;
    model->synthetic = placing.base = pages_get(PAGES_THP, placing.end);
    if (!model->synthetic) {
        model_close(model);
        synth_close(&synth);
        return err_set(err, "out of memory: %s needs %zu bytes of weights; use fewer --layers", name,
                       placing.end);
    }
    place_all(&placing);
    synth_close(&synth);
    if (placing.failed) {
        model_close(model);
        return err_set(err, "out of memory for rows of random weights");
    }
    *out = model;
    return 0;
}
