/* Arguments of the kernels, one structure each: C and OpenCL C read this file alike. Addresses are those of shared virtual
 * memory, 0: none; strides and offsets of activations are in elements of 4 bytes, all others in bytes. */
#ifndef BMC_CL_ARGS_H
#define BMC_CL_ARGS_H

#ifdef __OPENCL_C_VERSION__
typedef ulong cl_address;
typedef uint cl_number;
typedef uchar cl_byte;
#else
#include <stdint.h>
typedef uint64_t cl_address;
typedef uint32_t cl_number;
typedef uint8_t cl_byte;
#endif

/* Rows of an operation over single rows: OP_FETCH to OP_GATE, OP_NORM, OP_ROPE, OP_MIX. Members have the meaning that
 * the kernel's comment gives them. */
struct cl_row_args {
    cl_address in, out, a, b, index;
    cl_number in_stride, out_stride, width, rows;
    cl_number first, n, step, in_step, mode, add;
    cl_number other_stride, used;
    float factor, eps;
};

/* Where the weights of a matrix are (quant/pack.h). */
struct cl_matrix {
    cl_address data;
    cl_number out, in, in_padded, packed;
    cl_number block_bytes; /* of a block of 16 outputs, or of a row */
    cl_number scales[4];   /* byte offsets of the scale arrays in a block */
};

struct cl_fetch_args {
    struct cl_matrix table;
    cl_address out, index; /* index: the row of the table of each row */
    cl_number out_stride, width, from, add;
    float factor;
};

/* Rows [row, row + rows) of the outputs of a product with a matrix of its own. */
struct cl_tile {
    cl_address w, bias;
    cl_number row, rows;
};

struct cl_product_args {
    struct cl_matrix w;
    cl_address bias, x, y, gate, tile, in_row, weight, choice;
    cl_number x_stride, y_stride, gate_stride, weight_stride;
    cl_number rows, add, whole;
    cl_number raw, act; /* raw: y gets sums and bias only, of a gate that a later product reads */
    float limit, alpha, gate_scale;
};

/* Consecutive positions of a sequence (struct kv_span), of the KV heads from args.head on. */
struct cl_span {
    cl_address k, v, row; /* row: int64_t offsets of rows, or 0 */
    cl_address k_head, v_head;
    cl_number k_row, v_row, first, rows;
};

/* What a query row attends to (struct query_mask), and where its sequence is. */
struct cl_mask {
    cl_address ancestors;
    cl_number position, end, first, sink_end, recent, committed;
    cl_number span, n_spans;
};

/* Rows that a work-group attends for: of one sequence, and of several rows none has ancestors. */
struct cl_rows {
    cl_number first, n;
};

struct cl_attend_args {
    cl_address q, out, mask, span, tile, partial, slopes, sinks;
    cl_number q_stride, out_stride, row, head, heads, gqa; /* row: first one of the partial results */
    cl_number d, d_v, blocks, first_block;
    cl_number mask_stride; /* masks of a KV head; 0: all have the same */
    float scale, softcap;
};

struct cl_copy {
    cl_address to, from, bytes, zeros;
};

/* Rows to convert (struct memory_store); types are those of enum cl_type. */
struct cl_store {
    cl_address to, from;
    cl_number type, from_type, rows, d, to_stride, from_stride;
};

struct cl_list_args {
    cl_address list, overflowed;
    cl_number n, unit; /* unit: bytes that addresses and sizes are multiples of: 16, 4 or 1 */
};

struct cl_route_args {
    cl_address logits, chosen, weight, select_bias, gain, score;
    cl_number logits_stride, chosen_stride, weight_stride;
    cl_number rows, experts, used, kind, top2, groups, groups_used, norm;
    float scale;
};

#define CL_F32     0
#define CL_BF16    1
#define CL_F16     2
#define CL_Q8      3 /* 8 bits and an f32 scale per row */
#define CL_Q8_TURN 4 /* the same of rotated rows */

/* Most elements of a row that is converted (MEMORY_STORE_ELEMENTS). */
#define CL_STORE_ELEMENTS 4096

/* Attention: positions whose scores are added up by one work-group, from position 0 on, which are also its work-items;
 * most queries of it, and the work-items that share one. */
#define CL_ATTEND_BLOCK   256
#define CL_ATTEND_QUERIES 8
#define CL_QUERY_LANES    (CL_ATTEND_BLOCK / CL_ATTEND_QUERIES)

/* Work-items of other groups but of products, rows of product_few, rows and outputs of product_block. */
#define CL_LANES    64
#define CL_FEW_ROWS 8
#define CL_BLOCK    64

#endif
