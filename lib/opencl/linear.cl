/* Products with the weights of one type, and rows of tables. The type's properties (quant/quant_types.h) are macros:
 *
 *   ELEMENT            0: quantised; else bytes of an f32, f16 or bf16 (BF16)
 *   BITS ZERO CODEBOOK of quantised values
 *   MAIN MIN D DMIN    bytes of the scale arrays; EVERY_.. inputs that share an element, 0: all
 *   OFFSET POWER PAIRED E4M3 ZEROS SIGNED   as the members of struct quant_types with these names; SIGNED: the scale is an int8
 *   SLICES             slices that the inputs of a sum are divided into
 *
 * A sum over inputs has one order, whatever the kernel: slice s adds the products of groups s, s + SLICES.. of 32 inputs
 * by fma(), in ascending order; then the sums of slices 0, 1.. are added. */

#if CODEBOOK
constant uchar codebook[16] = {CODEBOOK_VALUES};
#endif

/* Element `lane` of 16 of scale array p that belongs to input k. */
#define SCALE_AT(w, block, p, every, bytes, k, lane)                                                   \
    ((block) + (w)->scales[p] + ((every) ? (k) / (every) * 16 : 0) * (bytes) + (lane) * (bytes))

static float load_f16(global const uchar *at) { return vload_half(0, (global const half *)at); }

/* Scale and min of the group of input k. */
static float2 scale_of(const struct cl_matrix *w, global const uchar *block, uint k, uint lane)
{
    float2 v = (float2)(0, 0);
#if !ELEMENT
    global const uchar *level = SCALE_AT(w, block, 0, EVERY_MAIN, MAIN, k, lane);
#if PAIRED
    v.x = load_f16(SCALE_AT(w, block, 2, EVERY_D, D, k, lane)) * (float)(*level & 15);
    v.y = -(load_f16(SCALE_AT(w, block, 3, EVERY_DMIN, DMIN, k, lane)) * (float)(*level >> 4));
#elif D && !MAIN
    v.x = load_f16(SCALE_AT(w, block, 2, EVERY_D, D, k, lane));
#elif D
    v.x = load_f16(SCALE_AT(w, block, 2, EVERY_D, D, k, lane)) * (SIGNED ? (float)(char)*level : (float)*level);
#if MIN
    v.y = -(load_f16(SCALE_AT(w, block, 3, EVERY_DMIN, DMIN, k, lane)) *
            (float)*SCALE_AT(w, block, 1, EVERY_MIN, MIN, k, lane));
#endif
#elif POWER
    v.x = *level < 2 ? as_float(0x200000u << *level) : as_float((uint)(*level - 1) << 23);
#elif E4M3
    v.x = (float)((*level & 7) + (*level >> 3 & 15 ? 8 : 0)) * as_float((max(*level >> 3 & 15, 1) + 116) << 23);
#elif MAIN == 4
    v.x = *(global const float *)level;
#else
    v.x = load_f16(level);
#endif
#if ZEROS
    v.y = -(v.x * (float)*SCALE_AT(w, block, 1, EVERY_MIN, MIN, k, lane));
#endif
#if OFFSET
    v.y = load_f16(SCALE_AT(w, block, 1, EVERY_MIN, MIN, k, lane));
#endif
#endif
    return v;
}

#if !ELEMENT
/* Quantised values k to k + 3, and k + 4 to k + 7, of output `lane` of a block: a byte each. */
static uint2 bytes_of(global const uchar *block, uint k, uint lane)
{
#if BITS == 8
    global const uint *word = (global const uint *)block + k / 4 * 16 + lane;
    return (uint2)(word[0], word[16]);
#else
    global const uint *tile = (global const uint *)(block + k / 32 * (64 * BITS)) + lane;
    const uint i = k % 32;
    uint2 q = 0;
#if BITS & 4
    const uint four = tile[i / 8 * 16];
    q = (uint2)(four, four >> 4) & 0x0f0f0f0f;
#endif
#if BITS & 2
    const uint two = tile[((BITS & 4) + i / 16) * 16] >> (i % 16 / 4 * 2);
    q |= ((uint2)(two, two >> 2) & 0x03030303) << (BITS & 4);
#endif
#if BITS & 1
    const uint one = tile[(BITS & 6) * 16] >> (i / 4);
    q |= ((uint2)(one, one >> 1) & 0x01010101) << (BITS & 6);
#endif
    return BITS == 1 ? q << 1 : q;
#endif
}

/* Byte i of q less the zero point, exactly: it becomes the low bits of 2^23, as conversions of integers are slow on GPUs. */
static float value_of(uint q, uint i)
{
#if CODEBOOK
    return (float)codebook[q >> 8 * i & 255] - ZERO;
#else
    const uint bits = i < 2 ? q : q >> 16;
    return i % 2 ? fma(as_float(bits & 0xff00 | 0x4b000000), 0x1p-8f, -(0x1p15f + ZERO))
                 : as_float(bits & 0xff | 0x4b000000) - (0x1p23f + ZERO);
#endif
}
#endif

/* Weights k to k + 7 of output `lane` of a block, or of a row; k is a multiple of 8. */
static void load_weights(float *to, const struct cl_matrix *w, global const uchar *block, uint k, uint lane)
{
#if ELEMENT
#if BF16
#define WEIGHT(at) from_bf16(((global const ushort *)block)[at])
    const uint pair = 2;
#elif ELEMENT == 2
#define WEIGHT(at) vload_half(at, (global const half *)block)
    const uint pair = 1;
#else
#define WEIGHT(at) ((global const float *)block)[at]
    const uint pair = 1;
#endif
    for (uint i = 0; i < 8; i++) {
        const uint at = w->packed ? (k + i) / pair * (pair * 16) + pair * lane + (k + i) % pair : k + i;
        to[i] = w->packed || k + i < w->in ? WEIGHT(at) : 0;
    }
#else
    const float2 v = scale_of(w, block, k, lane);
    const uint2 q = bytes_of(block, k, lane);
    for (uint i = 0; i < 4; i++) {
        to[i] = fma(v.x, value_of(q.x, i), v.y);
        to[4 + i] = fma(v.x, value_of(q.y, i), v.y);
    }
#endif
}

/* ---- products: y (+)= act(x w + bias), or act(gate) * (x w + bias) ---- */

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
            g = fmin(g, a->limit);
            s = clamp(s, -a->limit, a->limit);
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

/* ---- tables ---- */

/* 8 columns of a row of a table. */
kernel void fetch_rows(const struct cl_fetch_args a)
{
    const uint row = get_group_id(1), first = get_global_id(0) * 8;
    if (first >= a.width)
        return;
    const uint from = a.index ? AT(uint, a.index)[row] : 0, k = (a.from + first) / 8 * 8;
    global const uchar *block = AT(uchar, a.table.data) + (ulong)(a.table.packed ? from / 16 : from) * a.table.block_bytes;
    global float *y = AT(float, a.out) + (ulong)row * a.out_stride;
    float w[8];
    for (uint part = 0; part < 2; part++) {
        load_weights(w, &a.table, block, k + 8 * part, from % 16);
        for (uint i = 0; i < 8; i++) {
            const uint at = k + 8 * part + i - a.from;
            if (k + 8 * part + i < a.from + first || at >= min(first + 8, a.width))
                continue;
            y[at] = a.add ? (y[at] + w[i] * a.factor) * sqrt(0.5f) : a.factor != 0 ? w[i] * a.factor : w[i];
        }
        if (k + 8 >= a.from + min(first + 8, a.width))
            break;
    }
}
