/* Adds up the partial results of attention's blocks (attend.cl), in order. */

/* Group 1 is the head, 2 the row, from a.row on. */
kernel void merge_blocks(const struct cl_attend_args a)
{
    local float context[MOST_DIM];
    const uint lane = get_local_id(0), head = get_group_id(1), row = get_group_id(2), step = a.d_v + 2;
    global const float *part = AT(float, a.partial) + ((ulong)row * a.heads + head) * a.blocks * step;
    float most = a.sinks ? AT(float, a.sinks)[a.head * a.gqa + head] : -INFINITY, sum = 0;
    for (uint b = 0; b < a.blocks; b++)
        most = fmax(most, part[b * step + a.d_v]);
    for (uint b = 0; b < a.blocks; b++)
        if (part[b * step + a.d_v] != -INFINITY)
            sum += part[b * step + a.d_v + 1] * exp(part[b * step + a.d_v] - most);
    if (a.sinks)
        sum += exp(AT(float, a.sinks)[a.head * a.gqa + head] - most);
    for (uint j = lane; j < a.d_v; j += CL_LANES) {
        float x = 0;
        for (uint b = 0; b < a.blocks; b++)
            if (part[b * step + a.d_v] != -INFINITY)
                x = fma(part[b * step + j], exp(part[b * step + a.d_v] - most), x);
        context[j] = x / sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (V_TYPE == CL_Q8_TURN)
        rotate_lanes(context, a.d_v, hadamard_block(a.d));
    global float *to = AT(float, a.out) + (ulong)(a.row + row) * a.out_stride + head * a.d_v;
    for (uint j = lane; j < a.d_v; j += CL_LANES)
        to[j] = context[j];
}
