/* Activation rows of a product, converted to the format that kernels read. */
#ifndef BMC_GEMM_ROWS_H
#define BMC_GEMM_ROWS_H

#include "kernel/kernel.h"

enum gemm_kind { KIND_F32, KIND_BF16, KIND_INT8 };

/* The format that activations are converted to before they are multiplied by given weights. */
struct a_format {
    enum gemm_kind kind;
    size_t terms;       /* converted rows per activation row: 2 for bf16x2, else 1 */
    bool rounded;       /* KIND_F32: values are rounded to bf16 */
    size_t group;       /* int8: inputs that share a scale */
    size_t k;           /* inputs of a row, padding included */
    size_t stride;      /* bytes between rows */
    size_t scale, sum;  /* int8: offsets of a row's scales and sums from its q */
    size_t interleaved; /* int8: offset of interleaved rows in gemm.rows; 0: none */
    size_t mr;          /* activation rows per interleaved tile */
};

struct gemm_rows {
    const struct kernels *kernels;
    struct a_format a;
    char *rows; /* the converted rows, a.terms * a.stride bytes each */
    const float *x;
    size_t x_stride, in;
    const uint32_t *x_row; /* the row of x that each row is; NULL: all in order */
};

/* Converts row i. */
void gemm_rows_convert_row(const struct gemm_rows *rows, size_t i);

/* Converts n rows, on all threads. */
void gemm_rows_convert(const struct gemm_rows *rows, size_t n);

#endif
