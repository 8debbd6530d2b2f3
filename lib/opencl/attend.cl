/* Attention (attn/attn.h). A work-group computes the scores of a query row of one head with CL_ATTEND_BLOCK positions,
 * counted from position 0, and adds up their values; merge_blocks() adds up the blocks in order. So a sum has one order,
 * wherever entries are stored: a position's entry is found by its sequence's spans, of draft trees by its ancestors.
 *
 *   K_TYPE V_TYPE   types of entries, CL_F32 .. CL_Q8_TURN
 *   MOST_DIM        most elements of a head */

struct row_at {
    global const uchar *k, *v;
};

/* The entry of a position of the query's sequence. */
static struct row_at find_entry(const struct cl_attend_args *a, const struct cl_mask *m, uint head, uint position)
{
    const uint entry = m->ancestors && position >= m->committed
                           ? m->committed + AT(uint, m->ancestors)[position - m->committed]
                           : position;
    global const struct cl_span *span = AT(struct cl_span, a->span) + m->span;
    uint low = 0, high = m->n_spans; /* the last span that begins at or before the entry */
    while (high - low > 1) {
        const uint middle = (low + high) / 2;
        if (span[middle].first <= entry)
            low = middle;
        else
            high = middle;
    }
    span += low;
    const uint row = entry - span->first;
    const long k = span->row ? AT(long, span->row)[row] : (long)row * span->k_row;
    const long v = span->row ? AT(long, span->row)[row] : (long)row * span->v_row;
    return (struct row_at){AT(uchar, span->k + head * span->k_head) + k,
                           AT(uchar, span->v + head * span->v_head) + v};
}

static bool is_seen(const struct cl_mask *m, uint position)
{
    return position < m->end &&
           (position >= m->recent || (position >= m->first && position < m->sink_end));
}

static float scale_behind(uint type, global const uchar *row, uint d)
{
    return type >= CL_Q8 ? *(global const float *)(row + d) : 1;
}

INLINE float dot_key(local const float *q, global const uchar *k, uint d)
{
    float4 sum = 0;
    uint j = 0;
    for (; j + 4 <= d; j += 4) {
        const float4 key = K_TYPE == CL_F32 ? vload4(0, (global const float *)k + j)
                                            : (float4)(element(K_TYPE, k, j), element(K_TYPE, k, j + 1),
                                                       element(K_TYPE, k, j + 2), element(K_TYPE, k, j + 3));
        sum = fma(vload4(0, q + j), key, sum);
    }
    for (; j < d; j++)
        sum.x = fma(q[j], element(K_TYPE, k, j), sum.x);
    return ((sum.x + sum.y) + (sum.z + sum.w)) * scale_behind(K_TYPE, k, d);
}

/* Group 0 is the block, 1 the head, 2 the row. Its partial result is sum[d_v], the largest score, and the sum of weights. */
kernel void attend_block(const struct cl_attend_args a)
{
    local float q[MOST_DIM], score[CL_ATTEND_BLOCK], part[CL_LANES];
    local ulong value[CL_ATTEND_BLOCK];
    const uint lane = get_local_id(0), head = get_group_id(1), row = get_group_id(2);
    const uint kv_head = head / a.gqa, first = (a.first_block + get_group_id(0)) * CL_ATTEND_BLOCK;
    const struct cl_mask m = AT(struct cl_mask, a.mask)[kv_head * a.mask_stride + row];
    global float *to = AT(float, a.partial) +
                       (((ulong)row * a.heads + head) * a.blocks + get_group_id(0)) * (a.d_v + 2);
    const uint end = min(first + CL_ATTEND_BLOCK, m.end);
    if (first >= m.end || (end <= m.recent && first >= m.sink_end)) {
        if (lane == 0)
            to[a.d_v] = -INFINITY;
        return;
    }
    global const float *from = AT(float, a.q) + (ulong)row * a.q_stride + head * a.d;
    for (uint j = lane; j < a.d; j += CL_LANES)
        q[j] = from[j] * a.scale;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (K_TYPE == CL_Q8_TURN)
        rotate_lanes(q, a.d, hadamard_block(a.d));
    float most = -INFINITY, sum = 0;
    for (uint i = lane; i < CL_ATTEND_BLOCK; i += CL_LANES) {
        score[i] = -INFINITY;
        if (!is_seen(&m, first + i))
            continue;
        const struct row_at at = find_entry(&a, &m, kv_head, first + i);
        float s = dot_key(q, at.k, a.d);
        if (a.softcap != 0)
            s = a.softcap * tanh(s / a.softcap);
        if (a.slopes)
            s = fma(AT(float, a.slopes)[a.head * a.gqa + head], -fabs((float)(first + i) - (float)m.position), s);
        score[i] = s;
        value[i] = (ulong)at.v;
        most = fmax(most, s);
    }
    most = most_lanes(most, part);
    for (uint i = lane; i < CL_ATTEND_BLOCK; i += CL_LANES) {
        const float weight = score[i] == -INFINITY ? 0 : exp(score[i] - most);
        sum += weight;
        score[i] = weight == 0 ? 0 : weight * scale_behind(V_TYPE, AT(uchar, value[i]), a.d);
    }
    sum = add_lanes(sum, part);
    for (uint j = lane; j < a.d_v; j += CL_LANES) {
        float context = 0;
        for (uint i = 0; i < end - first; i++)
            if (score[i] != 0)
                context = fma(score[i], element(V_TYPE, AT(uchar, value[i]), j), context);
        to[j] = context;
    }
    if (lane == 0) {
        to[a.d_v] = most;
        to[a.d_v + 1] = sum;
    }
}

/* Group 1 is the head, 2 the row. */
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
    global float *to = AT(float, a.out) + (ulong)row * a.out_stride + head * a.d_v;
    for (uint j = lane; j < a.d_v; j += CL_LANES)
        to[j] = context[j];
}
