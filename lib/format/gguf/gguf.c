/* Parsing GGUF files. Input is untrusted: every length is checked against the remaining bytes
 * first. */
#include "format/gguf/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "base/text_util.h"
#include "format/detect.h"
#include "format/tensors.h"

enum { MAX_DIMS = 4, MAX_NAME = 127, MAX_TENSORS = 1 << 17, MAX_DEPTH = 4, DEFAULT_ALIGNMENT = 32 };

/* Minimum bytes of a key-value pair and of an entry of the tensor list. */
enum { LEAST_VALUE = 13, LEAST_TENSOR = 24 };

/* Bytes of a value of each enum gguf_type; 0: variable. */
static const unsigned char type_bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct gguf_reader {
    const char *name; /* file name for errors */
    const unsigned char *begin, *at, *end;
};

static size_t left(const struct gguf_reader *r) { return (size_t)(r->end - r->at); }

static uint64_t load(const unsigned char *at, size_t bytes)
{
    uint64_t x = 0;
    for (size_t i = 0; i < bytes; i++)
        x |= (uint64_t)at[i] << 8 * i;
    return x;
}

static int cut_off(const struct gguf_reader *r, const char *what, struct err *err)
{
    return err_set(err, "%s: ends within %s at byte %zu: truncated or damaged", r->name, what,
                   (size_t)(r->end - r->begin));
}

static int take(struct gguf_reader *r, size_t bytes, uint64_t *value, const char *what, struct err *err)
{
    if (left(r) < bytes)
        return cut_off(r, what, err);
    *value = load(r->at, bytes);
    r->at += bytes;
    return 0;
}

static int take_text(struct gguf_reader *r, const char **text, size_t *len, const char *what,
                     struct err *err)
{
    uint64_t size;
    if (take(r, 8, &size, what, err) < 0)
        return -1;
    if (size > left(r))
        return cut_off(r, what, err);
    *text = (const char *)r->at;
    *len = (size_t)size;
    r->at += size;
    return 0;
}

/* ---- values ---- */

static int skip_array(struct gguf_reader *r, struct gguf_value *value, int depth, struct err *err);

/* Skips `count` values of a type; fails if the file ends before. */
static int skip(struct gguf_reader *r, enum gguf_type type, uint64_t count, int depth, struct err *err)
{
    struct gguf_value inner;
    const char *text;
    size_t len;
    if (type_bytes[type]) {
        if (count > left(r) / type_bytes[type])
            return cut_off(r, "a value", err);
        r->at += count * type_bytes[type];
        return 0;
    }
    for (uint64_t i = 0; i < count; i++)
        if ((type == GGUF_STRING ? take_text(r, &text, &len, "a value", err)
                                 : skip_array(r, &inner, depth + 1, err)) < 0)
            return -1;
    return 0;
}

static int take_type(struct gguf_reader *r, enum gguf_type *type, struct err *err)
{
    uint64_t number;
    if (take(r, 4, &number, "a value", err) < 0)
        return -1;
    if (number >= GGUF_TYPES)
        return err_set(err, "%s: the value before byte %zu has type %llu, expected below %d", r->name,
                       (size_t)(r->at - r->begin), (unsigned long long)number, (int)GGUF_TYPES);
    *type = (enum gguf_type)number;
    return 0;
}

static int skip_array(struct gguf_reader *r, struct gguf_value *value, int depth, struct err *err)
{
    uint64_t count;
    if (depth > MAX_DEPTH)
        return err_set(err, "%s: arrays are nested more than %d deep", r->name, (int)MAX_DEPTH);
    if (take_type(r, &value->type, err) < 0 || take(r, 8, &count, "an array", err) < 0)
        return -1;
    value->data = r->at;
    value->count = (size_t)count;
    return skip(r, value->type, count, depth, err);
}

static int take_value(struct gguf_reader *r, struct gguf_value *value, struct err *err)
{
    if (take_text(r, &value->key, &value->key_len, "a key", err) < 0 ||
        take_type(r, &value->type, err) < 0)
        return -1;
    value->is_array = value->type == GGUF_ARRAY;
    value->count = 1;
    value->data = r->at;
    if ((value->is_array ? skip_array(r, value, 1, err) : skip(r, value->type, 1, 1, err)) < 0)
        return -1;
    value->bytes = (size_t)(r->at - value->data);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct gguf_value *x = a, *y = b;
    return text_order(x->key, x->key_len, y->key, y->key_len);
}

static int take_values(struct gguf *gguf, struct gguf_reader *r, uint64_t count, struct err *err)
{
    if (count > left(r) / LEAST_VALUE)
        return cut_off(r, "its values", err);
    gguf->value = calloc((size_t)count + 1, sizeof *gguf->value);
    if (!gguf->value)
        return err_no_memory(err, "%s: its values", r->name);
    while (gguf->n_values < count)
        if (take_value(r, &gguf->value[gguf->n_values++], err) < 0)
            return -1;
    qsort(gguf->value, gguf->n_values, sizeof *gguf->value, by_key);
    for (size_t i = 1; i < gguf->n_values; i++)
        if (by_key(&gguf->value[i - 1], &gguf->value[i]) == 0)
            return err_set(err, "%s: duplicate key \"%.*s\"", r->name,
                           (int)size_min(gguf->value[i].key_len, 64), gguf->value[i].key);
    return 0;
}

/* ---- tensors ---- */

/* The name of a known but unsupported ggml type number, or NULL. */
static const char *type_not_read(uint64_t number)
{
    static const char *const names[] = {
        [9] = "Q8_1", [15] = "Q8_K", [24] = "I8",  [25] = "I16",
        [26] = "I32", [27] = "I64",  [28] = "F64", [40] = "NVFP4",
    };
    return number < ARRAY_LEN(names) ? names[number] : NULL;
}

static int refuse_type(const struct source_tensor *tensor, uint64_t number, const char *known,
                       const char *file, struct err *err)
{
    const char *name = type_not_read(number);
    if (name)
        return err_set(err,
                       "%s: tensor \"%s\" is %s, which is not supported; use a file of the same model "
                       "in one of %s",
                       file, tensor->name, name, known);
    return err_set(err, "%s: tensor \"%s\" has unknown type %llu; supported are %s", file, tensor->name,
                   (unsigned long long)number, known);
}

static int find_type(struct source_tensor *tensor, uint64_t number, const char *file, struct err *err)
{
    char known[300] = "";
    size_t used = 0;
    for (int i = 0; i < SOURCE_OTHER; i++) {
        if (block_types[i].ggml == number) {
            tensor->type = (enum source_type)i;
            tensor->type_name = block_types[i].name;
            return 0;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 block_types[i].name);
    }
    return refuse_type(tensor, number, known, file, err);
}

/* Reads a tensor's dimensions, which are stored fastest first; *elements is their product. */
static int take_shape(struct gguf_reader *r, struct source_tensor *tensor, size_t *elements,
                      struct err *err)
{
    uint64_t n, dim;
    if (take(r, 4, &n, "its list of tensors", err) < 0)
        return -1;
    if (n == 0 || n > MAX_DIMS)
        return err_set(err, "%s: tensor \"%s\" has %llu dimensions, expected 1 to %d", r->name,
                       tensor->name, (unsigned long long)n, (int)MAX_DIMS);
    tensor->n_dims = (size_t)n;
    *elements = 1;
    for (size_t i = tensor->n_dims; i-- > 0;) {
        if (take(r, 8, &dim, "its list of tensors", err) < 0)
            return -1;
        tensor->dim[i] = (size_t)dim;
        if (!size_mul(*elements, tensor->dim[i], elements))
            return err_set(err, "%s: tensor \"%s\" has an invalid dimension %zu", r->name, tensor->name,
                           tensor->dim[i]);
    }
    return 0;
}

/* Reads a tensor name to *room, zero-terminated, and advances *room past it. */
static int take_name(struct gguf_reader *r, struct source_tensor *tensor, char **room, struct err *err)
{
    const char *text;
    size_t len;
    if (take_text(r, &text, &len, "its list of tensors", err) < 0)
        return -1;
    if (len == 0 || len > MAX_NAME || memchr(text, 0, len))
        return err_set(err, "%s: invalid tensor name of %zu bytes before byte %zu", r->name, len,
                       (size_t)(r->at - r->begin));
    tensor->name = memcpy(*room, text, len);
    *room += len + 1;
    return 0;
}

/* Reads one entry of the tensor list; *offset is the tensor's offset in the tensor data. */
static int take_tensor(struct gguf_reader *r, struct source_tensor *tensor, char **room,
                       uint64_t *offset, struct err *err)
{
    uint64_t type;
    size_t elements;
    if (take_name(r, tensor, room, err) < 0 || take_shape(r, tensor, &elements, err) < 0 ||
        take(r, 4, &type, "its list of tensors", err) < 0 ||
        take(r, 8, offset, "its list of tensors", err) < 0 || find_type(tensor, type, r->name, err) < 0)
        return -1;
    const struct block_type *block = &block_types[tensor->type];
    if (tensor->dim[tensor->n_dims - 1] % block->elements ||
        !size_mul(elements / block->elements, block->bytes, &tensor->bytes))
        return err_set(
            err, "%s: tensor \"%s\" is %s: rows of %zu are not a multiple of its block size %zu",
            r->name, tensor->name, block->name, tensor->dim[tensor->n_dims - 1], block->elements);
    return 0;
}

static int place_tensor(const struct gguf_reader *r, struct source_tensor *tensor, uint64_t offset,
                        size_t data_at, size_t alignment, struct err *err)
{
    const size_t size = (size_t)(r->end - r->begin);
    size_t end;
    if (offset % alignment)
        return err_set(err, "%s: tensor \"%s\" begins at byte %llu of the data, not a multiple of %zu",
                       r->name, tensor->name, (unsigned long long)offset, alignment);
    if (!size_add(data_at, (size_t)offset, &end) || !size_add(end, tensor->bytes, &end) || end > size)
        return err_set(err,
                       "%s: tensor \"%s\" extends beyond the end of the file at byte %zu: truncated "
                       "or damaged",
                       r->name, tensor->name, size);
    tensor->data = r->begin + data_at + offset;
    return 0;
}

/* Reads the alignment of tensor data: general.alignment, or its default. */
static int take_alignment(const struct gguf *gguf, const struct gguf_reader *r, size_t *alignment,
                          struct err *err)
{
    const int64_t number = gguf_integer(gguf, "general.alignment", DEFAULT_ALIGNMENT);
    if (number < 1 || number > 1 << 30 || (number & (number - 1)))
        return err_set(err, "%s: general.alignment is %lld, expected a power of two", r->name,
                       (long long)number);
    *alignment = (size_t)number;
    return 0;
}

static int take_tensors(struct gguf *gguf, struct gguf_reader *r, uint64_t count, struct err *err)
{
    size_t alignment;
    uint64_t *offset = NULL;
    int rc = -1;
    if (count > MAX_TENSORS)
        return err_set(err, "%s: claims %llu tensors, more than %d", r->name, (unsigned long long)count,
                       (int)MAX_TENSORS);
    if (count > left(r) / LEAST_TENSOR)
        return cut_off(r, "its list of tensors", err);
    const size_t n = (size_t)count;
    gguf->tensor = calloc(n + 1, sizeof *gguf->tensor);
    gguf->names = calloc(n + 1, MAX_NAME + 1);
    offset = calloc(n + 1, sizeof *offset);
    char *room = gguf->names;
    if (!gguf->tensor || !room || !offset) {
        err_no_memory(err, "%s: its list of tensors", r->name);
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        if (take_tensor(r, &gguf->tensor[i], &room, &offset[i], err) < 0)
            goto out;
    if (take_alignment(gguf, r, &alignment, err) < 0)
        goto out;
    const size_t data_at = round_up((size_t)(r->at - r->begin), alignment);
    for (size_t i = 0; i < n; i++)
        if (place_tensor(r, &gguf->tensor[i], offset[i], data_at, alignment, err) < 0)
            goto out;
    gguf->n_tensors = n;
    rc = tensors_check_overlaps(gguf->tensor, n, r->name, err);
    if (rc == 0)
        rc = tensors_check_names(gguf->tensor, n, r->name, err);
out:
    free(offset);
    return rc;
}

static int check_version(const struct gguf_reader *r, uint64_t version, struct err *err)
{
    if (version == 2 || version == 3)
        return 0;
    if (version == 2U << 24 || version == 3U << 24)
        return err_set(err, "%s: big-endian files are not supported; convert it (gguf-convert-endian)",
                       r->name);
    return err_set(err,
                   "%s: GGUF version %llu is unsupported, only 2 and 3 are; convert the model again",
                   r->name, (unsigned long long)version);
}

static int parse(struct gguf *gguf, struct gguf_reader *r, bool with_tensors, struct err *err)
{
    uint64_t version, tensors, values;
    r->at += 4;
    if (take(r, 4, &version, "its header", err) < 0 || check_version(r, version, err) < 0 ||
        take(r, 8, &tensors, "its header", err) < 0 || take(r, 8, &values, "its head", err) < 0 ||
        take_values(gguf, r, values, err) < 0)
        return -1;
    return with_tensors ? take_tensors(gguf, r, tensors, err) : 0;
}

int gguf_parse(struct gguf *gguf, const void *data, size_t size, const char *name, bool with_tensors,
               struct err *err)
{
    struct gguf_reader r = {name, data, data, (const unsigned char *)data + size};
    *gguf = (struct gguf){0};
    if (file_format(data, size) != KIND_GGUF)
        return detect_refuse(data, size, KIND_GGUF, "a GGUF file", name, err) < 0
                   ? -1
                   : err_set(err, "%s: not a GGUF file (does not begin with \"GGUF\")", name);
    if (parse(gguf, &r, with_tensors, err) == 0)
        return 0;
    gguf_release(gguf);
    return -1;
}

int gguf_open(struct gguf *gguf, const char *path, bool with_tensors, struct err *err)
{
    struct file_map map;
    *gguf = (struct gguf){0};
    if (file_map(&map, path, err) < 0)
        return -1;
    if (gguf_parse(gguf, map.data, map.size, path, with_tensors, err) < 0) {
        file_unmap(&map);
        return -1;
    }
    gguf->map = map;
    return 0;
}

void gguf_release(struct gguf *gguf)
{
    free(gguf->value);
    free(gguf->tensor);
    free(gguf->names);
    file_unmap(&gguf->map);
    *gguf = (struct gguf){0};
}

const struct source_tensor *gguf_find(const struct gguf *gguf, const char *name)
{
    return tensors_find(gguf->tensor, gguf->n_tensors, name);
}

const struct gguf_value *gguf_value(const struct gguf *gguf, const char *key)
{
    const struct gguf_value wanted = {.key = key, .key_len = strlen(key)};
    return gguf->n_values ? bsearch(&wanted, gguf->value, gguf->n_values, sizeof wanted, by_key) : NULL;
}

struct gguf_element gguf_elements(const struct gguf_value *value)
{
    return (struct gguf_element){.of = value, .next = value ? value->data : NULL};
}

static void read_real(struct gguf_element *e, double real)
{
    e->real = real;
    e->integer = real > -9e18 && real < 9e18 ? (int64_t)real : 0;
}

static void read_number(struct gguf_element *e, enum gguf_type type)
{
    const size_t bytes = type_bytes[type];
    const uint64_t raw = load(e->next, bytes);
    const bool negative = raw >> (8 * bytes - 1);
    float single;
    double twice;
    switch (type) {
    case GGUF_F32: {
        const uint32_t bits = (uint32_t)raw;
        memcpy(&single, &bits, sizeof single);
        read_real(e, (double)single);
        break;
    }
    case GGUF_F64:
        memcpy(&twice, &raw, sizeof twice);
        read_real(e, twice);
        break;
    case GGUF_I8:
    case GGUF_I16:
    case GGUF_I32:
    case GGUF_I64:
        e->integer = (int64_t)(negative && bytes < 8 ? raw | ~(uint64_t)0 << 8 * bytes : raw);
        e->real = (double)e->integer;
        break;
    default: e->integer = raw > INT64_MAX ? INT64_MAX : (int64_t)raw; e->real = (double)raw;
    }
    e->next += bytes;
}

bool gguf_next(struct gguf_element *e)
{
    if (!e->of || e->index == e->of->count || e->of->type == GGUF_ARRAY)
        return false;
    e->index++;
    if (e->of->type != GGUF_STRING) {
        read_number(e, e->of->type);
        return true;
    }
    e->len = (size_t)load(e->next, 8);
    e->text = (const char *)e->next + 8;
    e->next += 8 + e->len;
    return true;
}

int64_t gguf_integer(const struct gguf *gguf, const char *key, int64_t fallback)
{
    const struct gguf_value *value = gguf_value(gguf, key);
    struct gguf_element e = gguf_elements(value);
    return gguf_is_number(value) && !value->is_array && gguf_next(&e) ? e.integer : fallback;
}
