/* Operations on single rows. Work-items of groups of CL_LANES have columns; group 1 is the row, or a part of it. */

#define ROW(at, stride, row) (AT(float, at) + (ulong)(row) * (stride))

/* a, b: gain and bias of group first + g % step of n groups, each of `width`; mode 1: RMS norm, else layer norm. */
kernel void norm_rows(const struct cl_row_args a)
{
    local float part[CL_LANES];
    const uint group = get_group_id(1), row = get_group_id(2), lane = get_local_id(0);
    global const float *x = ROW(a.in, a.in_stride, row) + group * a.width;
    global float *y = ROW(a.out, a.out_stride, row) + group * a.width;
    const ulong at = (ulong)(a.first + group % a.step) * a.width;
    float mean = 0, sum = 0;
    if (!a.mode) {
        for (uint j = lane; j < a.width; j += CL_LANES)
            sum += x[j];
        mean = add_lanes(sum, part) / (float)a.width;
    }
    sum = 0;
    for (uint j = lane; j < a.width; j += CL_LANES)
        sum = fma(x[j] - mean, x[j] - mean, sum);
    const float scale = 1 / sqrt(add_lanes(sum, part) / (float)a.width + a.eps);
    for (uint j = lane; j < a.width; j += CL_LANES)
        y[j] = (x[j] - mean) * scale * (a.a ? AT(float, a.a)[at + j] : 1) +
               (a.b ? AT(float, a.b)[at + j] : 0);
}

/* a, b: cosines and sines [rows][width] of `width` pairs of n heads, `step` apart. */
kernel void rope_rows(const struct cl_row_args a)
{
    const uint row = get_group_id(1), i = get_global_id(0);
    if (i >= a.n * a.width)
        return;
    const uint head = i / a.width, j = i % a.width;
    const float c = ROW(a.a, a.width, row)[j], s = ROW(a.b, a.width, row)[j];
    global float *x = ROW(a.out, a.out_stride, row) + head * a.step;
    const float low = x[j], high = x[j + a.width];
    x[j] = low * c - high * s;
    x[j + a.width] = high * c + low * s;
}

/* Copies n parts of a row, in_step and `step` apart; index: rows of `in`, or 0. */
kernel void copy_rows(const struct cl_row_args a)
{
    const uint row = get_group_id(1), i = get_global_id(0);
    if (i >= a.n * a.width)
        return;
    const uint part = i / a.width, j = i % a.width, from = a.index ? AT(uint, a.index)[row] : row;
    ROW(a.out, a.out_stride, row)[part * a.step + j] =
        ROW(a.in, a.in_stride, from)[part * a.in_step + j];
}

kernel void add_rows(const struct cl_row_args a)
{
    const uint row = get_group_id(1), j = get_global_id(0);
    if (j < a.width)
        ROW(a.out, a.out_stride, row)[j] += ROW(a.in, a.in_stride, row)[j];
}

/* mode 0: x * factor, or a[step * column], or b[row]; 1: clipped to +-factor; 2: factor * tanh(x / factor). */
kernel void map_rows(const struct cl_row_args a)
{
    const uint row = get_group_id(1), j = get_global_id(0);
    if (j >= a.width)
        return;
    global float *x = ROW(a.out, a.out_stride, row) + j;
    const float by = a.a ? AT(float, a.a)[a.step * j] : a.b ? AT(float, a.b)[row] : a.factor;
    *x = a.mode == 1 ? clamp(*x, -by, by) : a.mode == 2 ? by * tanh(*x / by) : *x * by;
}

/* out = act(a) * in; mode: the activation; step: elements that share one of `a`. */
kernel void gate_rows(const struct cl_row_args a)
{
    const uint row = get_group_id(1), j = get_global_id(0);
    if (j < a.width)
        ROW(a.out, a.out_stride, row)[j] = activate(a.mode, ROW(a.a, a.other_stride, row)[j / a.step]) *
                                           ROW(a.in, a.in_stride, row)[j];
}

/* The weighted sum of the `used` outputs index[row][..] of experts, with weights `a` if that is not 0. */
kernel void mix_rows(const struct cl_row_args a)
{
    const uint row = get_group_id(1), j = a.first + get_global_id(0);
    global const uint *pair = AT(uint, a.index) + row * a.used;
    if (j >= a.first + a.n)
        return;
    float sum = 0;
    for (uint k = 0; k < a.used; k++) {
        const float x = ROW(a.in, a.in_stride, pair[k])[j], by = a.a ? ROW(a.a, a.other_stride, row)[k] : 1;
        sum = k ? sum + by * x : by * x;
    }
    global float *y = ROW(a.out, a.out_stride, row) + j;
    *y = a.add ? *y + sum : sum;
}

/* out += sigmoid(in b) * a, or += a without b, for columns [first, first + n); in has `width`. */
kernel void mix_shared(const struct cl_row_args a)
{
    local float part[CL_LANES];
    const uint row = get_group_id(1), lane = get_local_id(0);
    float gate = 1, sum = 0;
    if (a.b) {
        for (uint j = lane; j < a.width; j += CL_LANES)
            sum = fma(ROW(a.in, a.in_stride, row)[j], AT(float, a.b)[j], sum);
        gate = activate(ACT_SIGMOID, add_lanes(sum, part));
    }
    for (uint j = a.first + lane; j < a.first + a.n; j += CL_LANES)
        ROW(a.out, a.out_stride, row)[j] += gate * ROW(a.a, a.other_stride, row)[j];
}
