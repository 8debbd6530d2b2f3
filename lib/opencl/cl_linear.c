/* Products with weights, embeddings, and experts. */
#include "base/mem.h"
#include "opencl/cl_pass.h"
#include "quant/pack.h"

/* ---- kernels for a type ---- */

static void add_codebook(char *text, size_t size, enum codebook codebook)
{
    size_t used = strlen(text);
    for (size_t i = 0; i < ARRAY_LEN(quant_codebooks[codebook]); i++)
        used += (size_t)snprintf(text + used, size - used, "%s%u",
                                 i ? "," : " -DCODEBOOK_VALUES=", quant_codebooks[codebook][i]);
}

/* Slices of the inputs of a product (linear.cl): work-items of product_one and product_few have one each. */
static size_t slices(void)
{
    enum { MOST = 16 };
    return size_min(MOST, cl_limits()->group_items / PACK_OUT);
}

int cl_weights_refuse(enum dtype type, struct err *err)
{
    return dtype_is_quantized(type) && (quant_has_grid(type) || quant_types[type].ternary)
               ? err_set(err,
                         "backend opencl has no products with weights of type %s, unless bmc-convert "
                         "changes it",
                         dtype_name(type))
               : 0;
}

/* The type's properties as macros (weights.cl). */
static void list_options(char *options, size_t size, enum dtype type)
{
    const struct quant_types *q = &quant_types[type];
    const struct scale_array *s = q->scales;
    snprintf(options, size,
             "-DELEMENT=%zu -DBF16=%d -DBITS=%u -DZERO=%u -DCODEBOOK=%d -DMAIN=%u -DMIN=%u -DD=%u "
             "-DDMIN=%u -DEVERY_MAIN=%u -DEVERY_MIN=%u -DEVERY_D=%u -DEVERY_DMIN=%u -DOFFSET=%d "
             "-DPOWER=%d -DPAIRED=%d -DE4M3=%d -DZEROS=%d -DSIGNED=%d -DSLICES=%zu",
             dtype_size(type), type == DTYPE_BF16, q->bits, q->zero_point, q->codebook, s[0].bytes,
             s[1].bytes, s[2].bytes, s[3].bytes, s[0].every, s[1].every, s[2].every, s[3].every,
             q->offset, q->power, q->paired, q->e4m3, q->zeros, q->zero_point != 0, slices());
    if (q->codebook)
        add_codebook(options, size, q->codebook);
}

int cl_weights_open(struct cl_pass *pass, enum dtype type, struct err *err)
{
    struct cl_weights *w = &pass->weights[type];
    char options[512];
    if (w->one)
        return 0;
    list_options(options, sizeof options, type);
    return cl_kernel_open(&w->one, "weights.cl", "product_one", options, err) < 0 ||
                   cl_kernel_open(&w->few, "weights.cl", "product_few", options, err) < 0 ||
                   cl_kernel_open(&w->block, "weights.cl", "product_block", options, err) < 0
               ? -1
               : 0;
}

int cl_table_open(struct cl_pass *pass, enum dtype type, struct err *err)
{
    char options[512];
    list_options(options, sizeof options, type);
    return cl_kernel_open(&pass->weights[type].fetch, "weights.cl", "fetch_rows", options, err);
}

static struct cl_matrix matrix_of(const struct op_matrix *m)
{
    const bool packed = m->layout == LAYOUT_PACKED;
    struct cl_matrix to = {.data = m->data.device_address,
                           .out = (cl_number)m->out,
                           .in = (cl_number)m->in,
                           .in_padded = (cl_number)m->in_padded,
                           .packed = packed,
                           .block_bytes = (cl_number)(packed ? pack_block_bytes(m->dtype, m->in_padded)
                                                             : m->in_padded * dtype_size(m->dtype))};
    for (size_t p = 0; p < SCALE_KINDS && dtype_is_quantized(m->dtype); p++)
        to.scales[p] = (cl_number)pack_scales_at(m->dtype, m->in_padded, p);
    return to;
}

/* ---- products ---- */

/* Rows of the tiles of a product of `rows` rows of a matrix: 1, CL_FEW_ROWS or CL_BLOCK. Sums do not depend on it. */
static size_t tile_rows(size_t rows)
{
    enum { FEW_TILES = 4 };
    return rows < 2 ? 1 : rows <= FEW_TILES * CL_FEW_ROWS ? CL_FEW_ROWS : CL_BLOCK;
}

/* Starts a product over tiles of up to `each` rows. */
static void launch_product(const struct cl_pass *pass, enum dtype type, struct cl_product_args *args,
                           size_t tiles, size_t each)
{
    const struct cl_weights *w = &pass->weights[type];
    const bool block = each == CL_BLOCK;
    args->whole = args->x % 16 == 0 && args->x_stride % 4 == 0;
    cl_launch(block       ? w->block
              : each == 1 ? w->one
                          : w->few,
              args, sizeof *args,
              (size_t[]){div_up(args->w.out, block ? CL_BLOCK : PACK_OUT), tiles, 1},
              block ? (size_t[]){CL_BLOCK / 8, CL_BLOCK / 4, 1} : (size_t[]){PACK_OUT, slices(), 1});
}

static void run_product(struct cl_pass *pass, const struct op_product *p, const struct op *op,
                        const struct op_step *step, struct row_range rows)
{
    const size_t each = tile_rows(rows.n), tiles = div_up(rows.n, each);
    struct cl_product_args args = {.w = matrix_of(&p->w.matrix),
                                   .bias = p->w.bias.device_address,
                                   .x = cl_row(step, op->in, rows.first),
                                   .y = cl_row(step, p->y, rows.first),
                                   .x_stride = (cl_number)op->in.stride,
                                   .y_stride = (cl_number)p->y.stride,
                                   .rows = (cl_number)rows.n,
                                   .add = p->add,
                                   .act = p->act,
                                   .limit = p->limit,
                                   .alpha = p->alpha,
                                   .gate_scale = p->gate_scale};
    if (product_has_gate(p)) {
        struct cl_product_args gate = args;
        gate.w = matrix_of(&p->gate.matrix);
        gate.bias = p->gate.bias.device_address;
        gate.y = args.gate = pass->gates;
        gate.y_stride = args.gate_stride = (cl_number)p->gate.matrix.out;
        gate.raw = 1;
        gate.add = 0;
        launch_product(pass, p->gate.matrix.dtype, &gate, tiles, each);
    }
    launch_product(pass, p->w.matrix.dtype, &args, tiles, each);
}

int cl_run_linear(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                  struct row_range rows, struct err *err)
{
    (void)err;
    for (size_t i = 0; i < op->linear.n; i++)
        run_product(pass, &op->linear.product[i], op, step, rows);
    return 0;
}

/* ---- embeddings ---- */

/* Ids beyond a table have its first row. */
static uint32_t table_row(const struct op_fetch *f, const struct op_step *step, size_t row)
{
    switch (f->row) {
    case ROW_TOKEN: {
        const uint32_t id = step->token[row] & ~TOKEN_SECOND;
        return id < f->table.out ? id : 0;
    }
    case ROW_SEGMENT: return (step->token[row] & TOKEN_SECOND) != 0;
    case ROW_POSITION: break;
    }
    return (uint32_t)(step->position[row] + f->offset);
}

int cl_run_fetch(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                 struct row_range rows, struct err *err)
{
    const struct op_fetch *f = &op->fetch;
    struct cl_fetch_args args = {.table = matrix_of(&f->table),
                                 .out = cl_row(step, op->out, rows.first),
                                 .out_stride = (cl_number)op->out.stride,
                                 .width = (cl_number)op->width,
                                 .from = (cl_number)f->from,
                                 .add = op->kind == OP_FETCH_ADD,
                                 .factor = f->factor};
    if (op->kind == OP_FETCH) { /* whole rows of the table */
        args.from = 0;
        args.width = (cl_number)f->table.in;
    }
    AUTO(free_auto) uint32_t *index = mem_alloc(rows.n, sizeof *index);
    if (!index)
        return err_no_memory(err, "%zu rows of a table", rows.n);
    for (size_t i = 0; i < rows.n; i++)
        index[i] = table_row(f, step, rows.first + i);
    cl_stage_room(round_up(rows.n * sizeof *index, CL_STAGE_ALIGN));
    args.index = cl_stage(index, rows.n * sizeof *index);
    cl_launch(pass->weights[f->table.dtype].fetch, &args, sizeof args,
              (size_t[]){div_up(div_up(args.width, 8), CL_LANES), rows.n, 1},
              (size_t[]){CL_LANES, 1, 1});
    return 0;
}

/* ---- experts ---- */

/* The tiles of a list of groups: up to `each` rows of one expert's matrix. Returns their number. */
static size_t list_tiles(const struct op_groups *g, const struct op_weight *w,
                         const struct device_addr *data, size_t each, struct cl_tile *tile)
{
    const size_t stride = layout_bytes(w->matrix.layout, w->matrix.dtype, g->outputs, w->matrix.in);
    size_t n = 0, row = 0;
    for (size_t i = 0; i < g->n; i++) {
        const cl_address at = data ? data[i].device_address
                                   : w->matrix.data.device_address + g->expert[i] * stride,
                         bias = addr_is_null(w->bias) ? 0
                                                      : w->bias.device_address +
                                                            g->expert[i] * g->outputs * sizeof(float);
        for (size_t r = 0; r < g->rows[i]; r += each)
            tile[n++] = (struct cl_tile){at, bias, (cl_number)(row + r),
                                         (cl_number)size_min(each, g->rows[i] - r)};
        row += g->rows[i];
    }
    return n;
}

static void launch_groups(struct cl_pass *pass, const struct op_groups *g, const struct op_weight *w,
                          const struct device_addr *data, struct cl_product_args *args,
                          struct cl_tile *tile, size_t each)
{
    const size_t n = list_tiles(g, w, data, each, tile), bytes = n * sizeof *tile;
    args->w = matrix_of(&w->matrix);
    args->tile = cl_stage(tile, bytes);
    if (args->tile)
        launch_product(pass, w->matrix.dtype, args, n, each);
}

void cl_run_groups(struct cl_pass *pass, const struct op_groups *g, const struct op_step *step)
{
    const struct op_product *p = &g->product;
    size_t rows = 0, most = 0;
    for (size_t i = 0; i < g->n; i++) {
        rows += g->rows[i];
        most = size_max(most, g->rows[i]);
    }
    AUTO(free_auto) struct cl_tile *tile = mem_alloc(size_max(rows, 1), sizeof *tile);
    const size_t index = round_up(rows * sizeof(uint32_t), CL_STAGE_ALIGN);
    cl_stage_room(2 * (index + round_up(rows * sizeof *tile, CL_STAGE_ALIGN)));
    if (!tile)
        cl_fail_memory();
    if (!tile || !rows)
        return;
    struct cl_product_args args = {
        .x = cl_row(step, g->in, 0),
        .y = cl_row(step, p->y, 0),
        .x_stride = (cl_number)g->in.stride,
        .y_stride = (cl_number)p->y.stride,
        .in_row = g->in_row ? cl_stage(g->in_row, rows * sizeof *g->in_row) : 0,
        .choice = g->choice ? cl_stage(g->choice, rows * sizeof *g->choice) : 0,
        .weight = g->choice ? cl_row(step, g->weight, 0) : 0,
        .rows = (cl_number)rows,
        .act = p->act,
        .limit = p->limit,
        .alpha = p->alpha,
    };
    if (product_has_gate(p)) {
        struct cl_product_args gate = args;
        gate.y = args.gate = pass->gates;
        gate.y_stride = args.gate_stride = (cl_number)p->gate.matrix.out;
        gate.raw = 1;
        launch_groups(pass, g, &p->gate, g->gate_data, &gate, tile, tile_rows(most));
    }
    launch_groups(pass, g, &p->w, g->data, &args, tile, tile_rows(most));
}

int cl_run_route(struct cl_pass *pass, const struct op *op, const struct op_step *step,
                 struct row_range rows, struct err *err)
{
    (void)err;
    const struct op_route *r = &op->route;
    const struct cl_route_args args = {.logits = cl_row(step, op->in, rows.first),
                                       .chosen = cl_row(step, r->chosen, rows.first),
                                       .weight = cl_row(step, r->weight, rows.first),
                                       .select_bias = r->select_bias.device_address,
                                       .gain = r->gain.device_address,
                                       .score = pass->scores,
                                       .logits_stride = (cl_number)op->in.stride,
                                       .chosen_stride = (cl_number)r->chosen.stride,
                                       .weight_stride = (cl_number)r->weight.stride,
                                       .rows = (cl_number)rows.n,
                                       .experts = (cl_number)r->experts,
                                       .used = (cl_number)r->used,
                                       .kind = r->kind,
                                       .top2 = r->group == ROUTER_GROUP_TOP2,
                                       .groups = (cl_number)r->groups,
                                       .groups_used = (cl_number)r->groups_used,
                                       .norm = r->norm,
                                       .scale = r->scale};
    cl_launch(pass->route, &args, sizeof args, (size_t[]){div_up(rows.n, CL_LANES), 1, 1},
              (size_t[]){CL_LANES, 1, 1});
    return 0;
}

int cl_run_mix(struct cl_pass *pass, const struct op *op, const struct op_step *step,
               struct row_range rows, struct err *err)
{
    (void)err;
    const struct op_mix *m = &op->mix;
    const size_t bytes = rows.n * m->used * sizeof *step->pair;
    cl_stage_room(round_up(bytes, CL_STAGE_ALIGN));
    struct cl_row_args args = {.in = cl_row(step, op->in, 0),
                               .out = cl_row(step, op->out, rows.first),
                               .a = m->weighted ? cl_row(step, m->weight, rows.first) : 0,
                               .index = cl_stage(step->pair, bytes),
                               .in_stride = (cl_number)op->in.stride,
                               .out_stride = (cl_number)op->out.stride,
                               .other_stride = (cl_number)m->weight.stride,
                               .used = (cl_number)m->used,
                               .first = (cl_number)m->first,
                               .n = (cl_number)m->n,
                               .add = m->add};
    cl_launch(pass->mix, &args, sizeof args, (size_t[]){div_up(m->n, CL_LANES), rows.n, 1},
              (size_t[]){CL_LANES, 1, 1});
    args.a = m->bias.device_address;
    args.other_stride = 0;
    if (args.a)
        cl_launch(pass->shared, &args, sizeof args, (size_t[]){1, rows.n, 1},
                  (size_t[]){CL_LANES, 1, 1});
    if (!m->shared_mlp)
        return 0;
    args.in = cl_row(step, m->x, rows.first);
    args.in_stride = (cl_number)m->x.stride;
    args.a = cl_row(step, m->shared, rows.first);
    args.other_stride = (cl_number)m->shared.stride;
    args.b = m->shared_router.device_address;
    args.width = (cl_number)m->width;
    cl_launch(pass->shared, &args, sizeof args, (size_t[]){1, rows.n, 1}, (size_t[]){CL_LANES, 1, 1});
    return 0;
}
