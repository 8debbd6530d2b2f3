/* bmc-convert --info of GGUF files: their metadata and tensors, as they are. */
#include "convert/convert_cmd.h"

#include "base/file.h"
#include "format/gguf/gguf.h"

enum {
    SHOWN = 16
}; /* arrays of more elements are counted: those of vocabularies have a hundred thousand */

static json_t *list_elements(const struct gguf_value *value, struct err *err)
{
    struct gguf_element element = gguf_elements(value);
    json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "a list");
    while (rc == 0 && gguf_next(&element))
        rc = json_push(list, gguf_json(&element), err);
    return json_or_null(list, rc, err);
}

static int put_value(json_t *about, const struct gguf_value *value, struct err *err)
{
    char count[64];
    struct gguf_element element = gguf_elements(value);
    AUTO(json_auto) json_t *text = json_text(value->key, value->key_len); /* valid UTF-8 */
    const char *key = json_string_value(text);
    if (!key)
        return err_no_memory(err, "a key");
    snprintf(count, sizeof count, "%zu %s", value->count,
             value->type == GGUF_STRING ? "strings" : "numbers");
    if (value->is_array)
        return json_put(about, key,
                        value->count > SHOWN ? json_string(count) : list_elements(value, err), err);
    return json_put(about, key, gguf_next(&element) ? gguf_json(&element) : json_null(), err);
}

static int push_tensor(json_t *rows, const struct gguf *file, const struct source_tensor *tensor,
                       uint64_t *weights, struct err *err)
{
    char shape[128] = "";
    uint64_t n = 1;
    for (size_t i = 0, used = 0; i < tensor->n_dims && used < sizeof shape; i++) {
        n *= tensor->dim[i];
        used +=
            (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", i ? "x" : "", tensor->dim[i]);
    }
    *weights += n;
    return json_push(rows,
                     json_pack("{s:o, s:s, s:f, s:s, s:I, s:I}", "name",
                               json_text(tensor->name, strlen(tensor->name)), "type", tensor->type_name,
                               "bits", convert_bits_per_weight(tensor->bytes, n), "shape", shape,
                               "offset", (json_int_t)(tensor->data - file->map.data), "bytes",
                               (json_int_t)tensor->bytes),
                     err);
}

static int describe(const struct gguf_set *set, const char *path, json_t *about, json_t *rows,
                    struct err *err)
{
    uint64_t file_bytes = 0, bytes = 0, weights = 0;
    for (size_t f = 0; f < set->n_files; f++) {
        const struct gguf *file = &set->file[f];
        file_bytes += file->map.size;
        for (size_t i = 0; i < file->n_tensors; i++) {
            bytes += file->tensor[i].bytes;
            if (push_tensor(rows, file, &file->tensor[i], &weights, err) < 0)
                return -1;
        }
    }
    if (json_put(about, "file", json_text(path, strlen(path)), err) < 0 ||
        json_put(about, "kind", json_string("GGUF"), err) < 0 ||
        json_put(about, "files", json_whole(set->n_files), err) < 0 ||
        json_put(about, "file_bytes", json_whole(file_bytes), err) < 0 ||
        json_put(about, "parameters", json_whole(weights), err) < 0 ||
        json_put(about, "bits_per_weight", json_real(convert_bits_per_weight(bytes, weights)), err) < 0)
        return -1;
    for (size_t i = 0; i < set->file->n_values; i++)
        if (put_value(about, &set->file->value[i], err) < 0)
            return -1;
    return 0;
}

int convert_gguf_info(const char *path, enum table_format format, struct err *err)
{
    struct gguf_set set;
    if (gguf_set_open(&set, path, true, err) < 0)
        return -1;
    AUTO(json_auto) json_t *about = json_object(), *rows = json_array();
    int rc = about && rows ? describe(&set, path, about, rows, err) : err_no_memory(err, "a table");
    if (rc == 0)
        rc = convert_write_info(about, rows, format, err);
    gguf_set_release(&set);
    return rc;
}
