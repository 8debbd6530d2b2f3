/* Products with the weights of one type (weights.cl): y (+)= act(x w + bias), or act(gate) * (x w + bias).
 *
 *   SLICES   slices that the inputs of a sum are divided into
 *
 * A sum over inputs has one order, whatever the kernel: slice s adds the products of groups s, s + SLICES.. of 32 inputs
 * by fma(), in ascending order; then the sums of slices 0, 1.. are added. */

/* The rows of a group, at most `most`. */
static struct cl_tile tile_of(const struct cl_product_args *a, uint most)
{
    if (a->tile)
        return AT(struct cl_tile, a->tile)[get_group_id(1)];
    const uint row = get_group_id(1) * most;
    return (struct cl_tile){a->w.data, a->bias, row, min(most, a->rows - min(a->rows, row))};
}

/* The block of output o, or its row. */
static global const uchar *block_of(const struct cl_product_args *a, const struct cl_tile *t, uint o)
{
    const uint at = min(o, a->w.out - 1);
    return AT(uchar, t->w) + (ulong)(a->w.packed ? at / 16 : at) * a->w.block_bytes;
}

static global const float *input_of(const struct cl_product_args *a, const struct cl_tile *t, uint r)
{
    const uint row = t->row + min(r, t->rows - 1);
    return AT(float, a->x) + (ulong)(a->in_row ? AT(uint, a->in_row)[row] : row) * a->x_stride;
}

static float factor_of(const struct cl_product_args *a, const struct cl_tile *t, uint r)
{
    return AT(float, a->weight)[AT(uint, a->choice)[t->row + min(r, t->rows - 1)]];
}

/* Inputs k to k + 7 of n, zeros behind them; `whole`: of addresses that are multiples of 16 bytes. */
static float8 load_inputs(global const float *x, uint k, uint n, uint whole)
{
    if (k + 8 <= n) {
        global const float4 *four = (global const float4 *)(x + k);
        return whole ? (float8)(four[0], four[1]) : vload8(0, x + k);
    }
    float v[8];
    for (uint i = 0; i < 8; i++)
        v[i] = k + i < n ? x[k + i] : 0;
    return vload8(0, v);
}

/* Stores the sum of output o and row r of a tile. */
static void finish(const struct cl_product_args *a, const struct cl_tile *t, uint r, uint o, float s)
{
    if (r >= t->rows || o >= a->w.out)
        return;
    if (t->bias)
        s += AT(float, t->bias)[o];
    global float *y = AT(float, a->y) + (ulong)(t->row + r) * a->y_stride + o;
    if (a->gate) {
        float g = AT(float, a->gate)[(ulong)(t->row + r) * a->gate_stride + o];
        const uint clamped = a->act == ACT_CLAMPED_SWIGLU;
        if (!clamped)
            g = activate(a->act, a->gate_scale != 0 ? a->gate_scale * g : g);
        if (a->limit != 0) {
            g = g > a->limit ? a->limit : g; /* NaN stays NaN */
            s = s > a->limit ? a->limit : s < -a->limit ? -a->limit : s;
        }
        s = clamped ? (s + 1) * (g / (1 + exp(-a->alpha * g))) : g * s;
    } else if (!a->raw) {
        s = activate(a->act, s);
    }
    *y = a->add ? *y + s : s;
}

/* R rows and 16 outputs, whose slices are divided among SLICES * 16 work-items: each weight is read once, by itself. */
INLINE void multiply(const struct cl_product_args *a, const uint R, local float *part)
{
    const uint lane = get_local_id(0), slice = get_local_id(1), o = get_group_id(0) * 16 + lane;
    const struct cl_tile t = tile_of(a, R);
    global const uchar *block = block_of(a, &t, o);
    global const float *x[CL_FEW_ROWS];
    float sum[CL_FEW_ROWS], by[CL_FEW_ROWS];
    for (uint r = 0; r < R; r++) {
        x[r] = input_of(a, &t, r);
        by[r] = a->choice ? factor_of(a, &t, r) : 1;
        sum[r] = 0;
    }
    for (uint k = slice * 32; k < a->w.in; k += SLICES * 32) {
#pragma unroll
        for (uint i = 0; i < 32; i += 8) {
            if (k + i >= a->w.in)
                break;
            float w[8], v[8];
            load_weights(w, &a->w, block, k + i, lane);
            for (uint r = 0; r < R; r++) {
                vstore8(load_inputs(x[r], k + i, a->w.in, a->whole), 0, v);
                for (uint j = 0; j < 8; j++)
                    sum[r] = fma(a->choice ? by[r] * v[j] : v[j], w[j], sum[r]);
            }
        }
    }
    for (uint r = 0; r < R; r++)
        part[(r * SLICES + slice) * 16 + lane] = sum[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint r = slice; r < R; r += SLICES) {
        float s = part[r * SLICES * 16 + lane];
        for (uint i = 1; i < SLICES; i++)
            s += part[(r * SLICES + i) * 16 + lane];
        finish(a, &t, r, o, s);
    }
}

kernel void product_one(const struct cl_product_args a)
{
    local float part[SLICES * 16];
    multiply(&a, 1, part);
}

kernel void product_few(const struct cl_product_args a)
{
    local float part[SLICES * 16 * CL_FEW_ROWS];
    multiply(&a, CL_FEW_ROWS, part);
}

/* CL_BLOCK rows and outputs: weights are dequantised once for all rows, into local memory. A work-item has 4 rows and 8
 * outputs, and computes their slices one after the other. */
kernel void product_block(const struct cl_product_args a)
{
    local float4 w[32][CL_BLOCK / 4], x[32][CL_BLOCK / 4];
    const uint column = get_local_id(0), row = get_local_id(1), item = row * (CL_BLOCK / 8) + column;
    const struct cl_tile t = tile_of(&a, CL_BLOCK);
    const uint first = get_group_id(0) * CL_BLOCK, own = item % CL_BLOCK, k_part = item / CL_BLOCK * 16;
    global const uchar *block = block_of(&a, &t, first + own);
    global const float *from = input_of(&a, &t, own);
    const float by = a.choice ? factor_of(&a, &t, own) : 1;
    float4 sum[4][2], part[4][2];
    for (uint s = 0; s < SLICES; s++) {
        for (uint i = 0; i < 8; i++)
            part[i / 2][i % 2] = 0;
        for (uint k = s * 32; k < a.w.in; k += SLICES * 32) {
            const uint end = min(32u, (a.w.in - k + 7) / 8 * 8);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint i = k_part; i < min(k_part + 16, end); i += 8) {
                float v[8];
                load_weights(v, &a.w, block, k + i, own % 16);
                for (uint j = 0; j < 8; j++)
                    ((local float *)w[i + j])[own] = v[j];
                vstore8(load_inputs(from, k + i, a.w.in, a.whole), 0, v);
                for (uint j = 0; j < 8; j++)
                    ((local float *)x[i + j])[own] = a.choice ? by * v[j] : v[j];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint i = 0; i < end; i++) {
                const float4 four = x[i][row], left = w[i][column], right = w[i][column + CL_BLOCK / 8];
                part[0][0] = fma(four.xxxx, left, part[0][0]);
                part[0][1] = fma(four.xxxx, right, part[0][1]);
                part[1][0] = fma(four.yyyy, left, part[1][0]);
                part[1][1] = fma(four.yyyy, right, part[1][1]);
                part[2][0] = fma(four.zzzz, left, part[2][0]);
                part[2][1] = fma(four.zzzz, right, part[2][1]);
                part[3][0] = fma(four.wwww, left, part[3][0]);
                part[3][1] = fma(four.wwww, right, part[3][1]);
            }
        }
        for (uint i = 0; i < 8; i++)
            sum[i / 2][i % 2] = s ? sum[i / 2][i % 2] + part[i / 2][i % 2] : part[i / 2][i % 2];
    }
    for (uint i = 0; i < 8; i++) {
        float four[4];
        vstore4(sum[i / 2][i % 2], 0, four);
        for (uint j = 0; j < 4; j++)
            finish(&a, &t, row * 4 + i / 2, first + i % 2 * (CL_BLOCK / 2) + column * 4 + j, four[j]);
    }
}
