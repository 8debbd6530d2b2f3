/* A model in memory with random weights of a known shape: for measuring without a file. */
#include <stdlib.h>

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
};

static void fill(const struct placing *p, const struct role *role, enum dtype type, size_t n, void *out)
{
    if (role->fill == FILL_RANDOM)
        synth_fill(p->synth, p->index, 0, n, type, out);
    for (size_t i = 0; role->fill != FILL_RANDOM && i < n; i++)
        ((float *)out)[i] = role->fill == FILL_ONE ? 1 : 0; /* vectors are f32 */
}

static void place(struct placing *p, const struct role *role, void *target)
{
    const struct config *c = &p->model->config;
    const size_t out = config_dim(c, role->out), in = config_dim(c, role->in);
    const enum dtype type = role->in == DIM_NONE ? DTYPE_F32 : p->type;
    if (c->tied_head && strcmp(role->name, "head.weight") == 0) {
        p->model->weights.head = p->model->weights.embed;
        return;
    }
    void *data = p->base ? p->base + p->end : NULL;
    p->end = round_up(p->end + out * in * dtype_size(type), 4096);
    if (!data)
        return;
    fill(p, role, type, out * in, data);
    p->index++;
    if (role->in == DIM_NONE)
        *(const float **)target = data;
    else
        *(struct mat *)target =
            (struct mat){.dtype = type, .out = out, .in = in, .row_stride = in, .data = data};
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
    *out = model;
    return 0;
}
