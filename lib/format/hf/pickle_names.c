/* Globals allowed in the pickle of a PyTorch checkpoint; all others are rejected. */
#include "format/hf/pickle_machine.h"

static int call_dict(struct pickle_machine *m, const struct value *args, struct err *err)
{
    if (args->count)
        return pickle_damaged(m, "OrderedDict has arguments", err);
    return pickle_push_new(m, (struct value){.kind = DICT}, err);
}

static int read_sizes(struct pickle_machine *m, const struct value *tuple, size_t *size,
                      const char *what, struct err *err)
{
    for (size_t i = 0; i < tuple->count; i++) {
        const struct value *value = pickle_member(m, tuple, i);
        if (value->kind != INTEGER || value->integer < 0)
            return pickle_damaged(m, what, err);
        size[i] = (size_t)value->integer;
    }
    return 0;
}

/* True if every element of the tensor is inside its storage. */
static bool fits(const struct pickle_tensor *t)
{
    size_t end = t->first, step;
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dim[i] == 0)
            return true;
    for (size_t i = 0; i < t->n_dims; i++)
        if (!size_mul(t->dim[i] - 1, t->stride[i], &step) || !size_add(end, step, &end))
            return false;
    return end < t->storage_elements;
}

/* _rebuild_tensor_v2(storage, first element, sizes, strides, requires_grad, hooks): pushes the
 * tensor. */
static int call_tensor(struct pickle_machine *m, const struct value *args, struct err *err)
{
    static const enum pickle_kind kinds[] = {STORAGE, INTEGER, TUPLE, TUPLE, PLAIN, DICT};
    bool right = args->count == ARRAY_LEN(kinds);
    for (size_t i = 0; right && i < ARRAY_LEN(kinds); i++)
        right = pickle_member(m, args, i)->kind == kinds[i];
    if (!right)
        return pickle_damaged(m, "a tensor's arguments are not storage, offset, sizes and strides",
                              err);
    const struct value *storage = pickle_member(m, args, 0), *first = pickle_member(m, args, 1);
    const struct value *sizes = pickle_member(m, args, 2), *strides = pickle_member(m, args, 3);
    const struct value *key = pickle_member(m, storage, 2);
    struct pickle_tensor t = {.storage = {key->text, key->count},
                              .type = &pickle_member(m, storage, 1)->global->type,
                              .storage_elements = (size_t)pickle_member(m, storage, 4)->integer,
                              .first = (size_t)first->integer,
                              .n_dims = sizes->count};
    if (first->integer < 0 || sizes->count > SOURCE_MAX_DIMS || strides->count != sizes->count)
        return pickle_damaged(m, "a tensor has too many dimensions, or another number of strides", err);
    if (read_sizes(m, sizes, t.dim, "a tensor has an invalid size", err) < 0 ||
        read_sizes(m, strides, t.stride, "a tensor has an invalid stride", err) < 0)
        return -1;
    if (!fits(&t))
        return pickle_damaged(m, "a tensor exceeds its storage", err);
    if (m->tensors == MAX_TENSORS)
        return pickle_too_much(m, "tensors", err);
    if (mem_grow(&m->tensor, &m->tensor_cap, m->tensors, sizeof *m->tensor, err) < 0)
        return -1;
    m->tensor[m->tensors++] = t;
    return pickle_push_new(m, (struct value){.kind = TENSOR, .tensor = m->tensors - 1}, err);
}

/* _rebuild_parameter(tensor, requires_grad, hooks): pushes the tensor itself. */
static int call_parameter(struct pickle_machine *m, const struct value *args, struct err *err)
{
    if (args->count != 3 || pickle_member(m, args, 0)->kind != TENSOR)
        return pickle_damaged(m, "a parameter's argument is not a tensor", err);
    return pickle_push(m, m->member[args->first], err);
}

static const struct global globals[] = {
    {"collections", "OrderedDict", call_dict, {0}},
    {"torch._utils", "_rebuild_tensor_v2", call_tensor, {0}},
    {"torch._utils", "_rebuild_parameter", call_parameter, {0}},
    {"torch", "FloatStorage", NULL, {"FloatStorage", SOURCE_F32, 4}},
    {"torch", "HalfStorage", NULL, {"HalfStorage", SOURCE_F16, 2}},
    {"torch", "BFloat16Storage", NULL, {"BFloat16Storage", SOURCE_BF16, 2}},
    {"torch", "DoubleStorage", NULL, {"DoubleStorage", SOURCE_OTHER, 8}},
    {"torch", "LongStorage", NULL, {"LongStorage", SOURCE_OTHER, 8}},
    {"torch", "IntStorage", NULL, {"IntStorage", SOURCE_OTHER, 4}},
    {"torch", "ShortStorage", NULL, {"ShortStorage", SOURCE_OTHER, 2}},
    {"torch", "CharStorage", NULL, {"CharStorage", SOURCE_OTHER, 1}},
    {"torch", "ByteStorage", NULL, {"ByteStorage", SOURCE_OTHER, 1}},
    {"torch", "BoolStorage", NULL, {"BoolStorage", SOURCE_OTHER, 1}},
};

const struct global *pickle_global(struct pickle_text module, struct pickle_text name)
{
    for (size_t i = 0; i < ARRAY_LEN(globals); i++)
        if (pickle_text_is(module, globals[i].module) && pickle_text_is(name, globals[i].name))
            return &globals[i];
    return NULL;
}
