/* KV entries: copies of ranges, and conversions of rows. */

/* Copies a range, and zeroes the bytes behind it, in units of a type. */
#define COPY_UNITS(type)                                                                               \
    for (ulong i = from; i < c.bytes / sizeof(type); i += step)                                        \
        AT(type, c.to)[i] = AT(type, c.from)[i];                                                       \
    for (ulong i = from; i < c.zeros / sizeof(type); i += step)                                        \
        AT(type, c.to + c.bytes)[i] = 0

/* Group 1 is the range, whose parts are divided among the groups 0. */
kernel void copy_ranges(const struct cl_list_args a)
{
    const struct cl_copy c = AT(struct cl_copy, a.list)[get_group_id(1)];
    const ulong from = get_global_id(0), step = get_global_size(0);
    if (a.unit == 16) {
        COPY_UNITS(uint4);
    } else if (a.unit == 4) {
        COPY_UNITS(uint);
    } else {
        COPY_UNITS(uchar);
    }
}

static ushort to_bf16(float x)
{
    const uint bits = as_uint(x);
    return isnan(x) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/* The squared error of x[d] quantised with the inverse scale `inverse`, as the CPU adds it up but for the order. */
INLINE float rounding_error(local const float *x, uint d, float inverse, local float *part)
{
    float sum = 0;
    for (uint j = get_local_id(0); j < d; j += CL_LANES) {
        const float y = x[j] * inverse, e = y - clamp(rint(y), -127.f, 127.f);
        sum = fma(e, e, sum);
    }
    return add_lanes(sum, part);
}

/* The magnitude that becomes 127: the largest one or, of rotated rows, the one of eight about it that is best. */
INLINE float range_of(local const float *x, uint d, bool search, local float *part)
{
    float most = 0, best = 127, least = FLT_MAX;
    for (uint j = get_local_id(0); j < d; j += CL_LANES)
        most = fmax(most, isfinite(x[j]) ? fabs(x[j]) : INFINITY);
    most = most_lanes(most, part);
    if (!search || !isfinite(127 / most))
        return most;
    for (uint i = 0; i < 8; i++) {
        const float top = 127.375f - 0.375f * (float)i;
        const float error = rounding_error(x, d, top / most, part) / (top * top);
        if (error < least) {
            least = error;
            best = top;
        }
    }
    return most * (127 / best);
}

/* Rows that become f32, bf16 or f16. Group 0 is the row, group 1 the element of the list. */
kernel void store_rows(const struct cl_list_args a)
{
    const struct cl_store s = AT(struct cl_store, a.list)[get_group_id(1)];
    const uint row = get_group_id(0);
    global const uchar *from = AT(uchar, s.from) + (ulong)row * s.from_stride;
    global uchar *to = AT(uchar, s.to) + (ulong)row * s.to_stride;
    for (uint j = get_local_id(0); j < s.d && row < s.rows; j += CL_LANES) {
        const float x = element(s.from_type, from, j);
        if (s.type == CL_F32)
            ((global float *)to)[j] = x;
        else if (s.type == CL_BF16)
            ((global ushort *)to)[j] = to_bf16(x);
        else
            vstore_half_rte(x, j, (global half *)to);
        if (s.type == CL_F16 && isfinite(x) && fabs(x) >= 65520)
            *AT(uint, a.overflowed) = 1;
    }
}

/* The same of rows that become q8. Rows beyond those of an element have no elements, as all work-items reach barriers. */
kernel void quantize_rows(const struct cl_list_args a)
{
    local float x[CL_STORE_ELEMENTS], part[CL_LANES];
    const struct cl_store s = AT(struct cl_store, a.list)[get_group_id(1)];
    const uint row = get_group_id(0), lane = get_local_id(0), d = row < s.rows ? s.d : 0;
    global const uchar *from = AT(uchar, s.from) + (ulong)row * s.from_stride;
    global uchar *to = AT(uchar, s.to) + (ulong)row * s.to_stride;
    for (uint j = lane; j < d; j += CL_LANES)
        x[j] = element(s.from_type, from, j);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (s.type == CL_Q8_TURN)
        rotate_lanes(x, d, hadamard_block(s.d));
    const float scale = range_of(x, d, s.type == CL_Q8_TURN, part) / 127;
    for (uint j = lane; j < d; j += CL_LANES)
        to[j] = isfinite(scale) && scale != 0 ? (uchar)(int)(clamp(rint(x[j] / scale), s.type == CL_Q8 ? -128.f : -127.f, 127.f) + 128)
                                              : 128;
    if (lane == 0 && d)
        *(global float *)(to + d) = scale;
}
