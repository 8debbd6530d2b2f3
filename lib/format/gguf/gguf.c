/* Parsing GGUF files. Input is untrusted: every length is checked against the remaining bytes
 * first. */
#include "format/gguf/gguf.h"

#include <unistd.h>

#include "base/conf.h"
#include "base/number.h"
#include "base/text_util.h"
#include "format/detect.h"
#include "format/reader.h"
#include "format/tensorfile.h"

enum { MAX_DIMS = 4, MAX_NAME = 127, MAX_TENSORS = 1 << 17, MAX_DEPTH = 4, DEFAULT_ALIGNMENT = 32 };

/* Minimum bytes of a key-value pair and of an entry of the tensor list. */
enum { LEAST_VALUE = 13, LEAST_TENSOR = 24 };

/* Bytes of a value of each enum gguf_type; 0: variable. */
static const unsigned char type_bytes[GGUF_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static int read_text(struct reader *r, const char **text, size_t *len, const char *part,
                     struct err *err)
{
    uint64_t size;
    const unsigned char *at;
    if (reader_number(r, 8, &size, part, err) < 0 || reader_bytes(r, size, &at, part, err) < 0)
        return -1;
    *text = (const char *)at;
    *len = (size_t)size;
    return 0;
}

/* ---- values ---- */

static int skip_array(struct reader *r, struct gguf_value *value, int depth, struct err *err);

/* Skips `count` values of a type; fails if the file ends before. */
static int skip_values(struct reader *r, enum gguf_type type, uint64_t count, int depth,
                       struct err *err)
{
    struct gguf_value inner;
    const char *text;
    size_t len;
    if (type_bytes[type]) {
        if (count > reader_left(r) / type_bytes[type])
            return reader_cut_off(r, "a value", err);
        r->at += count * type_bytes[type];
        return 0;
    }
    for (uint64_t i = 0; i < count; i++)
        if ((type == GGUF_STRING ? read_text(r, &text, &len, "a value", err)
                                 : skip_array(r, &inner, depth + 1, err)) < 0)
            return -1;
    return 0;
}

static int read_type(struct reader *r, enum gguf_type *type, struct err *err)
{
    uint64_t number;
    if (reader_number(r, 4, &number, "a value", err) < 0)
        return -1;
    if (number >= GGUF_TYPES)
        return err_set(err, "%s: the value before byte %zu has type %llu, expected below %d", r->name,
                       reader_offset(r), (unsigned long long)number, (int)GGUF_TYPES);
    *type = (enum gguf_type)number;
    return 0;
}

static int skip_array(struct reader *r, struct gguf_value *value, int depth, struct err *err)
{
    uint64_t count;
    if (depth > MAX_DEPTH)
        return err_set(err, "%s: arrays are nested more than %d deep", r->name, (int)MAX_DEPTH);
    if (read_type(r, &value->type, err) < 0 || reader_number(r, 8, &count, "an array", err) < 0)
        return -1;
    value->data = r->at;
    value->count = (size_t)count;
    return skip_values(r, value->type, count, depth, err);
}

static int read_value(struct reader *r, struct gguf_value *value, struct err *err)
{
    if (read_text(r, &value->key, &value->key_len, "a key", err) < 0 ||
        read_type(r, &value->type, err) < 0)
        return -1;
    value->is_array = value->type == GGUF_ARRAY;
    value->count = 1;
    value->data = r->at;
    if ((value->is_array ? skip_array(r, value, 1, err) : skip_values(r, value->type, 1, 1, err)) < 0)
        return -1;
    value->bytes = (size_t)(r->at - value->data);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct gguf_value *x = a, *y = b;
    return text_order(x->key, x->key_len, y->key, y->key_len);
}

static int read_values(struct gguf *gguf, struct reader *r, uint64_t count, struct err *err)
{
    if (count > reader_left(r) / LEAST_VALUE)
        return reader_cut_off(r, "its values", err);
    gguf->value = calloc((size_t)count + 1, sizeof *gguf->value);
    if (!gguf->value)
        return err_no_memory(err, "%s: its values", r->name);
    while (gguf->n_values < count)
        if (read_value(r, &gguf->value[gguf->n_values++], err) < 0)
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
        [9] = "Q8_1",
        [15] = "Q8_K",
        [24] = "I8",
        [25] = "I16",
        [26] = "I32",
        [27] = "I64",
        [28] = "F64",
        [31] = "Q4_0_4_4",
        [32] = "Q4_0_4_8",
        [33] = "Q4_0_8_8",
        [36] = "I2_S (of bitnet.cpp)",
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

static int set_type(struct source_tensor *tensor, uint64_t number, const char *file, struct err *err)
{
    char known[300] = "";
    size_t used = 0;
    for (int i = 0; i < SOURCE_OTHER; i++) {
        if (!block_types[i].name)
            continue;
        if (block_types[i].ggml == number) {
            tensor->type = (enum dtype)i;
            tensor->type_name = block_types[i].name;
            return 0;
        }
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 block_types[i].name);
    }
    return refuse_type(tensor, number, known, file, err);
}

/* Reads a tensor's dimensions, which are stored fastest first; *elements is their product. */
static int read_shape(struct reader *r, struct source_tensor *tensor, size_t *elements, struct err *err)
{
    uint64_t n, dim;
    if (reader_number(r, 4, &n, "its list of tensors", err) < 0)
        return -1;
    if (n == 0 || n > MAX_DIMS)
        return err_set(err, "%s: tensor \"%s\" has %llu dimensions, expected 1 to %d", r->name,
                       tensor->name, (unsigned long long)n, (int)MAX_DIMS);
    tensor->n_dims = (size_t)n;
    *elements = 1;
    for (size_t i = tensor->n_dims; i-- > 0;) {
        if (reader_number(r, 8, &dim, "its list of tensors", err) < 0)
            return -1;
        tensor->dim[i] = (size_t)dim;
        if (!size_mul(*elements, tensor->dim[i], elements))
            return err_set(err, "%s: tensor \"%s\" has an invalid dimension %zu", r->name, tensor->name,
                           tensor->dim[i]);
    }
    return 0;
}

/* Reads a tensor name to *room, zero-terminated, and advances *room past it. */
static int read_tensor_name(struct reader *r, struct source_tensor *tensor, char **room,
                            struct err *err)
{
    const char *text;
    size_t len;
    if (read_text(r, &text, &len, "its list of tensors", err) < 0)
        return -1;
    if (len == 0 || len > MAX_NAME || memchr(text, 0, len))
        return err_set(err, "%s: invalid tensor name of %zu bytes before byte %zu", r->name, len,
                       reader_offset(r));
    tensor->name = memcpy(*room, text, len);
    *room += len + 1;
    return 0;
}

/* Reads one entry of the tensor list; *offset is the tensor's offset in the tensor data. */
static int read_tensor(struct reader *r, struct source_tensor *tensor, char **room, uint64_t *offset,
                       struct err *err)
{
    uint64_t type;
    size_t elements;
    if (read_tensor_name(r, tensor, room, err) < 0 || read_shape(r, tensor, &elements, err) < 0 ||
        reader_number(r, 4, &type, "its list of tensors", err) < 0 ||
        reader_number(r, 8, offset, "its list of tensors", err) < 0 ||
        set_type(tensor, type, r->name, err) < 0)
        return -1;
    const struct block_type *block = &block_types[tensor->type];
    if (tensor->dim[tensor->n_dims - 1] % block->elements ||
        !size_mul(elements / block->elements, block->bytes, &tensor->bytes))
        return err_set(
            err, "%s: tensor \"%s\" is %s: rows of %zu are not a multiple of its block size %zu",
            r->name, tensor->name, block->name, tensor->dim[tensor->n_dims - 1], block->elements);
    return 0;
}

static int place_tensor(const struct reader *r, struct source_tensor *tensor, uint64_t offset,
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
static int read_alignment(const struct gguf *gguf, const struct reader *r, size_t *alignment,
                          struct err *err)
{
    const int64_t number = gguf_integer(gguf, "general.alignment", DEFAULT_ALIGNMENT);
    if (number < 1 || number > 1 << 30 || (number & (number - 1)))
        return err_set(err, "%s: general.alignment is %lld, expected a power of two", r->name,
                       (long long)number);
    *alignment = (size_t)number;
    return 0;
}

static int read_tensors(struct gguf *gguf, struct reader *r, uint64_t count, struct err *err)
{
    size_t alignment;
    uint64_t *offset = NULL;
    int rc = -1;
    if (count > MAX_TENSORS)
        return err_set(err, "%s: claims %llu tensors, more than %d", r->name, (unsigned long long)count,
                       (int)MAX_TENSORS);
    if (count > reader_left(r) / LEAST_TENSOR)
        return reader_cut_off(r, "its list of tensors", err);
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
        if (read_tensor(r, &gguf->tensor[i], &room, &offset[i], err) < 0)
            goto out;
    if (read_alignment(gguf, r, &alignment, err) < 0)
        goto out;
    const size_t data_at = round_up(reader_offset(r), alignment);
    gguf->header_bytes = reader_offset(r);
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

static int check_version(const struct reader *r, uint64_t version, struct err *err)
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

static int parse_sections(struct gguf *gguf, struct reader *r, bool with_tensors, struct err *err)
{
    uint64_t version, tensors, values;
    r->at += 4;
    if (reader_number(r, 4, &version, "its header", err) < 0 || check_version(r, version, err) < 0 ||
        reader_number(r, 8, &tensors, "its header", err) < 0 ||
        reader_number(r, 8, &values, "its head", err) < 0 || read_values(gguf, r, values, err) < 0)
        return -1;
    return with_tensors ? read_tensors(gguf, r, tensors, err) : 0;
}

int gguf_parse(struct gguf *gguf, const void *data, size_t size, const char *name, bool with_tensors,
               struct err *err)
{
    struct reader r = reader_of(data, size, name);
    *gguf = (struct gguf){0};
    if (file_format(data, size) != KIND_GGUF)
        return detect_refuse(data, size, KIND_GGUF, "a GGUF file", name, err) < 0
                   ? -1
                   : err_set(err, "%s: not a GGUF file (does not begin with \"GGUF\")", name);
    if (parse_sections(gguf, &r, with_tensors, err) == 0)
        return 0;
    gguf_release(gguf);
    return -1;
}

static int gguf_open(struct gguf *gguf, const char *path, bool with_tensors, struct err *err)
{
    struct file_map map;
    struct stat attributes = {0};
    int fd;
    *gguf = (struct gguf){0};
    if (file_map_open(&map, path, &fd, err) < 0)
        return -1;
    const int known = fstat(fd, &attributes);
    close(fd);
    if (known < 0)
        err_errno(err, "%s: cannot stat", path);
    if (known < 0 || gguf_parse(gguf, map.data, map.size, path, with_tensors, err) < 0) {
        file_unmap(&map);
        return -1;
    }
    gguf->map = map;
    gguf->attributes = attributes;
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
    const uint64_t raw = load_number(e->next, bytes);
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
    e->len = (size_t)load_number(e->next, 8);
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

/* ---- opening all files of a split GGUF model ---- */

enum { PATH_SIZE = 4096 + 64, DIGITS = 5 };

/* Form of suffixes such as "-00001-of-00003.gguf"; # is a digit. */
static const char tail_form[] = "-#####-of-#####.gguf";

/* Number of files by the suffix of `path`, *stem the bytes before it; 0 without such a suffix. */
static size_t files_of_name(const char *path, size_t *stem)
{
    const size_t len = strlen(path), tail = sizeof tail_form - 1;
    char digits[DIGITS + 1];
    size_t n_files = 0;
    if (len < tail)
        return 0;
    *stem = len - tail;
    for (size_t i = 0; i < tail; i++) {
        const char c = path[*stem + i];
        if (tail_form[i] == '#' ? c < '0' || c > '9' : c != tail_form[i])
            return 0;
    }
    memcpy(digits, path + len - tail + 10, DIGITS);
    digits[DIGITS] = 0;
    return parse_size(digits, &n_files) ? n_files : 0;
}

/* Fails if an earlier file has a tensor of the file opened last. */
static int check_split_names(const struct gguf_set *set, const char *path, struct err *err)
{
    for (size_t i = 0; i < set->file[set->n_files - 1].n_tensors; i++) {
        const char *name = set->file[set->n_files - 1].tensor[i].name;
        for (size_t before = 0; before + 1 < set->n_files; before++)
            if (gguf_find(&set->file[before], name))
                return err_set(err, "%s: tensor \"%s\" is also in another file of the model", path,
                               name);
    }
    return 0;
}

static int open_split_file(struct gguf_set *set, const char *path, size_t n_files, bool with_tensors,
                           struct err *err)
{
    const size_t index = set->n_files;
    if (n_files > 1 && !file_exists(path))
        return err_set(err,
                       "%s: missing: the model is split into %zu files, which must be in one folder",
                       path, n_files);
    if (gguf_open(&set->file[index], path, with_tensors, err) < 0)
        return -1;
    set->n_files++;
    const int64_t number = gguf_integer(&set->file[index], "split.no", 0);
    const int64_t count = gguf_integer(&set->file[index], "split.count", 1);
    if (n_files == 1 && count > 1)
        return err_set(
            err,
            "%s: is file %lld of %lld by its metadata, but not by its name; restore the original name "
            "(NAME-00001-of-00003.gguf)",
            path, (long long)number + 1, (long long)count);
    if (number != (int64_t)index || (count != (int64_t)n_files && !(count == 0 && n_files == 1)))
        return err_set(err,
                       "%s: is file %llu of %lld by its metadata, but %zu of %zu by its name; restore "
                       "the original name (NAME-00001-of-00003.gguf)",
                       path, (unsigned long long)number + 1, (long long)count, index + 1, n_files);
    return check_split_names(set, path, err);
}

static int open_split_files(struct gguf_set *set, const char *path, bool with_tensors, struct err *err)
{
    char name[PATH_SIZE];
    size_t stem = 0, n_files = files_of_name(path, &stem);
    if (n_files < 2)
        n_files = 1;
    set->file = calloc(n_files, sizeof *set->file);
    if (!set->file)
        return err_no_memory(err, "%s: %zu files", path, n_files);
    if (n_files == 1)
        return open_split_file(set, path, n_files, with_tensors, err);
    if (stem + sizeof tail_form > PATH_SIZE)
        return err_set(err, "%s: the file name is too long", path);
    for (size_t i = 0; i < n_files; i++) {
        snprintf(name, sizeof name, "%.*s-%05zu-of-%05zu.gguf", (int)stem, path, i + 1, n_files);
        if (open_split_file(set, name, n_files, with_tensors, err) < 0)
            return -1;
    }
    return 0;
}

int gguf_set_open(struct gguf_set *set, const char *path, bool with_tensors, struct err *err)
{
    *set = (struct gguf_set){0};
    if (open_split_files(set, path, with_tensors, err) == 0)
        return 0;
    gguf_set_release(set);
    return -1;
}

void gguf_set_release(struct gguf_set *set)
{
    for (size_t i = 0; i < set->n_files; i++)
        gguf_release(&set->file[i]);
    free(set->file);
    *set = (struct gguf_set){0};
}

const struct source_tensor *gguf_set_find(const struct gguf_set *set, const char *name)
{
    const struct source_tensor *tensor = NULL;
    for (size_t i = 0; i < set->n_files && !tensor; i++)
        tensor = gguf_find(&set->file[i], name);
    return tensor;
}

/* ---- values of GGUF metadata as JSON ---- */

double gguf_shortest(double number)
{
    char text[40];
    double found = number;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        found = strtod(text, NULL);
        if ((float)found == (float)number)
            break;
    }
    return found;
}

json_t *gguf_json(const struct gguf_element *e)
{
    switch (e->of->type) {
    case GGUF_STRING: return json_text(e->text, e->len);
    case GGUF_BOOL: return json_boolean(e->integer);
    case GGUF_F32: return isfinite(e->real) ? json_real(gguf_shortest(e->real)) : json_null();
    case GGUF_F64: return isfinite(e->real) ? json_real(e->real) : json_null();
    default: return json_integer(e->integer);
    }
}
