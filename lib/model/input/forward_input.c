/* Inputs of layers of their own, and factors of their outputs. */
#include "model/input/forward_input.h"

#include <math.h>

#include "base/threads.h"
#include "model/forward_heads.h"
#include "model/forward_norm.h"
#include "quant/pack.h"

enum {
    CHUNK = 512
}; /* elements of an embedding that are fetched at a time: groups of quantised types */

struct input_job {
    struct forward *f;
    const struct step *step;
};

/* Adds the embedding of one token, for all layers of this rank. */
static void add_embedding(void *arg, size_t row)
{
    const struct input_job *job = arg;
    const struct forward *f = job->f;
    const struct config *c = &f->model->config;
    const size_t all = f->pipeline.n_layers * c->layer_input,
                 first = f->pipeline.first_layer * c->layer_input;
    const float scale = sqrtf((float)c->layer_input), half = sqrtf(0.5f);
    float *to = f->layer_inputs + row * all, own[CHUNK];
    for (size_t at = 0, n; at < all; at += n) {
        n = size_min(CHUNK, all - at);
        mat_fetch(own, &f->model->weights.embed_layers, job->step->token[row], first + at, n);
        for (size_t i = 0; i < n; i++)
            to[at + i] = (to[at + i] + own[i] * scale) * half;
    }
}

void forward_input_begin(struct forward *f, const struct step *step)
{
    const struct config *c = &f->model->config;
    const struct weights *w = &f->model->weights;
    const struct mat *matrix = &w->layer_inputs.weight;
    const size_t layers = f->pipeline.n_layers, n = layers * c->layer_input, rows = step->rows;
    if (!n)
        return;
    const struct product product = {.w = matrix, .y = f->layer_inputs, .y_stride = matrix->out};
    gemm_run(f->gemm, &product, 1, f->x, c->hidden, rows);
    forward_drop_overlap(&w->layer_inputs, f->layer_inputs, (struct row_range){0, rows});
    scale_rows(f->layer_inputs, (struct row_range){0, rows}, n, 1 / sqrt((double)c->hidden));
    norm_each(f, f->layer_inputs, f->layer_inputs, rows * layers, c->layer_input,
              &w->layer_inputs_norm);
    struct input_job job = {f, step};
    parallel_for(rows, 4 * rows * n, add_embedding, &job);
}

void forward_input_add(struct forward *f, struct row_range rows, size_t layer)
{
    const struct config *c = &f->model->config;
    const struct layer *w = &f->model->weights.layer[layer];
    const size_t n = c->layer_input, at = rows.first * c->hidden;
    float *x = f->x + at, *gate = f->layer_gate + rows.first * n, *out = f->h + at;
    if (n) {
        const struct product products[] = {
            {.w = &w->input_gate.weight, .act = forward_act(c), .y = gate, .y_stride = n},
            {.w = &w->input_out.weight, .y = out, .y_stride = c->hidden}};
        gemm_run(f->gemm, &products[0], 1, x, c->hidden, rows.n);
        for (size_t i = 0; i < rows.n; i++) {
            const float *input =
                f->layer_inputs +
                ((rows.first + i) * f->pipeline.n_layers + layer - f->pipeline.first_layer) * n;
            for (size_t j = 0; j < n; j++)
                gate[i * n + j] *= input[j];
        }
        gemm_run(f->gemm, &products[1], 1, gate, n, rows.n);
        norm_rows(f, f->h, f->h, rows, &w->input_norm);
        f->kernels->add(x, out, rows.n * c->hidden);
    }
    for (size_t i = 0; w->scale && i < rows.n * c->hidden; i++)
        x[i] *= w->scale[0];
}
