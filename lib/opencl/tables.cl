/* Rows of tables, whose weights are of one type (weights.cl). */

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
