/* Rows of a role out of a tensor of a source. */
#include "model/pick.h"

#include <stdatomic.h>
#include <string.h>

#include "base/threads.h"

/* ---- elements ---- */

enum { FEW = BLOCK_MAX_ELEMENTS }; /* elements at a time */

/* Elements that lie one behind the other, or `step` blocks of one element apart: none, where one stands for all. */
static void widen(float *x, const struct block_type *type, const unsigned char *in, size_t step,
                  size_t n)
{
    unsigned char close[FEW * sizeof(float)];
    if (step != 1) {
        for (size_t i = 0; i < n; i++)
            memcpy(close + i * type->bytes, in + i * step * type->bytes, type->bytes);
        in = close;
    }
    type->widen(x, in, n / type->elements);
}

/* Elements that are what is wanted already, and lie together. */
static bool is_copy(const struct block_type *type, size_t step, enum dtype to)
{
    return step == 1 && type->elements == 1 && type->stored == to;
}

static void convert_some(const struct block_type *type, const unsigned char *in, size_t step,
                         enum dtype to, char *out, size_t n)
{
    float x[FEW];
    for (size_t at = 0, some; at < n; at += some) {
        some = size_min(FEW, n - at);
        widen(x, type, in + at / type->elements * type->bytes * step, step, some);
        dtype_narrow(out + at * dtype_size(to), to, x, some);
    }
}

/* Why elements are not finite that were converted: it was the source's, or the type is too small for them. */
static enum pick_worst blame(const struct block_type *type, const unsigned char *in, size_t step,
                             size_t n)
{
    float x[FEW];
    for (size_t at = 0, some; at < n; at += some) {
        some = size_min(FEW, n - at);
        widen(x, type, in + at / type->elements * type->bytes * step, step, some);
        if (!dtype_finite(DTYPE_F32, x, some))
            return PICK_BROKEN;
    }
    return PICK_TOO_LARGE;
}

/* To a type of few bits only rows of a source's type that it holds as it is: others go by way of f32. */
static enum pick_worst convert_row(const struct block_type *type, const unsigned char *in, size_t step,
                                   enum dtype to, void *out, size_t n)
{
    if (is_copy(type, step, to))
        memcpy(out, in, n * type->bytes);
    else if (dtype_few_bits(to))
        block_take((enum source_type)(type - block_types), out, in, n);
    else
        convert_some(type, in, step, to, out, n);
    return dtype_finite(to, out, n) ? PICK_FINITE : blame(type, in, step, n);
}

/* ---- rows ---- */

/* Row of the source (or column, when it is transposed) that is a row of the role. */
static size_t source_row(const struct pick *pick, size_t row)
{
    if (pick->rope_dim) {
        const size_t in_head = row % pick->head_dim, half = pick->rope_dim / 2;
        if (in_head < pick->rope_dim)
            row += 2 * (in_head % half) + (in_head >= half) - in_head;
    }
    return row / pick->group * pick->group_from + pick->first + row % pick->group;
}

enum { PIECE = 1 << 16 };

struct conversion {
    const struct pick *pick;
    size_t first_row, rows, piece; /* rows at a time */
    enum dtype to;
    unsigned char *out;
    atomic_bool found[PICK_BROKEN + 1];
};

/* To an element of a vector; vectors are f32. */
static void add_one(unsigned char *at)
{
    float x;
    memcpy(&x, at, sizeof x);
    x += 1;
    memcpy(at, &x, sizeof x);
}

static void convert_piece(void *arg, size_t index)
{
    struct conversion *c = arg;
    const struct pick *p = c->pick;
    const struct block_type *type = &block_types[p->from->type];
    const size_t end = size_min(c->rows, (index + 1) * c->piece);
    for (size_t i = index * c->piece; i < end; i++) {
        const size_t at = source_row(p, c->first_row + i) * p->row_step;
        const unsigned char *in = p->from->data + at / type->elements * type->bytes;
        unsigned char *out = c->out + i * dtype_row_bytes(c->to, p->columns);
        atomic_store(&c->found[convert_row(type, in, p->column_step, c->to, out, p->columns)], true);
        if (p->plus_one)
            add_one(out);
    }
}

enum pick_worst pick_rows(const struct pick *pick, size_t first_row, size_t rows, enum dtype to,
                          void *out)
{
    const size_t piece = size_max(1, PIECE / pick->columns);
    struct conversion c = {pick, first_row, rows, piece, to, out, {false}};
    threads_each(div_up(rows, piece), 4 * rows * pick->columns, convert_piece, &c);
    return c.found[PICK_BROKEN] ? PICK_BROKEN : c.found[PICK_TOO_LARGE] ? PICK_TOO_LARGE : PICK_FINITE;
}

/* ---- planning ---- */

static int check_shape(const struct source_tensor *from, bool vector, size_t rows, size_t columns,
                       const char *name, struct err *err)
{
    if (from->type == SOURCE_OTHER)
        return err_set(
            err,
            "%s: tensor \"%s\" is %s; F32, F16 and BF16 can be converted: save the model in one of "
            "those (in PyTorch, model.float() makes F32)",
            name, from->name, from->type_name);
    if (columns % block_types[from->type].elements)
        return err_set(
            err, "%s: tensor \"%s\" is %s, in blocks of %zu, which its rows of %zu are not made of",
            name, from->name, from->type_name, block_types[from->type].elements, columns);
    if (from->n_dims != (vector ? 1 : 2) || from->dim[0] != rows ||
        (!vector && from->dim[1] != columns))
        return err_set(err,
                       "%s: tensor \"%s\" is [%zu][%zu] in the weights, its configuration means "
                       "[%zu][%zu]",
                       name, from->name, from->n_dims ? from->dim[0] : 0,
                       from->n_dims > 1 ? from->dim[1] : 1, rows, columns);
    return 0;
}

/* Where the rows lie among those of the other parts. */
static size_t plan_parts(struct pick *pick, const struct recipe *recipe, const struct role *role,
                         const struct config *config)
{
    size_t all = 0, before = 0;
    for (size_t i = 0; i < recipe->n_parts; i++) {
        if (recipe->parts[i] == role)
            before = all;
        all += config_dim(config, recipe->parts[i]->out);
    }
    const size_t own = config_dim(config, role->out), often = recipe->turns ? recipe->turns : 1;
    const size_t turns = recipe->by_head ? config->kv_heads : often;
    if (recipe->n_parts == 0)
        all = own;
    pick->group = own / turns;
    pick->group_from = all / turns;
    pick->first = before / turns;
    return all;
}

/* Each part has a whole number of rows in each turn, or of heads. */
static bool turns_come_out(const struct recipe *recipe, const struct config *config)
{
    for (size_t i = 0; recipe->turns && i < recipe->n_parts; i++) {
        const enum dim out = recipe->parts[i]->out;
        const size_t whole = out == DIM_Q || out == DIM_KV ? config->head_dim : 1;
        if (config_dim(config, out) / whole % recipe->turns)
            return false;
    }
    return true;
}

int pick_plan(struct pick *pick, const struct source_tensor *from, const struct recipe *recipe,
              const struct role *role, const struct config *config, const char *name, struct err *err)
{
    const size_t columns = config_dim(config, role->in);
    *pick = (struct pick){.from = from, .columns = columns, .plus_one = recipe->plus_one};
    const size_t rows = plan_parts(pick, recipe, role, config);
    pick->row_step = recipe->transposed ? 1 : columns;
    pick->column_step = recipe->transposed ? rows : 1;
    if (from->strided) {
        pick->row_step = from->stride[recipe->transposed];
        pick->column_step = from->stride[!recipe->transposed];
    }
    if (!turns_come_out(recipe, config))
        return err_set(err, "%s: what tensor \"%s\" holds cannot take %zu turns evenly", name,
                       from->name, recipe->turns);
    /* A configuration that rotates has had its sizes checked. */
    if (recipe->interleaved && config->position != POSITION_ROPE)
        return err_set(err, "%s: tensor \"%s\" is said to be interleaved, but nothing rotates", name,
                       from->name);
    if (recipe->interleaved) {
        pick->head_dim = config->head_dim;
        pick->rope_dim = config_rope_dim(config);
    }
    if (recipe->transposed && from->type != SOURCE_OTHER && block_types[from->type].elements > 1)
        return err_set(err, "%s: tensor \"%s\" is %s, in blocks, which cannot be transposed", name,
                       from->name, from->type_name);
    return recipe->transposed ? check_shape(from, false, columns, rows, name, err)
                              : check_shape(from, role->in == DIM_NONE, rows, columns, name, err);
}
