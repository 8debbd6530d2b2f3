/* Imports rows from a source tensor: finds, reorders and converts them. */
#include "model/convert/tensor_import.h"

#include <stdatomic.h>

#include "base/repro_math.h"
#include "base/threads.h"
#include "quant/quant_types.h"

/* ---- elements ---- */

enum { CHUNK = BLOCK_MAX_ELEMENTS }; /* elements per conversion step */

/* Dequantises n elements of blocks, `step` apart, from element `first` of the block at `in` on. */
static void gather_blocks(float *x, const struct block_type *type, const unsigned char *in,
                          size_t first, size_t step, size_t n)
{
    float block[BLOCK_MAX_ELEMENTS];
    for (size_t i = 0; i < n; i++) {
        const size_t at = first + i * step;
        type->dequantize(block, in + at / type->elements * type->bytes, 1);
        x[i] = block[at % type->elements];
    }
}

/* Dequantises n elements, `step` apart, to f32. A step other than 1 is allowed only for types with
 * one element per block; step 0 repeats one element. */
static void dequantize_some(float *x, const struct block_type *type, const unsigned char *in,
                            size_t step, size_t n)
{
    unsigned char contiguous[CHUNK * sizeof(int64_t)];
    if (step != 1) {
        for (size_t i = 0; i < n; i++)
            memcpy(contiguous + i * type->bytes, in + i * step * type->bytes, type->bytes);
        in = contiguous;
    }
    type->dequantize(x, in, n / type->elements);
}

/* True if elements can be copied to the target type without conversion. */
static bool is_copy(const struct block_type *type, size_t step, enum dtype to)
{
    return step == 1 && type->elements == 1 && type->stored == to && type->bytes == dtype_size(to);
}

static void convert_some(const struct block_type *type, const unsigned char *in, size_t step,
                         enum dtype to, char *out, size_t n)
{
    float x[CHUNK];
    for (size_t at = 0, some; at < n; at += some) {
        some = size_min(CHUNK, n - at);
        dequantize_some(x, type, in + at / type->elements * type->bytes * step, step, some);
        dtype_from_f32(out + at * dtype_size(to), to, x, some);
    }
}

/* Finds out why a converted row is not finite: the source is not, or the target type overflowed. */
static enum import_result find_cause(const struct block_type *type, const unsigned char *in,
                                     size_t step, size_t n)
{
    float x[CHUNK];
    for (size_t at = 0, some; at < n; at += some) {
        some = size_min(CHUNK, n - at);
        dequantize_some(x, type, in + at / type->elements * type->bytes * step, step, some);
        if (!dtype_finite(DTYPE_F32, x, some))
            return IMPORT_BROKEN;
    }
    return IMPORT_TOO_LARGE;
}

/* Converts a row: copies it, transcodes it if the target is quantised, or converts it via f32. */
static enum import_result convert_row(const struct block_type *type, const unsigned char *in,
                                      size_t step, enum dtype to, void *out, size_t n)
{
    if (is_copy(type, step, to))
        memcpy(out, in, n * type->bytes);
    else if (dtype_is_quantized(to))
        type->transcode(out, in, n); /* never integers */
    else
        convert_some(type, in, step, to, out, n);
    return dtype_finite(to, out, n) ? IMPORT_FINITE : find_cause(type, in, step, n);
}

/* ---- integers ---- */

static void dequantize_int64(float *to, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t x;
        memcpy(&x, from + i * sizeof x, sizeof x);
        to[i] = (float)x;
    }
}

/* Tables of ids are int64 in all formats; f32 holds differences of ids exactly. */
static const struct block_type int64_type = {"I64", 0, 1, 8, dequantize_int64, NULL, DTYPE_F32};

/* The type of a source tensor's elements; NULL: a weight kind cannot be imported from it. */
static const struct block_type *tensor_import_type(const struct source_tensor *from,
                                                   const struct weight_kind *kind)
{
    const bool is_int64 = from->type_name && (strcmp(from->type_name, "I64") == 0 ||
                                              strcmp(from->type_name, "LongStorage") == 0);
    if (kind->fill == FILL_IDS)
        return is_int64 ? &int64_type : NULL;
    return from->split                  ? from->split->type
           : from->type == SOURCE_OTHER ? NULL
                                        : &block_types[from->type];
}

/* ---- rows ---- */

size_t tensor_import_source_row(const struct tensor_import *import, size_t row)
{
    if (import->taps) {
        const size_t channels = import->group / import->taps;
        return row % channels * import->taps + row / channels;
    }
    if (import->rope_dim) {
        const size_t in_head = row % import->head_dim, half = import->rope_dim / 2;
        const size_t at = in_head - import->rope_at; /* wraps around before the rotary elements */
        if (at < import->rope_dim)
            row += 2 * (at % half) + (at >= half) - at;
    }
    return row / import->group * import->group_from + import->first + row % import->group;
}

/* The source element that an output row begins with. */
static size_t first_element(const struct tensor_import *import, size_t row)
{
    return import->group_step
               ? row / import->group * import->group_step + row % import->group * import->row_step
               : tensor_import_source_row(import, row) * import->row_step;
}

/* convert_row() for a row of a tensor whose values are in several tensors, from element number `first` on. */
static enum import_result split_import_row(const struct tensor_import *import, size_t first,
                                           enum dtype to, unsigned char *out)
{
    const struct split_weights *split = import->from->split;
    if (dtype_is_quantized(to))
        split_row(out, to, split, first / split->columns);
    float x[CHUNK];
    for (size_t at = 0, some; at < import->columns && !dtype_is_quantized(to); at += some) {
        some = size_min(CHUNK, import->columns - at);
        split_values(x, split, first + at * import->column_step, import->column_step, some);
        if (!dtype_finite(DTYPE_F32, x, some))
            return IMPORT_BROKEN;
        dtype_from_f32(out + at * dtype_size(to), to, x, some);
    }
    return dtype_finite(to, out, import->columns) ? IMPORT_FINITE
           : dtype_is_quantized(to)               ? IMPORT_BROKEN
                                                  : IMPORT_TOO_LARGE;
}

/* convert_row() for a row that is a column of quantised blocks; `to` is not quantised. */
static enum import_result gather_row(const struct tensor_import *import, const unsigned char *in,
                                     size_t first, enum dtype to, void *out)
{
    float x[CHUNK];
    for (size_t at = 0, some; at < import->columns; at += some) {
        some = size_min(CHUNK, import->columns - at);
        gather_blocks(x, import->type, in, first + at * import->column_step, import->column_step, some);
        if (!dtype_finite(DTYPE_F32, x, some))
            return IMPORT_BROKEN;
        dtype_from_f32((char *)out + at * dtype_size(to), to, x, some);
    }
    return dtype_finite(to, out, import->columns) ? IMPORT_FINITE : IMPORT_TOO_LARGE;
}

/* convert_row() for a row of quantised blocks whose scales the source has in a tensor of their own, from
 * block number `block` on. */
static enum import_result convert_split_row(const struct tensor_import *import, size_t block,
                                            enum dtype to, unsigned char *out)
{
    enum { BLOCKS = CHUNK / QK_GROUP };
    unsigned char joined[BLOCKS * MXFP4_BYTES];
    unsigned char row[MXFP4_BYTES * QK_GROUP];
    float x[CHUNK];
    const struct source_tensor *from = import->from;
    const size_t n = import->columns / QK_GROUP;
    enum import_result worst = IMPORT_FINITE;
    for (size_t at = 0, some; at < n; at += some) {
        some = size_min(BLOCKS, n - at);
        block_join_mxfp4(joined, from->data + (block + at) * MXFP4_SPLIT_BYTES,
                         from->scales + block + at, some);
        if (to == DTYPE_MXFP4) {
            import->type->transcode(row, joined, some * QK_GROUP);
            memcpy(out + quant_row_q_bytes(to, at * QK_GROUP), row,
                   quant_row_q_bytes(to, some * QK_GROUP));
            memcpy(out + quant_row_scales_at(to, import->columns, SCALE_MAIN) + at,
                   row + quant_row_scales_at(to, some * QK_GROUP, SCALE_MAIN), some);
            continue;
        }
        import->type->dequantize(x, joined, some);
        if (!dtype_finite(DTYPE_F32, x, some * QK_GROUP))
            return IMPORT_BROKEN;
        dtype_from_f32((char *)out + at * QK_GROUP * dtype_size(to), to, x, some * QK_GROUP);
    }
    if (!dtype_finite(to, out, import->columns))
        worst = to == DTYPE_MXFP4 ? IMPORT_BROKEN : IMPORT_TOO_LARGE;
    return worst;
}

enum { CHUNK_ELEMENTS = 1 << 16 };

struct conversion {
    const struct tensor_import *import;
    size_t first_row, rows, chunk_rows; /* rows per task */
    enum dtype to;
    unsigned char *out;
    atomic_bool found[IMPORT_BROKEN + 1];
};

/* Changes one f32 value as the transform says. */
static void adjust(const struct tensor_import *import, unsigned char *at)
{
    float x;
    memcpy(&x, at, sizeof x);
    x = import->plus_one ? x + 1 : import->exp ? (float)repro_exp(x) : import->negated ? -x : x;
    memcpy(at, &x, sizeof x);
}

static void convert_chunk(void *arg, size_t index)
{
    struct conversion *c = arg;
    const struct tensor_import *p = c->import;
    const struct block_type *type = p->type;
    const size_t end = size_min(c->rows, (index + 1) * c->chunk_rows);
    for (size_t i = index * c->chunk_rows; i < end; i++) {
        const size_t at = p->base + first_element(p, c->first_row + i);
        const unsigned char *in =
            p->from->split ? NULL : p->from->data + at / type->elements * type->bytes;
        unsigned char *out = c->out + i * dtype_row_bytes(c->to, p->columns);
        const enum import_result result =
            p->from->split             ? split_import_row(p, at, c->to, out)
            : p->from->scales          ? convert_split_row(p, at / type->elements, c->to, out)
            : tensor_import_gathers(p) ? gather_row(p, in, at % type->elements, c->to, out)
                                       : convert_row(type, in, p->column_step, c->to, out, p->columns);
        atomic_store(&c->found[result], true);
        if (p->plus_one || p->exp || p->negated)
            adjust(p, out);
    }
}

enum import_result tensor_import_rows(const struct tensor_import *import, size_t first_row, size_t rows,
                                      enum dtype to, void *out)
{
    const size_t chunk_rows = size_max(1, CHUNK_ELEMENTS / import->columns);
    struct conversion c = {import, first_row, rows, chunk_rows, to, out, {false}};
    parallel_for(div_up(rows, chunk_rows), 4 * rows * import->columns, convert_chunk, &c);
    return c.found[IMPORT_BROKEN]      ? IMPORT_BROKEN
           : c.found[IMPORT_TOO_LARGE] ? IMPORT_TOO_LARGE
                                       : IMPORT_FINITE;
}

/* ---- planning ---- */

/* The shape that a source tensor needs, experts in a dimension before the others; and the elements of an
 * output row. */
struct needed_shape {
    size_t n_dims, dim[3], columns;
    /* vectors may also be matrices with a row per head of this size; 0: they may not */
    size_t head_dim;
};

/* True if the dimensions of a tensor are those needed; of one that has more, those of size 1 are left
 * out. */
static bool same_shape(const struct source_tensor *from, const struct needed_shape *needed)
{
    size_t n = 0, surplus = from->n_dims > needed->n_dims ? from->n_dims - needed->n_dims : 0;
    for (size_t i = 0; i < from->n_dims; i++) {
        if (!from->strided && surplus && from->dim[i] == 1) {
            surplus--;
            continue;
        }
        if (n == needed->n_dims || from->dim[i] != needed->dim[n++])
            return false;
    }
    return n == needed->n_dims;
}

static int check_shape(const struct source_tensor *from, const struct block_type *type,
                       const struct needed_shape *needed, const char *name, struct err *err)
{
    const size_t columns = needed->columns;
    if (columns % type->elements)
        return err_set(err,
                       "%s: tensor \"%s\" is %s: rows of %zu are not a multiple of its block size %zu",
                       name, from->name, from->type_name, columns, type->elements);
    /* GGUF has the vectors, or in latent attention the matrices, of all heads one after the other */
    const bool vector = needed->n_dims == 1;
    const size_t rows = needed->dim[0];
    const size_t lines = vector ? needed->head_dim : from->n_dims == 3 ? from->dim[1] : 0;
    const bool by_head = !from->strided && needed->n_dims < 3 && from->n_dims == needed->n_dims + 1 &&
                         lines && rows % lines == 0 && from->dim[0] == rows / lines &&
                         from->dim[1] == lines && (vector || from->dim[2] == columns);
    if (same_shape(from, needed) || by_head)
        return 0;
    char found[3 * 24 + 1] = "", want[3 * 24 + 1] = "";
    for (size_t i = 0, n = 0; i < size_min(size_max(from->n_dims, 1), 3); i++)
        n += (size_t)snprintf(found + n, sizeof found - n, "[%zu]", from->n_dims ? from->dim[i] : 0);
    for (size_t i = 0, n = 0; i < needed->n_dims; i++)
        n += (size_t)snprintf(want + n, sizeof want - n, "[%zu]", needed->dim[i]);
    return err_set(err, "%s: tensor \"%s\" has shape %s%s, its configuration needs %s", name,
                   from->name, found, from->n_dims > 3 ? ".." : "", want);
}

static int check_type(const struct source_tensor *from, const struct weight_kind *kind,
                      const char *name, struct err *err)
{
    if (tensor_import_type(from, kind))
        return 0;
    if (kind->fill == FILL_IDS)
        return err_set(err, "%s: tensor \"%s\" is of type %s, expected I64", name, from->name,
                       from->type_name);
    return err_set(
        err,
        "%s: tensor \"%s\" is of type %s, only F32, F16 and BF16 are supported; save the model in "
        "one of these (in PyTorch: model.float())",
        name, from->name, from->type_name);
}

/* Locates the rows of a weight kind in a fused tensor (as K in QKV), by setting import->group,
 * group_from and first; returns the number of rows of the whole tensor. */
static size_t plan_parts(struct tensor_import *import, const struct tensor_transform *transform,
                         const struct weight_kind *kind, const struct config *config)
{
    size_t all = 0, before = 0;
    for (size_t i = 0; i < transform->n_parts; i++) {
        if (transform->parts[i] == kind)
            before = all;
        all += config_dim(config, transform->parts[i]->out);
    }
    const size_t own = config_dim(config, kind->out), often = transform->turns ? transform->turns : 1;
    const size_t turns = transform->by_head         ? config->kv_heads
                         : transform->by_query_head ? config->heads
                         : transform->by_key_head   ? config->recurrent->key_heads
                         : transform->by_row        ? own
                                                    : often;
    if (transform->n_parts == 0)
        all = own;
    import->group = own / turns;
    import->group_from = all / turns;
    import->first = before / turns;
    return all;
}

/* True if the rows of each part (Q, K or V) of a fused tensor can be divided evenly into
 * transform->turns runs without dividing a head. */
static bool turns_come_out(const struct tensor_transform *transform, const struct config *config)
{
    for (size_t i = 0; transform->turns && i < transform->n_parts; i++) {
        const enum dim out = transform->parts[i]->out;
        const size_t whole = out == DIM_Q || out == DIM_KV ? config->head_dim : 1;
        if (config_dim(config, out) / whole % transform->turns)
            return false;
    }
    return true;
}

/* Checks the order of a tensor's rows, and sets that of interleaved rotary pairs. */
static int plan_order(struct tensor_import *import, const struct tensor_transform *transform,
                      const struct weight_kind *kind, const struct config *config, const char *name,
                      struct err *err)
{
    if (!turns_come_out(transform, config))
        return err_set(err, "%s: the parts of tensor \"%s\" cannot be split evenly into %zu turns",
                       name, import->from->name, transform->turns);
    /* config_read() has checked the rotary sizes */
    if (transform->interleaved && config->position != POSITION_ROPE)
        return err_set(err,
                       "%s: tensor \"%s\" is marked interleaved, but the model has no rotary positions",
                       name, import->from->name);
    if (transform->interleaved) {
        const bool index = kind->out == DIM_INDEX_Q || kind->out == DIM_INDEX_K;
        import->head_dim = index                ? config->latent->index_dim
                           : kind->out == DIM_Q ? config_query_dim(config)
                                                : config->head_dim;
        import->rope_dim = transform->interleaved_head ? import->head_dim : config_rope_dim(config);
        import->rope_at = config->latent->kv_rank && !index ? import->head_dim - import->rope_dim : 0;
    }
    return 0;
}

int tensor_import_order(struct tensor_import *import, size_t *rows, const struct source_tensor *from,
                        const struct tensor_transform *transform, const struct weight_kind *kind,
                        const struct config *config, const char *name, struct err *err)
{
    *import = (struct tensor_import){.from = from};
    if (transform->of_kv_b || kind->in == DIM_NONE || transform->per_expert)
        return err_set(err, "%s: tensor \"%s\" is not a single matrix of the model", name, from->name);
    *rows = plan_parts(import, transform, kind, config);
    return plan_order(import, transform, kind, config, name, err);
}

/* Locates k_b or v_b in kv_b, [H][nope_dim of K, then v_dim of V][kv_lora_rank]. The matrices of k_b are
 * those of K transposed, as it is multiplied from the other side (model/latent_ops.c). */
static int plan_kv_b(struct tensor_import *import, const struct weight_kind *kind,
                     const struct config *config, const char *name, struct err *err)
{
    const struct source_tensor *from = import->from;
    const size_t rows = config->latent->nope_dim + config->latent->v_dim,
                 rank = config->latent->kv_rank;
    const size_t row_step = from->strided ? from->stride[0] : rank,
                 column_step = from->strided ? from->stride[1] : 1;
    if (check_type(from, kind, name, err) < 0)
        return -1;
    if (kind->in == DIM_NOPE) {
        import->group = rank;
        import->group_step = rows * row_step;
        import->row_step = column_step;
        import->column_step = row_step;
    } else {
        import->group = config->latent->v_dim;
        import->group_from = rows;
        import->first = config->latent->nope_dim;
        import->row_step = row_step;
        import->column_step = column_step;
    }
    const struct needed_shape needed = {2, {config->heads * rows, rank, 0}, rank, 0};
    return check_shape(from, import->type, &needed, name, err);
}

int tensor_import_plan(struct tensor_import *import, const struct source_tensor *from,
                       const struct tensor_transform *transform, const struct weight_kind *kind,
                       size_t expert, const struct config *config, const char *name, struct err *err)
{
    const size_t experts = transform->per_expert ? 0 : weight_kind_stack(kind, config);
    const size_t columns = config_dim(config, kind->in);
    const bool qk_norm =
        config->qk_norm == QK_NORM_EACH && (kind->out == DIM_Q_NORM || kind->out == DIM_K_NORM);
    /* of Mamba-2: GGUF has a row for each head of keys */
    const bool state_norm =
        kind->out == DIM_STATE_NORM && config_dim(config, kind->out) > config->recurrent->value_dim;
    const bool per_head = qk_norm && transform->per_expert, each = (qk_norm && !per_head) || state_norm;
    const size_t head_dim = qk_norm      ? config->head_dim
                            : state_norm ? config_state_values(config) / config->recurrent->key_heads
                                         : 0;
    /* some vectors are published as matrices of one row, or in GGUF of one column */
    const bool transposed = transform->transposed || (kind->in == DIM_NONE && from->n_dims == 2 &&
                                                      from->dim[1] != 1 && !each && !experts);
    *import =
        (struct tensor_import){.from = from,
                               .type = tensor_import_type(from, kind),
                               .columns = columns,
                               .plus_one = transform->plus_one,
                               .exp = transform->exp,
                               .negated = transform->negated,
                               .per_head = per_head,
                               .conv_part = kind->out == DIM_CONV_WEIGHT && transform->per_expert};
    const size_t all = plan_parts(import, transform, kind, config);
    const size_t rows = per_head ? config->head_dim : import->conv_part ? all / CONV_PARTS : all;
    import->row_step = transposed ? 1 : columns;
    import->column_step = transposed ? rows : 1;
    import->base = experts ? expert * rows * columns : 0;
    if (from->strided) {
        const size_t *stride = from->stride + (experts > 0);
        import->row_step = stride[transposed];
        import->column_step = stride[!transposed];
        import->base = experts ? expert * from->stride[0] : 0;
    }
    if (transform->of_kv_b)
        return plan_kv_b(import, kind, config, name, err);
    if (plan_order(import, transform, kind, config, name, err) < 0 ||
        check_type(from, kind, name, err) < 0)
        return -1;
    const bool conv = transform->transposed && kind->in == DIM_NONE;
    if (from->strided && conv)
        return err_set(err, "%s: tensor \"%s\" is not contiguous; save the model as safetensors", name,
                       from->name);
    if (conv) {
        const size_t taps = import->taps = config->recurrent->conv_kernel;
        import->group = rows;
        const struct needed_shape needed = {2, {rows / taps, taps, 0}, taps, 0};
        return check_shape(from, import->type, &needed, name, err);
    }
    if (transposed && (import->type->elements > 1 || from->split))
        return err_set(err, "%s: tensor \"%s\" is of block type %s, which cannot be transposed", name,
                       from->name, from->type_name);
    struct needed_shape needed = {.columns = columns, .head_dim = each ? head_dim : 0};
    /* experts of a stack may follow each other in one matrix */
    const bool flat = experts && from->n_dims == 2 && kind->in != DIM_NONE && !from->strided;
    if (experts && !flat)
        needed.dim[needed.n_dims++] = experts;
    needed.dim[needed.n_dims++] = (transposed ? columns : rows) * (flat ? experts : 1);
    if (kind->in != DIM_NONE || transposed)
        needed.dim[needed.n_dims++] = transposed ? rows : columns;
    return check_shape(from, import->type, &needed, name, err);
}
