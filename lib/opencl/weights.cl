/* Weights of one type, whose properties (quant/quant_types.h) are macros:
 *
 *   ELEMENT            0: quantised; else bytes of an f32, f16 or bf16 (BF16)
 *   BITS ZERO CODEBOOK of quantised values
 *   MAIN MIN D DMIN    bytes of the scale arrays; EVERY_.. inputs that share an element, 0: all
 *   OFFSET POWER PAIRED E4M3 ZEROS SIGNED   as the members of struct quant_types with these names; SIGNED: the scale is an int8 */
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
