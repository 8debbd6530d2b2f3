/* Writing GGUF: the head is made in memory, tensors are streamed. */
#include "format/gguf/gguf_write.h"

#include "base/file.h"

static const size_t type_size[GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8,
};

static void add_bytes(struct gguf_values *v, const void *bytes, size_t len)
{
    v->failed = v->failed || buf_add(&v->bytes, bytes, len, v->err) < 0;
}

/* Appends the low bytes of a number. */
static void add_number(struct gguf_values *v, uint64_t number, size_t bytes)
{
    add_bytes(v, &number, bytes);
}

static void add_key(struct gguf_values *v, const char *key, size_t len, enum gguf_type type)
{
    add_number(v, len, 8);
    add_bytes(v, key, len);
    add_number(v, type, 4);
    v->n++;
}

void gguf_add_text(struct gguf_values *v, const char *text, size_t len)
{
    add_number(v, len, 8);
    add_bytes(v, text, len);
}

void gguf_add_integer(struct gguf_values *v, enum gguf_type type, int64_t number)
{
    add_number(v, (uint64_t)number, type_size[type]);
}

void gguf_add_real(struct gguf_values *v, double number)
{
    const float rounded = (float)number;
    add_bytes(v, &rounded, sizeof rounded);
}

void gguf_put_text(struct gguf_values *v, const char *key, const char *text, size_t len)
{
    add_key(v, key, strlen(key), GGUF_STRING);
    gguf_add_text(v, text, len);
}

void gguf_put_integer(struct gguf_values *v, const char *key, enum gguf_type type, int64_t number)
{
    add_key(v, key, strlen(key), type);
    gguf_add_integer(v, type, number);
}

void gguf_put_real(struct gguf_values *v, const char *key, double number)
{
    add_key(v, key, strlen(key), GGUF_F32);
    gguf_add_real(v, number);
}

static void add_array(struct gguf_values *v, enum gguf_type type, size_t n)
{
    add_number(v, type, 4);
    add_number(v, n, 8);
}

void gguf_put_array(struct gguf_values *v, const char *key, enum gguf_type type, size_t n)
{
    add_key(v, key, strlen(key), GGUF_ARRAY);
    add_array(v, type, n);
}

void gguf_put_value(struct gguf_values *v, const struct gguf_value *value)
{
    add_key(v, value->key, value->key_len, value->is_array ? GGUF_ARRAY : value->type);
    if (value->is_array)
        add_array(v, value->type, value->count);
    add_bytes(v, value->data, value->bytes);
}

/* ---- tensors ---- */

int gguf_tensor_size(struct gguf_tensor *tensor, const char *path, struct err *err)
{
    const struct block_type *type = tensor->type;
    size_t elements = 1;
    for (size_t i = 0; i < tensor->n_dims; i++)
        if (!size_mul(elements, tensor->dim[i], &elements))
            return err_set(err, "%s: tensor \"%s\" is too large", path, tensor->name);
    if (tensor->dim[tensor->n_dims - 1] % type->elements)
        return err_set(err,
                       "%s: tensor \"%s\" cannot be %s in GGUF: rows of %zu are no multiple of %zu; "
                       "give it another type with --tensor-type",
                       path, tensor->name, type->name, tensor->dim[tensor->n_dims - 1], type->elements);
    if (!size_mul(elements / type->elements, type->bytes, &tensor->bytes))
        return err_set(err, "%s: tensor \"%s\" is too large", path, tensor->name);
    return 0;
}

struct gguf_sink {
    const struct gguf_plan *plan;
    struct outfile out;
    size_t left; /* bytes that the tensor still lacks */
    size_t done, total;
};

static void list_tensor(struct gguf_values *v, const struct gguf_tensor *tensor, size_t offset)
{
    gguf_add_text(v, tensor->name, strlen(tensor->name));
    add_number(v, tensor->n_dims, 4);
    for (size_t i = tensor->n_dims; i-- > 0;)
        add_number(v, tensor->dim[i], 8);
    add_number(v, tensor->type->ggml, 4);
    add_number(v, offset, 8);
}

int gguf_head(const struct gguf_plan *plan, struct buf *head, size_t *size, struct err *err)
{
    static const char zeros[GGUF_ALIGNMENT];
    struct gguf_values v = {.err = err, .bytes = *head};
    size_t end = 0;
    add_bytes(&v, "GGUF", 4);
    add_number(&v, 3, 4);
    add_number(&v, plan->n, 8);
    add_number(&v, plan->values->n, 8);
    add_bytes(&v, plan->values->bytes.data, plan->values->bytes.len);
    for (size_t i = 0; i < plan->n; i++) {
        list_tensor(&v, &plan->tensor[i], end);
        end = round_up(end + plan->tensor[i].bytes, GGUF_ALIGNMENT);
    }
    add_bytes(&v, zeros, round_up(v.bytes.len, GGUF_ALIGNMENT) - v.bytes.len);
    *head = v.bytes;
    *size = v.bytes.len + end;
    return v.failed ? -1 : 0;
}

int gguf_sink_add(struct gguf_sink *sink, const void *bytes, size_t len, struct err *err)
{
    sink->left -= len;
    sink->done += len;
    return outfile_write(&sink->out, bytes, len, err);
}

static int write_tensor(struct gguf_sink *sink, size_t index, struct err *err)
{
    static const char zeros[GGUF_ALIGNMENT];
    const struct gguf_plan *plan = sink->plan;
    const size_t bytes = plan->tensor[index].bytes;
    sink->left = bytes;
    if (plan->produce(plan->arg, index, sink, err) < 0)
        return -1;
    if (plan->progress)
        plan->progress(plan->arg, sink->done, sink->total);
    return outfile_write(&sink->out, zeros, round_up(bytes, GGUF_ALIGNMENT) - bytes, err);
}

int gguf_write(const struct gguf_plan *plan, const char *path, struct err *err)
{
    struct gguf_sink sink = {.plan = plan};
    struct buf head = {0};
    size_t size;
    for (size_t i = 0; i < plan->n; i++)
        sink.total += plan->tensor[i].bytes;
    if (gguf_head(plan, &head, &size, err) < 0 || outfile_open(&sink.out, path, err) < 0) {
        buf_release(&head);
        return -1;
    }
    int rc = outfile_write(&sink.out, head.data, head.len, err);
    for (size_t i = 0; i < plan->n && rc == 0; i++)
        rc = write_tensor(&sink, i, err);
    if (rc == 0)
        rc = outfile_commit(&sink.out, err);
    outfile_abort(&sink.out);
    buf_release(&head);
    return rc;
}
