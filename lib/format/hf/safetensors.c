/* One safetensors file: the 8-byte length of a JSON object, the object, then tensor data.
 * https://huggingface.co/docs/safetensors */
#include "format/tensorfile.h"

#include "base/mem.h"
#include "format/reader.h"

enum { MAX_HEADER_BYTES = 100 << 20 };

static const struct {
    const char *name;
    enum dtype type;
    size_t size;
} types[] = {
    {"F32", DTYPE_F32, 4},     {"F16", DTYPE_F16, 2},        {"BF16", DTYPE_BF16, 2},
    {"F64", SOURCE_OTHER, 8},  {"I64", SOURCE_OTHER, 8},     {"I32", SOURCE_OTHER, 4},
    {"I16", SOURCE_OTHER, 2},  {"I8", SOURCE_OTHER, 1},      {"U8", SOURCE_OTHER, 1},
    {"BOOL", SOURCE_OTHER, 1}, {"F8_E4M3", SOURCE_OTHER, 1}, {"F8_E5M2", SOURCE_OTHER, 1},
    {"U16", SOURCE_OTHER, 2},  {"U32", SOURCE_OTHER, 4},     {"U64", SOURCE_OTHER, 8},
};

/* The tensor data of a file, for bounds checks and errors; `offset` is where they begin. */
struct body {
    const char *file;
    const unsigned char *data;
    size_t offset, size;
};

static int read_size(const json_t *value, size_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *out = (size_t)json_integer_value(value);
    return 0;
}

static int read_shape(struct source_tensor *tensor, const json_t *shape, size_t *elements,
                      const char *file, struct err *err)
{
    if (!json_is_array(shape) || json_array_size(shape) > SOURCE_MAX_DIMS)
        return err_set(err, "%s: tensor \"%s\": shape is %s, expected a list of at most %d sizes", file,
                       tensor->name, json_type_name(shape), SOURCE_MAX_DIMS);
    tensor->n_dims = json_array_size(shape);
    *elements = 1;
    for (size_t i = 0; i < tensor->n_dims; i++)
        if (read_size(json_array_get(shape, i), &tensor->dim[i]) < 0 ||
            !size_mul(*elements, tensor->dim[i], elements))
            return err_set(err, "%s: tensor \"%s\": invalid size of dimension %zu", file, tensor->name,
                           i);
    return 0;
}

static int read_tensor(struct source_tensor *tensor, const json_t *entry, const struct body *body,
                       struct err *err)
{
    const json_t *type = json_object_get(entry, "dtype");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    size_t known = 0, elements = 0, bytes, begin, end;
    while (known < ARRAY_LEN(types) &&
           !(json_is_string(type) && strcmp(json_string_value(type), types[known].name) == 0))
        known++;
    if (known == ARRAY_LEN(types))
        return err_set(err, "%s: tensor \"%s\": dtype \"%s\" is unknown", body->file, tensor->name,
                       json_is_string(type) ? json_string_value(type) : json_type_name(type));
    tensor->type = types[known].type;
    tensor->type_name = types[known].name;
    if (read_shape(tensor, json_object_get(entry, "shape"), &elements, body->file, err) < 0)
        return -1;
    if (json_array_size(offsets) != 2 || read_size(json_array_get(offsets, 0), &begin) < 0 ||
        read_size(json_array_get(offsets, 1), &end) < 0 || begin > end)
        return err_set(err, "%s: tensor \"%s\": data_offsets must be [begin, end]", body->file,
                       tensor->name);
    if (end > body->size)
        return err_set(err,
                       "%s: tensor \"%s\" ends at byte %zu, but the file at %zu: truncated or damaged",
                       body->file, tensor->name, body->offset + end, body->offset + body->size);
    if (!size_mul(elements, types[known].size, &bytes) || bytes != end - begin)
        return err_set(err, "%s: tensor \"%s\" has %zu bytes, its shape needs %zu elements of %zu",
                       body->file, tensor->name, end - begin, elements, types[known].size);
    tensor->data = body->data + begin;
    tensor->bytes = bytes;
    return 0;
}

static int read_tensors(struct tensor_file *st, json_t *root, const struct body *body, struct err *err)
{
    st->tensor = calloc(json_object_size(root) + 1, sizeof *st->tensor);
    if (!st->tensor)
        return err_no_memory(err, "%s: its list of tensors", body->file);
    const char *key;
    json_t *entry;
    json_object_foreach(root, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0)
            continue;
        struct source_tensor *tensor = &st->tensor[st->n_tensors++];
        tensor->name = key;
        if (read_tensor(tensor, entry, body, err) < 0)
            return -1;
    }
    return tensors_check_overlaps(st->tensor, st->n_tensors, body->file, err);
}

int safetensors_parse(struct tensor_file *st, const void *data, size_t size, const char *name,
                      struct err *err)
{
    *st = (struct tensor_file){0};
    const unsigned char *bytes = data;
    uint64_t header;
    if (detect_refuse(data, size, KIND_OTHER, "a safetensors file", name, err) < 0)
        return -1;
    if (size < sizeof header)
        return err_set(err, "%s: %zu bytes are too short for a safetensors file", name, size);
    header = load_number(bytes, sizeof header);
    if (header > MAX_HEADER_BYTES || header > size - sizeof header)
        return err_set(
            err,
            "%s: the header claims %llu bytes, the file has %zu: not a safetensors file, or truncated",
            name, (unsigned long long)header, size);
    const struct body body = {name, bytes + 8 + header, 8 + (size_t)header, size - 8 - (size_t)header};
    json_t *root = NULL;
    if (json_parse_unique((const char *)bytes + 8, (size_t)header, name, &root, err) < 0)
        return -1;
    st->names = root;
    int rc = json_is_object(root)
                 ? read_tensors(st, root, &body, err)
                 : err_set(err, "%s: the header is %s, expected an object", name, json_type_name(root));
    if (rc < 0)
        tensor_file_release(st);
    return rc;
}
