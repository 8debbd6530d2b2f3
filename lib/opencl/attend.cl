/* Attention (attn/attn.h). A work-group has up to CL_ATTEND_QUERIES queries, of rows of a sequence and of heads that share a
 * KV head. It computes their scores with CL_ATTEND_BLOCK positions, counted from position 0, and adds up values, and reads
 * each entry once for all of them. merge_blocks() adds up the blocks in order. A query's sums have one order, whatever other
 * queries the group has, and wherever entries are stored: a position's entry is found by its sequence's spans, of draft trees
 * by its ancestors.
 *
 *   K_TYPE V_TYPE   types of entries, CL_F32 .. CL_Q8_TURN
 *   MOST_DIM        most elements of a head, at least CL_ATTEND_BLOCK */

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

/* Elements 4 at a time are those of rows that begin at multiples of 16 bytes. */
static bool is_aligned(uint type, global const uchar *row)
{
    return (ulong)row % (type >= CL_Q8 ? 4 : 16) == 0;
}

/* Products of a key with n queries, q[n][MOST_DIM]. */
INLINE void dot_key(float *s, local const float *q, uint n, global const uchar *k, uint d)
{
    float4 sum[CL_ATTEND_QUERIES];
    const bool aligned = is_aligned(K_TYPE, k);
    uint j = 0;
    for (uint i = 0; i < CL_ATTEND_QUERIES; i++)
        sum[i] = 0;
    for (; j + 4 <= d; j += 4) {
        const float4 key = aligned ? four_elements(K_TYPE, k, j)
                                   : (float4)(element(K_TYPE, k, j), element(K_TYPE, k, j + 1),
                                              element(K_TYPE, k, j + 2), element(K_TYPE, k, j + 3));
        for (uint i = 0; i < CL_ATTEND_QUERIES; i++)
            if (i < n)
                sum[i] = fma(vload4(0, q + i * MOST_DIM + j), key, sum[i]);
    }
    for (; j < d; j++)
        for (uint i = 0; i < n; i++)
            sum[i].x = fma(q[i * MOST_DIM + j], element(K_TYPE, k, j), sum[i].x);
    const float scale = scale_behind(K_TYPE, k, d);
    for (uint i = 0; i < n; i++)
        s[i] = ((sum[i].x + sum[i].y) + (sum[i].z + sum[i].w)) * scale;
}

/* Adds up, or finds the largest of, the values of the work-items that share a query, in one order; all of these get it. */
INLINE float over_query(float x, bool most, local float *part)
{
    const uint item = get_local_id(0), lane = item % CL_QUERY_LANES;
    part[item] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint apart = CL_QUERY_LANES / 2; apart; apart /= 2) {
        if (lane < apart)
            part[item] = most ? fmax(part[item], part[item + apart]) : part[item] + part[item + apart];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    x = part[item - lane];
    barrier(CLK_LOCAL_MEM_FENCE);
    return x;
}

/* The queries of a group: heads [head, head + heads) of rows [row, row + n / heads). */
struct group_queries {
    uint kv_head, head, heads, row, n;
};

static struct group_queries queries_of(const struct cl_attend_args *a)
{
    const uint chunks = (a->gqa + CL_ATTEND_QUERIES - 1) / CL_ATTEND_QUERIES, part = get_group_id(1) % chunks;
    const struct cl_rows rows = AT(struct cl_rows, a->tile)[get_group_id(2)];
    struct group_queries g = {.kv_head = get_group_id(1) / chunks, .row = rows.first};
    g.head = g.kv_head * a->gqa + part * CL_ATTEND_QUERIES;
    g.heads = min(a->gqa - part * CL_ATTEND_QUERIES, (uint)CL_ATTEND_QUERIES);
    g.n = g.heads * rows.n;
    return g;
}

static struct cl_mask mask_of(const struct cl_attend_args *a, const struct group_queries *g, uint query)
{
    return AT(struct cl_mask, a->mask)[g->kv_head * a->mask_stride + g->row + query / g->heads];
}

static bool sees_block(const struct cl_mask *m, uint first)
{
    return first < m->end && (min(first + CL_ATTEND_BLOCK, m->end) > m->recent || first < m->sink_end);
}

/* Scores of the position of this work-item, -INFINITY where a query does not see it. Returns its value, 0: none sees it. */
INLINE ulong score_position(const struct cl_attend_args *a, const struct group_queries *g, uint position,
                            local const float *q, local float *score)
{
    const struct cl_mask of_first = mask_of(a, g, 0);
    const uint item = get_local_id(0);
    bool seen[CL_ATTEND_QUERIES], any = false;
    float s[CL_ATTEND_QUERIES];
    for (uint i = 0; i < g->n; i++) {
        const struct cl_mask m = mask_of(a, g, i);
        seen[i] = is_seen(&m, position);
        any = any || seen[i];
        score[i * CL_ATTEND_BLOCK + item] = -INFINITY;
    }
    if (!any)
        return 0;
    const struct row_at at = find_entry(a, &of_first, g->kv_head, position);
    dot_key(s, q, g->n, at.k, a->d);
    for (uint i = 0; i < g->n; i++) {
        if (!seen[i])
            continue;
        if (a->softcap != 0)
            s[i] = a->softcap * tanh(s[i] / a->softcap);
        if (a->slopes)
            s[i] = fma(AT(float, a->slopes)[a->head * a->gqa + g->head + i % g->heads],
                       -fabs((float)position - (float)mask_of(a, g, i).position), s[i]);
        score[i * CL_ATTEND_BLOCK + item] = s[i];
    }
    return (ulong)at.v;
}

/* Adds up the values of positions [from, to) of the block for element j of n queries: sum[n][MOST_DIM]. */
INLINE void add_values(local float *sum, uint n, uint from, uint to, uint j, local const float *score,
                       local const ulong *value)
{
    float context[CL_ATTEND_QUERIES];
    for (uint i = 0; i < CL_ATTEND_QUERIES; i++)
        context[i] = 0;
    for (uint p = from; p < to; p++) {
        if (!value[p])
            continue;
        const float v = element(V_TYPE, AT(uchar, value[p]), j);
        for (uint i = 0; i < CL_ATTEND_QUERIES; i++)
            if (i < n && score[i * CL_ATTEND_BLOCK + p] != 0)
                context[i] = fma(score[i * CL_ATTEND_BLOCK + p], v, context[i]);
    }
    for (uint i = 0; i < n; i++)
        sum[i * MOST_DIM] = context[i];
}

/* Group 0 is the block, 1 the KV head and a part of its heads, 2 the tile of rows. A query's partial result is sum[d_v], the
 * largest score, and the sum of weights. */
kernel void attend_block(const struct cl_attend_args a)
{
    local float work[CL_ATTEND_QUERIES * MOST_DIM]; /* queries, then sums of values */
    local float score[CL_ATTEND_QUERIES * CL_ATTEND_BLOCK], part[CL_ATTEND_BLOCK];
    local ulong value[CL_ATTEND_BLOCK];
    const uint item = get_local_id(0), query = item / CL_QUERY_LANES, lane = item % CL_QUERY_LANES;
    const uint first = (a.first_block + get_group_id(0)) * CL_ATTEND_BLOCK, step = a.d_v + 2;
    struct group_queries g = queries_of(&a);
    const uint all = g.n;
    global float *to = AT(float, a.partial) +
                       (((ulong)(g.row - a.row) * a.heads + g.head) * a.blocks + get_group_id(0)) * step;
    const ulong head_step = (ulong)a.blocks * step, row_step = a.heads * head_step;
    bool any = false;
    for (uint i = 0; i < g.n; i += g.heads) {
        const struct cl_mask m = mask_of(&a, &g, i);
        any = any || sees_block(&m, first);
    }
    if (!any) /* no return, as barriers follow (README.md) */
        g.n = 0;
    for (uint i = 0; i < g.n; i++) {
        global const float *from = AT(float, a.q) + (ulong)(g.row + i / g.heads) * a.q_stride + (g.head + i % g.heads) * a.d;
        for (uint j = item; j < a.d; j += CL_ATTEND_BLOCK)
            work[i * MOST_DIM + j] = from[j] * a.scale;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (K_TYPE == CL_Q8_TURN)
            rotate_lanes(work + i * MOST_DIM, a.d, hadamard_block(a.d));
    }
    value[item] = score_position(&a, &g, first + item, work, score);
    barrier(CLK_LOCAL_MEM_FENCE);
    local float *own = score + query * CL_ATTEND_BLOCK;
    float most = -INFINITY, sum = 0;
    for (uint p = lane; p < CL_ATTEND_BLOCK && query < g.n; p += CL_QUERY_LANES)
        most = fmax(most, own[p]);
    most = over_query(most, true, part);
    for (uint p = lane; p < CL_ATTEND_BLOCK && query < g.n; p += CL_QUERY_LANES) {
        const float weight = own[p] == -INFINITY ? 0 : exp(own[p] - most);
        sum += weight;
        own[p] = weight == 0 ? 0 : weight * scale_behind(V_TYPE, AT(uchar, value[p]), a.d);
    }
    sum = over_query(sum, false, part);
    /* positions are divided among the work-items that heads of few elements leave */
    uint width = CL_ATTEND_BLOCK;
    while (width / 2 >= a.d_v)
        width /= 2;
    const uint parts = CL_ATTEND_BLOCK / width, at = item / width * width;
    for (uint j = item % width; j < a.d_v && any; j += width)
        add_values(work + at + j, g.n, at, at + width, j, score, value);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < g.n; i++)
        for (uint j = item; j < a.d_v; j += CL_ATTEND_BLOCK) {
            float context = work[i * MOST_DIM + j];
            for (uint p = 1; p < parts; p++)
                context += work[i * MOST_DIM + p * width + j];
            to[i / g.heads * row_step + i % g.heads * head_step + j] = context;
        }
    if (lane == 0 && query < all) {
        global float *end = to + query / g.heads * row_step + query % g.heads * head_step + a.d_v;
        end[0] = most;
        end[1] = sum;
    }
}
