/* Products with the weights of one type, and rows of tables. The type's properties (quant/quant_types.h) are macros:
 *
 *   ELEMENT            0: quantised; else bytes of an f32, f16 or bf16 (BF16)
 *   BITS ZERO CODEBOOK of quantised values
 *   MAIN MIN D DMIN    bytes of the scale arrays; EVERY_.. inputs that share an element, 0: all
 *   OFFSET POWER PAIRED E4M3 ZEROS SIGNED   as the members of struct quant_types with these names; SIGNED: the scale is an int8
 *   SLICES             work-items that share an output
 *
 * A sum over inputs has one order, whatever the number of rows: slice s adds the products of groups s, s + SLICES.. of 32
 * inputs by fma(), then the slices' sums are added in pairs. */

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

/* Quantised value number k of output `lane` of a block; constant k % 32 lets compilers load each word once. */
static int q_of(global const uchar *block, uint k, uint lane)
{
#if ELEMENT
    return 0;
#elif BITS == 8
    return block[(k / 4 * 16 + lane) * 4 + k % 4];
#else
    global const uint *tile = (global const uint *)(block + k / 32 * (64 * BITS)) + lane;
    const uint i = k % 32;
    uint q = 0;
#if BITS & 4
    q = tile[i / 8 * 16] >> (i % 4 * 8 + i % 8 / 4 * 4) & 15;
#endif
#if BITS & 2
    q |= (tile[((BITS & 4) + i / 16) * 16] >> (i % 4 * 8 + i % 16 / 4 * 2) & 3) << (BITS & 4);
#endif
#if BITS & 1
    q |= (tile[(BITS & 6) * 16] >> (i % 4 * 8 + i / 4) & 1) << (BITS & 6);
#endif
#if CODEBOOK
    return codebook[q];
#elif BITS == 1
    return 2 * q;
#else
    return q;
#endif
#endif
}

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
    for (uint i = 0; i < 8; i++)
        to[i] = fma(v.x, (float)(q_of(block, k + i, lane) - ZERO), v.y);
#endif
}

/* y (+)= act(x w + bias), or act(gate) * (x w + bias), of rows [row, row + R) and 16 outputs. */
static void multiply(const struct cl_product_args *a, const uint R, local float *part)
{
    const uint lane = get_local_id(0), slice = get_local_id(1), block_at = get_group_id(0);
    const uint groups = (a->w.in + 31) / 32, o = block_at * 16 + lane;
    struct cl_tile t = {a->w.data, a->bias, get_group_id(1) * R, 0};
    t.rows = min(R, a->rows - min(a->rows, t.row));
    if (a->tile)
        t = AT(struct cl_tile, a->tile)[get_group_id(1)];
    global const uchar *block = AT(uchar, t.w) + (ulong)(a->w.packed ? block_at : min(o, a->w.out - 1)) * a->w.block_bytes;
    global const float *x[CL_TILE_ROWS];
    float sum[CL_TILE_ROWS], by[CL_TILE_ROWS];
    for (uint r = 0; r < R; r++) {
        const uint row = t.row + min(r, t.rows - 1);
        x[r] = AT(float, a->x) + (ulong)(a->in_row ? AT(uint, a->in_row)[row] : row) * a->x_stride;
        by[r] = a->choice ? AT(float, a->weight)[AT(uint, a->choice)[row]] : 1;
        sum[r] = 0;
    }
    for (uint g = slice; g < groups; g += SLICES)
        for (uint k = 32 * g; k < 32 * g + 32; k += 8) {
            float w[8];
            if (k >= a->w.in)
                break;
            load_weights(w, &a->w, block, k, lane);
            for (uint r = 0; r < R; r++) {
                float v[8];
                if (k + 8 <= a->w.in) {
                    const float8 whole = vload8(0, x[r] + k);
                    vstore8(whole, 0, v);
                } else {
                    for (uint i = 0; i < 8; i++)
                        v[i] = k + i < a->w.in ? x[r][k + i] : 0;
                }
                for (uint i = 0; i < 8; i++)
                    sum[r] = fma(a->choice ? by[r] * v[i] : v[i], w[i], sum[r]);
            }
        }
    for (uint r = 0; r < R; r++)
        part[(r * SLICES + slice) * 16 + lane] = sum[r];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint apart = SLICES / 2; apart; apart /= 2) {
        for (uint r = 0; r < R && slice < apart; r++)
            part[(r * SLICES + slice) * 16 + lane] += part[(r * SLICES + slice + apart) * 16 + lane];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint r = slice; r < t.rows && o < a->w.out; r += SLICES) {
        float s = part[r * SLICES * 16 + lane] + (t.bias ? AT(float, t.bias)[o] : 0);
        global float *y = AT(float, a->y) + (ulong)(t.row + r) * a->y_stride + o;
        if (a->gate) {
            float g = AT(float, a->gate)[(ulong)(t.row + r) * a->gate_stride + o];
            if (a->act == ACT_CLAMPED_SWIGLU) {
                g = fmin(g, a->limit);
                s = clamp(s, -a->limit, a->limit);
                s = (s + 1) * (g / (1 + exp(-a->alpha * g)));
            } else {
                s = activate(a->act, a->gate_scale != 0 ? a->gate_scale * g : g) * s;
            }
        } else if (!a->raw) {
            s = activate(a->act, s);
        }
        *y = a->add ? *y + s : s;
    }
}

/* A row alone, and CL_TILE_ROWS rows, which read the weights once. */
kernel void product_one(const struct cl_product_args a)
{
    local float part[SLICES * 16];
    multiply(&a, 1, part);
}

kernel void product_tile(const struct cl_product_args a)
{
    local float part[SLICES * 16 * CL_TILE_ROWS];
    multiply(&a, CL_TILE_ROWS, part);
}

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
