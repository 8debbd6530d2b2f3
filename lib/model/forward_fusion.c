/* Draft heads (EAGLE, MTP): one layer that reads a token and a hidden state of the target model, which
 * knows more about the text than the token alone.
 *
 *   e = embed(token), f = hidden states of the target for the position before   (norms where set)
 *
 *   fusion project (EAGLE-1 and 2, MTP):  x = [e; f] Wfusion + bias, and the layer reads x
 *   fusion attention (EAGLE-3):           x = f Wfusion, and Wq, Wk, Wv read [e; norm(x)]; with
 *                                         norm_residual, x = norm(x) from there on
 *
 * f has several hidden states of the target, one after the other, or one. While the head drafts on,
 * f is its own output: EAGLE-3 takes that as x, as it has the width of x already.
 *
 * For targets, this file keeps the hidden states of a step. */
#include "model/forward_fusion.h"

#include <stdlib.h>

#include "base/mem.h"
#include "model/forward_norm.h"
#include "quant/pack.h"

int forward_tap(struct forward *f, const size_t *layer, size_t n, struct err *err)
{
    const size_t width = n * f->model->config.hidden;
    free(f->tap.state);
    f->tap = (struct hidden_tap){.state = mem_alloc(f->max_rows, width * sizeof(float))};
    if (!f->tap.state)
        return err_no_memory(err, "%zu hidden states of %zu tokens", n, f->max_rows);
    f->tap.n = n;
    for (size_t i = 0; i < n; i++)
        f->tap.layer[i] = layer[i];
    return 0;
}

/* Copies `width` elements of each row from `from` to column `at` of `to`. */
static void copy_columns(float *to, size_t to_stride, size_t at, const float *from, size_t from_stride,
                         size_t width, size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(to + i * to_stride + at, from + i * from_stride, width * sizeof *to);
}

/* x = in Wfusion + bias */
static void project(struct forward *f, const float *in, size_t rows)
{
    const struct linear *w = &f->model->weights.fusion;
    const struct product product = {
        .w = &w->weight, .bias = w->bias, .y = f->x, .y_stride = f->model->config.hidden};
    gemm_run(f->gemm, &product, 1, in, w->weight.in, rows);
}

void fusion_embed(struct forward *f, const struct step *step)
{
    const struct weights *w = &f->model->weights;
    const struct config *c = &f->model->config;
    const size_t n = step->rows, hidden = c->hidden, width = c->embed + hidden;
    for (size_t i = 0; i < n; i++)
        mat_fetch_row(f->h + i * c->embed, &w->embed, step->token[i]);
    for (size_t i = 0; c->embed_scale != 0 && i < n * c->embed; i++)
        f->h[i] *= (float)c->embed_scale;
    if (c->embed_norm)
        norm_each(f, f->h, f->h, n, c->embed, &w->embed_norm);
    copy_columns(f->fused, width, 0, f->h, c->embed, c->embed, n);
    if (c->draft->fusion == FUSION_PROJECT) {
        const float *feature = f->feature;
        if (c->draft->feature_norm) {
            norm_each(f, f->h, feature, n, hidden, &w->feature_norm);
            feature = f->h;
        }
        copy_columns(f->fused, width, c->embed, feature, hidden, hidden, n);
        project(f, f->fused, n);
    } else if (f->own_features) {
        memcpy(f->x, f->feature, n * hidden * sizeof *f->x);
    } else {
        if (c->draft->feature_norm)
            norm_each(f, f->feature, f->feature, n, config_feature_width(c), &w->feature_norm);
        project(f, f->feature, n);
    }
}

const float *fusion_attn_input(struct forward *f, struct row_range rows, const float *normed)
{
    const struct config *c = &f->model->config;
    const size_t width = c->embed + c->hidden;
    if (!config_is_draft_head(c) || c->draft->fusion != FUSION_ATTENTION)
        return normed;
    if (c->draft->norm_residual)
        memcpy(f->x + rows.first * c->hidden, normed + rows.first * c->hidden,
               rows.n * c->hidden * sizeof *f->x);
    copy_columns(f->fused + rows.first * width, width, c->embed, normed + rows.first * c->hidden,
                 c->hidden, c->hidden, rows.n);
    return f->fused;
}

/* Keeps `x` as the i-th hidden state of each row. */
static void keep(struct forward *f, const float *x, size_t i, size_t rows)
{
    const size_t hidden = f->model->config.hidden;
    copy_columns(f->tap.state, f->tap.n * hidden, i * hidden, x, hidden, hidden, rows);
}

void tap_layer(struct forward *f, size_t rows, size_t layer)
{
    for (size_t i = 0; i < f->tap.n; i++)
        if (f->tap.layer[i] == layer)
            keep(f, f->x, i, rows);
}

void tap_final(struct forward *f, size_t rows)
{
    const struct config *c = &f->model->config;
    for (size_t i = 0; i < f->tap.n; i++) {
        if (f->tap.layer[i] != HIDDEN_FINAL)
            continue;
        if (c->final_norm)
            norm_rows(f, f->h, f->x, (struct row_range){0, rows}, &f->model->weights.final_norm);
        keep(f, c->final_norm ? f->h : f->x, i, rows);
    }
    tap_layer(f, rows, c->layers);
}
