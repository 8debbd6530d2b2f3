/* Template: the int8 micro-kernel. Multiplies R activation rows by V registers of outputs of a q
 * tile (32 inputs of 16 outputs).
 *
 * For quant group n of the q tile (inputs that share a scale), row i and register v:
 *   dot = start_i + sum over the group's inputs of q_w * q_x           exact, in int32_t
 *   y   = fma(scale_w * dot, scale_x, y)
 *   y   = fma(min_w, scale_x * sum of q_x, y)                          if the type has a min
 * start_i subtracts the zero point (interleave.h). */
#pragma once

#include "kernel/template/interleave.h"

/* Dimensions of the accumulator arrays, large enough for every tile. */
enum {
    ACC_MR = SMALLM_MR > CHANNEL_MR ? SMALLM_MR : CHANNEL_MR,
    ACC_VECS = PANEL_BLOCKS * NR_VECS,
};
_Static_assert((int)INT8_MR <= (int)ACC_MR, "accumulators hold every tile");

#define FOR_ACC(DO)                                                                                    \
    UNROLL(for (int i = 0; i < R; i++))                                                                \
    UNROLL(for (int v = 0; v < V; v++))                                                                \
    DO

/* Operands of the products of one q tile. */
struct qtile_operands {
    /* q tiles; unpacked to bytes, at each register's outputs */
    const unsigned char *w[ACC_VECS];
    int g;             /* the outputs [g * VW, (g + 1) * VW) of the q tiles are multiplied */
    enum dtype stored; /* format of w: DTYPE_Q8_0 if unpacked to bytes */
    const char *x;     /* interleaved activation rows */
};

INLINE void load_weight_line(const int V, vu w[ACC_VECS], const struct qtile_operands *from,
                             const int line)
{
    UNROLL(for (int v = 0; v < V; v++))
    w[v] = vu_keep(load_line(from->stored, from->w[v], line, from->g));
}

#ifdef INT8_PAIRS
/* Returns how many lines (4 inputs each) of products are summed in 16 bits before the sums are
 * widened to 32. */
INLINE int lines_at_a_time(enum dtype type, int lines)
{
    const int most = INT8_PAIRS(quant_integer_bits(type));
    return most < lines ? most : lines;
}

INLINE void dot_lines(const int R, const int V, enum dtype type, vi dot[ACC_MR][ACC_VECS],
                      const struct qtile_operands *from, const int first, const int lines)
{
    vs pairs[ACC_MR][ACC_VECS] = {{{0}}};
    UNROLL(for (int line = first; line < first + lines; line++))
    {
        vu w[ACC_VECS];
        load_weight_line(V, w, from, line);
        UNROLL(for (int i = 0; i < R; i++))
        {
            const vi x = load_word(from->x + INTERLEAVED_Q(R, line, i));
            UNROLL(for (int v = 0; v < V; v++))
            pairs[i][v] += vs_pairs(quant_integer_bits(type), w[v], x);
        }
    }
    FOR_ACC(dot[i][v] += vi_join(pairs[i][v]));
}
#else
INLINE int lines_at_a_time(enum dtype type, int lines) { return (void)type, (void)lines, 1; }

INLINE void dot_lines(const int R, const int V, enum dtype type, vi dot[ACC_MR][ACC_VECS],
                      const struct qtile_operands *from, const int line, const int one)
{
    vu w[ACC_VECS];
    (void)one;
    load_weight_line(V, w, from, line);
    UNROLL(for (int i = 0; i < R; i++))
    {
        const vi x = load_word(from->x + INTERLEAVED_Q(R, line, i));
        UNROLL(for (int v = 0; v < V; v++))
        dot[i][v] = vi_dot4_bits(quant_integer_bits(type), dot[i][v], w[v], x);
    }
}
#endif

/* dot[i][v] += sum over the inputs of quant group n of q_w * q_x. */
INLINE void dot_group(const int R, const int V, enum dtype type, vi dot[ACC_MR][ACC_VECS],
                      const struct qtile_operands *from, const int n)
{
    const int lines = QTILE_LINES / qtile_groups(type), step = lines_at_a_time(type, lines);
    UNROLL(for (int line = n * lines; line < (n + 1) * lines; line += step))
    dot_lines(R, V, type, dot, from, line, step);
}

/* Returns the f32 sums y plus the scaled integer products `dot` of quant group n and activation
 * row i. */
INLINE vf add_scaled(const int R, enum dtype type, vf y, vi dot, const struct qscale_vec *w_scale,
                     vf w_magic, const char *x, int n, int i)
{
    const vf scaled = scale_magic_int(dot, w_scale->scale, w_magic);
    y = vf_fma(scaled, (vf)load_word(x + INTERLEAVED_SCALE(R, i)), y);
    if (quant_has_min(type))
        y = vf_fma(w_scale->min, (vf)load_word(x + INTERLEAVED_SUM(R, n, i)), y);
    return y;
}
