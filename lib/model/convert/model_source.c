/* Rows of the tensors of a model.bmc: unpacked, and dequantised unless their type is kept. */
#include "model/convert/tensor_sources.h"

#include <stdatomic.h>

#include "base/threads.h"
#include "quant/pack.h"

enum { CHUNK = 256 };

struct dequantize_job {
    struct mat mat; /* of the matrix that has the rows */
    size_t first_row, rows;
    enum dtype to;
    unsigned char *out;
    atomic_bool found[IMPORT_BROKEN + 1];
};

/* Converts one row by way of f32. */
static void convert_row(const struct mat *mat, size_t row, enum dtype to, unsigned char *out)
{
    float x[CHUNK];
    for (size_t at = 0, n; at < mat->in; at += n) {
        n = size_min(CHUNK, mat->in - at);
        mat_fetch(x, mat, row, at, n);
        dtype_from_f32(out + at * dtype_size(to), to, x, n);
    }
}

static bool source_finite(const struct mat *mat, size_t row)
{
    float x[CHUNK];
    bool finite = true;
    for (size_t at = 0, n; at < mat->in && finite; at += n) {
        n = size_min(CHUNK, mat->in - at);
        mat_fetch(x, mat, row, at, n);
        finite = dtype_finite(DTYPE_F32, x, n);
    }
    return finite;
}

/* Converts up to 16 rows, a block of packed matrices. */
static void convert_block(void *arg, size_t index)
{
    struct dequantize_job *job = arg;
    const struct mat *mat = &job->mat;
    const size_t row_bytes = dtype_row_bytes(job->to, mat->in), done = index * PACK_OUT,
                 n = size_min(PACK_OUT, job->rows - done), first = job->first_row + done;
    unsigned char *out = job->out + done * row_bytes;
    if (dtype_is_quantized(job->to))
        unpack_block(out,
                     (const char *)mat->data +
                         first / PACK_OUT * pack_block_bytes(mat->dtype, mat->in_padded),
                     mat->in_padded, n, mat->in, mat->dtype);
    for (size_t i = 0; i < n; i++) {
        if (!dtype_is_quantized(job->to))
            convert_row(mat, first + i, job->to, out + i * row_bytes);
        const bool finite = dtype_finite(job->to, out + i * row_bytes, mat->in);
        atomic_store(&job->found[finite                          ? IMPORT_FINITE
                                 : source_finite(mat, first + i) ? IMPORT_TOO_LARGE
                                                                 : IMPORT_BROKEN],
                     true);
    }
}

enum import_result model_source_rows(const struct bmc_file *file, const struct bmc_tensor *tensor,
                                     size_t first_row, size_t rows, enum dtype to, void *out)
{
    const struct bmc_matrices m = bmc_matrices_of(tensor);
    const enum layout layout = (enum layout)tensor->layout;
    const enum dtype type = (enum dtype)tensor->dtype;
    const size_t bytes = layout_bytes(layout, type, m.out, m.in);
    struct dequantize_job job = {
        .mat = {.dtype = type,
                .layout = layout,
                .out = m.out,
                .in = m.in,
                .in_padded = layout_in(layout, m.in),
                .data = file->data + tensor->offset + first_row / m.out * bytes},
        .first_row = first_row % m.out,
        .rows = rows,
        .to = to,
        .out = out,
    };
    parallel_for(div_up(rows, PACK_OUT), 4 * rows * m.in, convert_block, &job);
    return job.found[IMPORT_BROKEN]      ? IMPORT_BROKEN
           : job.found[IMPORT_TOO_LARGE] ? IMPORT_TOO_LARGE
                                         : IMPORT_FINITE;
}
