/* Embeddings: x of the first layer, per-layer embeddings, and the input of draft heads.
 *
 * Inputs of layers (per-layer embeddings of Gemma 3n and 4), and factors of layers' outputs:
 *
 *   input[layer] = (norm(x Winputs / sqrt(hidden)) + sqrt(w) embed_layers(token)) / sqrt(2)     [rows][w]
 *
 * for the embedding x and w = layer_input; and after each layer
 *
 *   x += norm((act(x Wgate) * input[layer]) Wout)           with AltUp: of stream_scale * x; to all streams but x
 *   x *= scale
 *
 * Draft heads (EAGLE, MTP): one layer that reads a token and a hidden state of the target model, which
 * knows more about the text than the token alone.
 *
 *   e = embed(token), f = hidden states of the target for the position before   (norms where set)
 *
 *   fusion project (EAGLE-1 and 2, MTP):  x = [e; f] Wfusion + bias, and the layer reads x
 *   fusion attention (EAGLE-3):           x = f Wfusion, and Wq, Wk, Wv read [e; norm(x)]; with
 *                                         norm_residual, x = norm(x) from there on
 *
 * f has several hidden states of the target, one after the other, or one. While the head drafts on,
 * f is its own output: EAGLE-3 takes that as x, as it has the width of x already. */
#include "model/op_list.h"

/* ---- inputs of layers ---- */

static struct op_arg layer_inputs_of(struct builder *b)
{
    return buffer_of(b, BUFFER_LAYER_INPUTS, b->f->pipeline.n_layers * b->c->layer_input.width);
}

static void layer_inputs(struct builder *b)
{
    const struct config *c = b->c;
    const size_t layers = b->f->pipeline.n_layers, n = layers * c->layer_input.width;
    const struct op_arg inputs = layer_inputs_of(b);
    const struct op_product product = {.w = weight_of(b, &b->weights->layer_inputs), .y = inputs};
    if (!n)
        return;
    op_linear(b, hidden_of(b, BUFFER_X), &product, 1);
    op_scale(b, inputs, n, 1 / sqrt((double)c->hidden));
    op_norm_groups(b, inputs, c->layer_input.width, layers, false, 0, &b->weights->layer_inputs_norm);
    append_op(b, OP_FETCH_ADD, inputs, inputs, n)->fetch =
        (struct op_fetch){.table = matrix_of(b, &b->weights->embed_layers),
                          .from = b->f->pipeline.first_layer * c->layer_input.width,
                          .factor = sqrtf((float)c->layer_input.width)};
}

void add_layer_input(struct builder *b)
{
    const struct config *c = b->c;
    const size_t n = c->layer_input.width;
    const struct op_arg x = hidden_of(b, BUFFER_X);
    if (n) {
        const struct op_arg out = hidden_of(b, BUFFER_H), gate = buffer_of(b, BUFFER_LAYER_GATE, n),
                            input = columns(layer_inputs_of(b),
                                            (b->layer - b->f->pipeline.first_layer) * n);
        const struct op_product project = {.w = weight_of(b, &b->w->input_out), .y = out};
        struct op_product product = activated(b, 0);
        product.w = weight_of(b, &b->w->input_gate);
        product.y = gate;
        if (c->stream.n) {
            op_copy(b, out, x, c->hidden);
            struct op *op = append_op(b, OP_SCALE, out, out, c->hidden);
            op->scale.by = vector_of(b, b->w->stream_scale, c->hidden);
            op->scale.columns = true;
        }
        op_linear(b, c->stream.n ? out : x, &product, 1);
        op_gate(b, gate, input, n, EPILOGUE_NONE);
        op_linear(b, gate, &project, 1);
        op_norm(b, out, out, c->hidden, &b->w->input_norm);
        if (!c->stream.n)
            op_add(b, x, out, c->hidden);
        for (size_t i = 1; i < c->stream.n; i++)
            op_add(b, columns(x, i * c->hidden), out, c->hidden);
    }
    if (b->w->scale)
        append_op(b, OP_SCALE, x, x, c->hidden)->scale.by = vector_of(b, b->w->scale, 1);
}

/* ---- x of the first layer ---- */

static void add_row(struct builder *b, const struct mat *table, enum op_row row, size_t offset)
{
    const struct op_arg x = hidden_of(b, BUFFER_X), h = hidden_of(b, BUFFER_H);
    struct op *op = op_fetch(b, h, table, 0);
    op->fetch.row = row;
    op->fetch.offset = offset;
    op_add(b, x, h, b->c->hidden);
}

/* x = norm(embed(token) * scale Win + position + type): norm, scale, Win, learned positions and a token type only
 * where the model has them. */
void embedding(struct builder *b)
{
    const struct config *c = b->c;
    const struct weights *w = b->weights;
    const struct op_arg x = hidden_of(b, BUFFER_X);
    if (w->project_in.weight.data) {
        const struct op_arg embedded = buffer_of(b, BUFFER_EMBEDDED, c->embed);
        const struct op_product product = {.w = weight_of(b, &w->project_in),
                                           .y = own_columns(b, x, DIM_HIDDEN)};
        op_fetch(b, embedded, &w->embed, c->embed_scale);
        op_linear(b, embedded, &product, 1);
        op_gather(b, DIM_HIDDEN, product.y, x);
    } else {
        op_fetch(b, x, &w->embed, c->embed_scale);
    }
    if (c->token_types)
        add_row(b, &w->token_type, ROW_SEGMENT, 0);
    if (c->position == POSITION_LEARNED)
        add_row(b, &w->position, ROW_POSITION, c->position_offset);
    if (c->embed_norm)
        op_norm(b, x, x, c->hidden, &w->embed_norm);
    layer_inputs(b);
    split_streams(b);
}

/* ---- draft heads ---- */

static struct op_arg fused_of(struct builder *b)
{
    return buffer_of(b, BUFFER_FUSED, b->c->embed + b->c->hidden);
}

/* x of a draft head, from tokens and the hidden states that the caller sets: the target's, or the head's own. */
void draft_embedding(struct builder *b, bool own_features)
{
    const struct config *c = b->c;
    const struct op_arg x = hidden_of(b, BUFFER_X), embedded = buffer_of(b, BUFFER_H, c->embed),
                        normed = hidden_of(b, BUFFER_H), fused = fused_of(b);
    const size_t width =
        own_features || c->draft->fusion == FUSION_PROJECT ? c->hidden : config_feature_width(c);
    struct op_arg feature = buffer_of(b, BUFFER_FEATURE, width);
    struct op_product product = {.w = weight_of(b, &b->weights->fusion), .y = x};
    op_fetch(b, embedded, &b->weights->embed, c->embed_scale);
    if (c->embed_norm)
        op_norm(b, embedded, embedded, c->embed, &b->weights->embed_norm);
    op_copy(b, fused, embedded, c->embed);
    if (c->draft->fusion == FUSION_PROJECT) {
        if (c->draft->feature_norm) {
            op_norm(b, feature, normed, c->hidden, &b->weights->feature_norm);
            feature = normed;
        }
        op_copy(b, columns(fused, c->embed), feature, c->hidden);
        op_linear(b, fused, &product, 1);
    } else if (own_features) {
        op_copy(b, x, feature, c->hidden);
    } else {
        if (c->draft->feature_norm)
            op_norm(b, feature, feature, width, &b->weights->feature_norm);
        op_linear(b, feature, &product, 1);
    }
}

struct op_arg join_embedding(struct builder *b, struct op_arg h)
{
    const struct config *c = b->c;
    if (!config_is_draft_head(c) || c->draft->fusion != FUSION_ATTENTION)
        return h;
    if (c->draft->norm_residual)
        op_copy(b, hidden_of(b, BUFFER_X), h, c->hidden);
    op_copy(b, columns(fused_of(b), c->embed), h, c->hidden);
    return fused_of(b);
}
