/* What all kernels share. Nothing is contracted, so that a value does not depend on the kernel that computes it. */
#pragma OPENCL FP_CONTRACT OFF

/* Of functions that get local arrays: a compiler that finds one array in all calls may pass it no more, and PoCL has one
 * array for all work-groups where a function, not a kernel, refers to it. */
#define INLINE static inline __attribute__((always_inline))

#define AT(type, address) ((global type *)(address))

#define ACT_NONE           0
#define ACT_RELU           1
#define ACT_SILU           2
#define ACT_GELU           3
#define ACT_GELU_TANH      4
#define ACT_SIGMOID        5
#define ACT_RELU2          6
#define ACT_QUICK_GELU     7
#define ACT_CLAMPED_SWIGLU 8

static float activate(uint act, float x)
{
    switch (act) {
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_SILU: return x / (1 + exp(-x));
    case ACT_SIGMOID: return 1 / (1 + exp(-x));
    case ACT_GELU: return 0.5f * x * (1 + erf(x * 0.70710678f));
    case ACT_GELU_TANH: return 0.5f * x * (1 + tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case ACT_RELU2: return x > 0 ? x * x : 0;
    case ACT_QUICK_GELU: return x / (1 + exp(-1.702f * x));
    default: return x;
    }
}

/* Adds up, or finds the largest of, the values of all CL_LANES work-items, in one order; all get it. */
INLINE float add_lanes(float x, local float *part)
{
    const uint lane = get_local_id(0);
    part[lane] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint apart = CL_LANES / 2; apart; apart /= 2) {
        if (lane < apart)
            part[lane] += part[lane + apart];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    x = part[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return x;
}

INLINE float most_lanes(float x, local float *part)
{
    const uint lane = get_local_id(0);
    part[lane] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint apart = CL_LANES / 2; apart; apart /= 2) {
        if (lane < apart)
            part[lane] = fmax(part[lane], part[lane + apart]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    x = part[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return x;
}

/* Rotates x[n], n / block blocks, by a Hadamard matrix (quant/hadamard.h). */
INLINE void rotate_lanes(local float *x, uint n, uint block)
{
    for (uint apart = 1; apart < block; apart *= 2) {
        for (uint i = get_local_id(0); i < n / 2; i += get_local_size(0)) {
            const uint at = i / apart * 2 * apart + i % apart;
            const float a = x[at], b = x[at + apart];
            x[at] = a + b;
            x[at + apart] = a - b;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const float by = sqrt(1 / (float)block);
    for (uint i = get_local_id(0); i < n; i += get_local_size(0))
        x[i] *= by;
    barrier(CLK_LOCAL_MEM_FENCE);
}

static uint hadamard_block(uint n)
{
    const uint power = n & (0 - n);
    return power < 256 ? power : 256;
}

static float from_bf16(ushort x) { return as_float((uint)x << 16); }

/* Element i of a row of a type of KV entries without a scale. */
static float element(uint type, global const uchar *row, uint i)
{
    switch (type) {
    case CL_F32: return ((global const float *)row)[i];
    case CL_BF16: return from_bf16(((global const ushort *)row)[i]);
    case CL_F16: return vload_half(i, (global const half *)row);
    default: return (float)row[i] - 128;
    }
}

/* Elements i to i + 3, of which those in a row of a type other than q8 have addresses that are multiples of their bytes. */
static float4 four_elements(uint type, global const uchar *row, uint i)
{
    switch (type) {
    case CL_F32: return *(global const float4 *)(row + 4 * i);
    case CL_BF16: return as_float4(convert_uint4(*(global const ushort4 *)(row + 2 * i)) << 16);
    case CL_F16: return vloada_half4(i / 4, (global const half *)row);
    default: return convert_float4(as_uchar4(*(global const uint *)(row + i))) - 128;
    }
}
