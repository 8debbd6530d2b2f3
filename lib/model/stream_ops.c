/* AltUp and the low-rank residual of Gemma 3n.
 *
 * AltUp (Alternating Updates, arXiv:2301.13310): each token has S hidden states x_0 .. x_(S-1), its streams, of which
 * layers compute x_0 only. With m(x) = tanh(norm(x) Wrouter / hidden), of S elements:
 *
 *   x_i = e Win_i * rms(e) / rms(e Win_i), x_0 = e                  for the embedding e
 *   before a layer:  x_i += sum of (m(x_0) Wpredict)[i][j] x_j      the prediction
 *   behind it:       d = layer(x_0) - x_0,  x_0 += d
 *                    x_i += (1 + (m(x_0) Wcorrect)[i]) d            for x_0 without the 1
 *   behind the last: x_0 = mean of x_0 and x_i Wout_i * rms(x_0) / rms(x_i Wout_i)
 *
 * Laurel (Learned Augmented Residual Layer, arXiv:2411.07501), of the input h of attention:
 *
 *   x = (x + attention(h) + h + norm(h Wleft Wright)) / sqrt(2) */
#include "model/op_list.h"

#include "quant/pack.h"

static_assert((int)MAX_STREAMS == OP_BLENDED, "all streams are blended at once");

static struct op_arg stream_of(struct builder *b, size_t i)
{
    return columns(hidden_of(b, BUFFER_X), i * b->c->hidden);
}

/* The matrix of stream i, from 1 on, of a stack. */
static struct op_weight stream_weight_of(struct builder *b, const struct linear *first, size_t i)
{
    struct linear w = *first;
    const struct mat *mat = &first->weight;
    if (mat->data)
        w.weight.data = (const char *)mat->data +
                        (i - 1) * layout_bytes(mat->layout, mat->dtype, mat->out, mat->in);
    struct op_weight to = weight_of(b, &w);
    to.of = first;
    return to;
}

/* y = x W of stream i, with the root mean square of `like` */
static void project_stream(struct builder *b, const struct linear *first, size_t i, struct op_arg x,
                           struct op_arg y, struct op_arg like)
{
    const struct op_product product = {.w = stream_weight_of(b, first, i), .y = y};
    op_linear(b, x, &product, 1);
    append_op(b, OP_MATCH, like, y, b->c->hidden);
}

void split_streams(struct builder *b)
{
    const struct op_arg x = hidden_of(b, BUFFER_X);
    for (size_t i = 1; i < b->c->stream.n && pipeline_is_first(&b->f->pipeline); i++)
        project_stream(b, &b->weights->stream_in, i, x, stream_of(b, i), x);
}

void merge_streams(struct builder *b)
{
    if (!b->c->stream.n || !pipeline_is_last(&b->f->pipeline))
        return;
    const struct op_arg x = hidden_of(b, BUFFER_X), h = hidden_of(b, BUFFER_H),
                        sum = hidden_of(b, BUFFER_STREAM_CHANGE);
    const size_t n = b->c->hidden;
    b->phase = PHASE_OTHER;
    op_copy(b, sum, x, n);
    for (size_t i = 1; i < b->c->stream.n; i++) {
        project_stream(b, &b->weights->stream_out, i, stream_of(b, i), h, x);
        op_add(b, sum, h, n);
    }
    op_copy(b, x, sum, n);
    op_scale(b, x, n, 1 / (double)b->c->stream.n);
}

/* out_i += sum of (m(x_0) W)[i][j] in_j */
static void blend(struct builder *b, const struct linear *w, struct op_arg in, size_t ins)
{
    const size_t n = b->c->hidden, streams = b->c->stream.n;
    const struct op_arg x = hidden_of(b, BUFFER_X), h = hidden_of(b, BUFFER_H),
                        routed = buffer_of(b, BUFFER_STREAM_ROUTED, streams),
                        coef = buffer_of(b, BUFFER_STREAM_MIX, streams * ins);
    const struct op_product router = {.w = weight_of(b, &b->w->stream_router),
                                      .y = routed,
                                      .f32 = true},
                            mix = {.w = weight_of(b, w), .y = coef, .f32 = true};
    op_norm(b, x, h, n, &b->w->stream_norm);
    op_scale(b, h, n, 1 / (double)n);
    op_linear(b, h, &router, 1);
    append_op(b, OP_SOFTCAP, routed, routed, streams)->limit = 1;
    op_linear(b, routed, &mix, 1);
    append_op(b, OP_BLEND, in, x, n)->blend = (struct op_blend){coef, ins, streams};
}

void predict_streams(struct builder *b)
{
    if (!b->c->stream.n)
        return;
    const struct op_arg x = hidden_of(b, BUFFER_X), change = hidden_of(b, BUFFER_STREAM_CHANGE);
    b->phase = PHASE_OTHER;
    blend(b, &b->w->stream_predict, x, b->c->stream.n);
    op_copy(b, change, x, b->c->hidden);
    op_scale(b, change, b->c->hidden, -1);
}

void correct_streams(struct builder *b)
{
    if (!b->c->stream.n)
        return;
    const struct op_arg x = hidden_of(b, BUFFER_X), change = hidden_of(b, BUFFER_STREAM_CHANGE);
    b->phase = PHASE_OTHER;
    op_add(b, change, x, b->c->hidden);
    blend(b, &b->w->stream_correct, change, 1);
    for (size_t i = 1; i < b->c->stream.n; i++)
        op_add(b, stream_of(b, i), change, b->c->hidden);
}

void laurel(struct builder *b, struct op_arg h)
{
    if (!b->c->stream.laurel_rank)
        return;
    const struct op_arg latent = buffer_of(b, BUFFER_LAUREL_LATENT, b->c->stream.laurel_rank),
                        out = hidden_of(b, BUFFER_LAUREL);
    const struct op_product left = {.w = weight_of(b, &b->w->laurel_in), .y = latent},
                            right = {.w = weight_of(b, &b->w->laurel_out), .y = out};
    b->phase = PHASE_PROJECTION;
    op_linear(b, h, &left, 1);
    op_linear(b, latent, &right, 1);
    op_norm(b, out, out, b->c->hidden, &b->w->laurel_norm);
    op_add(b, out, h, b->c->hidden);
}

void add_laurel(struct builder *b)
{
    const struct op_arg x = hidden_of(b, BUFFER_X);
    if (!b->c->stream.laurel_rank)
        return;
    op_add(b, x, hidden_of(b, BUFFER_LAUREL), b->c->hidden);
    op_scale(b, x, b->c->hidden, sqrt(0.5));
}
