/* The CPU as a backend: opening, and the table of operations. */
#include "cpu/cpu.h"

#include "base/mem.h"
#include "cpu/cpu_pass.h"
#include "kv/kv.h"

static void close_pass(struct backend_pass *pass)
{
    if (!pass)
        return;
    cpu_lora_close(&pass->lora);
    cpu_recur_close(&pass->recur);
    cpu_choose_close(&pass->choose);
    gemm_close(pass->gemm);
    gemm_close(pass->expert_gemm);
    attn_close(pass->attn);
    free(pass->product);
    free(pass->mat);
    free(pass);
}

static int open_attention(struct backend_pass *pass, const struct backend_options *o, struct err *err)
{
    const struct cpu_options *own = o->own;
    const struct kv_setup *setup = kv_setup(o->kv);
    struct attn_limits limits = {.positions = size_max(setup->view_rows, setup->shape.max_rows),
                                 .step_rows = o->max_rows,
                                 .queries = setup->n_seqs};
    for (size_t i = 0; i < setup->shape.n_sizes; i++)
        limits.dequantize =
            limits.dequantize || dtype_is_quantized(setup->shape.sizes[i].type[KV_K]) !=
                                     dtype_is_quantized(setup->shape.sizes[i].type[KV_V]);
    struct attn_shape *shape = mem_alloc(o->n_shapes, sizeof *shape);
    if (!shape)
        return err_no_memory(err, "%zu shapes of attention", o->n_shapes);
    for (size_t i = 0; i < o->n_shapes; i++) {
        shape[i] = o->shape[i];
        shape[i].dequantize = own->precision == PRECISION_F32;
        shape[i].bf16 = own->precision == PRECISION_BF16;
    }
    const int rc = attn_open(&pass->attn, own->attn, shape, o->n_shapes, &limits, err);
    free(shape);
    return rc;
}

static int open_products(struct backend_pass *pass, const struct backend_options *o, struct err *err)
{
    const struct cpu_options *own = o->own;
    const size_t adapters = o->max_rank ? kv_setup(o->kv)->n_seqs : 1;
    if (gemm_open_groups(&pass->gemm, own->kernels, own->precision, o->max_rows, o->max_inputs,
                         adapters, err) < 0)
        return -1;
    if (!o->max_experts)
        return 0;
    pass->product = mem_alloc(o->max_experts, sizeof *pass->product);
    pass->mat = mem_alloc(o->max_experts, 2 * sizeof *pass->mat);
    return pass->product && pass->mat
               ? gemm_open_groups(&pass->expert_gemm, own->kernels, own->precision, o->max_pairs,
                                  o->max_expert_inputs, o->max_experts, err)
               : err_no_memory(err, "the products of %zu experts", o->max_experts);
}

static int open_pass(struct backend_pass **out, const struct backend_options *o, struct err *err)
{
    struct backend_pass *pass = *out = mem_zalloc(1, sizeof *pass);
    if (!pass)
        return err_no_memory(err, "forward passes");
    pass->kernels = ((const struct cpu_options *)o->own)->kernels;
    pass->kv = o->kv;
    if (open_products(pass, o, err) == 0 && open_attention(pass, o, err) == 0 &&
        cpu_lora_open(pass, o, err) == 0 && cpu_recur_open(pass, o->max_rows, err) == 0 &&
        cpu_choose_open(&pass->choose, o, err) == 0)
        return 0;
    close_pass(pass);
    *out = NULL;
    return -1;
}

/* ---- attention ---- */

static struct attn_step attn_step_of(const struct backend_pass *pass, const struct op_step *step)
{
    return (struct attn_step){pass->kv, pass->kernels, step->query, step->n_queries, NULL};
}

static int begin_pass(struct backend_pass *pass, const struct op_step *step, struct err *err)
{
    const struct attn_step all = attn_step_of(pass, step);
    return attn_begin(pass->attn, &all, err);
}

static int append_entries(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                          struct row_range rows, struct err *err)
{
    (void)rows;
    (void)err;
    for (const struct attn_query *q = step->query; q < step->query + step->n_queries; q++) {
        const struct kv_queries own = {op->append.heads
                                           ? cpu_addr(cpu_row(step, op->append.q, q->first))
                                           : (struct device_addr){0},
                                       op->append.q.stride, op->append.heads};
        kv_append(pass->kv, q->seq, op->append.layer, cpu_addr(cpu_row(step, op->in, q->first)),
                  cpu_addr(cpu_row(step, op->append.v, q->first)), op->in.stride, &own);
    }
    return 0;
}

/* In one call for all sequences or, if step->per_sequence, in one call per sequence, each on all threads. */
static int attend(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                  struct row_range rows, struct err *err)
{
    (void)rows;
    const struct attn_step all = attn_step_of(pass, step);
    struct attn *attn = pass->attn;
    const struct attn_layer layer = {
        .index = op->attend.layer,
        .window = op->attend.window,
        .chunk = op->attend.chunk,
        .ahead = op->attend.ahead,
        .sinks = cpu_floats(op->attend.sinks, 0),
        .shape = op->attend.shape,
        .chosen = op->attend.most ? cpu_positions(step, op->attend.chosen, 0) : NULL,
        .stride = op->attend.chosen.stride,
        .most = op->attend.most};
    const float *q = cpu_row(step, op->in, 0);
    float *out = cpu_row(step, op->out, 0);
    if (!step->per_sequence)
        return attn_run(attn, &all, &layer, q, out, err);
    for (size_t i = 0; i < step->n_queries; i++) {
        struct attn_step one = all;
        one.query = &step->query[i];
        one.n_queries = 1;
        if (attn_begin(attn, &one, err) < 0 || attn_run(attn, &one, &layer, q, out, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- all operations ---- */

static int run_op(struct backend_pass *pass, const struct op *op, const struct op_step *step,
                  struct row_range rows, struct err *err)
{
    static cpu_run *const table[] = {
        [OP_FETCH] = cpu_rows,
        [OP_FETCH_ADD] = cpu_parallel_rows,
        [OP_LINEAR] = cpu_linear,
        [OP_HEADS] = cpu_heads,
        [OP_NORM] = cpu_parallel_rows,
        [OP_ROPE] = cpu_parallel_rows,
        [OP_COPY] = cpu_rows,
        [OP_PICK] = cpu_rows,
        [OP_ADD] = cpu_rows,
        [OP_SCALE] = cpu_rows,
        [OP_CLIP] = cpu_rows,
        [OP_SOFTCAP] = cpu_rows,
        [OP_GATE] = cpu_rows,
        [OP_BLEND] = cpu_parallel_rows,
        [OP_MATCH] = cpu_parallel_rows,
        [OP_SPARSIFY] = cpu_parallel_rows,
        [OP_ROUND] = cpu_parallel_rows,
        [OP_APPEND] = append_entries,
        [OP_CHOOSE] = cpu_choose,
        [OP_ATTEND] = attend,
        [OP_RECUR] = cpu_recur,
        [OP_RECUR_END] = cpu_recur_end,
        [OP_ROUTE] = cpu_route,
        [OP_MIX] = cpu_mix,
    };
    return table[op->kind](pass, op, step, rows, err);
}

static double convert_ms(const struct backend_pass *pass)
{
    return gemm_convert_ms(pass->gemm) + gemm_convert_ms(pass->expert_gemm);
}

static void set_retrieval(struct backend_pass *pass, struct retrieval_score *score)
{
    pass->attn->retrieval = score;
}

const struct backend cpu_backend = {
    .name = "cpu",
    .memory = &cpu_memory,
    .in_process = true,
    .open = open_pass,
    .close = close_pass,
    .begin = begin_pass,
    .run = run_op,
    .run_groups = cpu_run_groups,
    .replay = cpu_replay,
    .convert_ms = convert_ms,
    .set_retrieval = set_retrieval,
};
