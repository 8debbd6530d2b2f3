/* Prints the output of --info and --dry-run, and what was written. */
#include "convert/convert_cmd.h"
#include "open_model.h"

double convert_bits_per_weight(uint64_t bytes, uint64_t weights)
{
    return weights ? round(8000 * (double)bytes / (double)weights) / 1000 : 0;
}

/* Prints "key              value" for a JSON value. */
static int put_member(const char *key, const json_t *value, struct buf *out, struct err *err)
{
    const size_t from = out->len;
    int rc = buf_addf(out, err, "%-16s ", key);
    if (rc == 0)
        rc = json_is_string(value)
                 ? buf_add(out, json_string_value(value), json_string_length(value), err)
                 : json_format(value, JSON_REAL_PRECISION(9), out, err);
    if (rc < 0)
        return -1;
    text_make_printable(out->data + from, out->len - from, "");
    return buf_add(out, "\n", 1, err);
}

int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    const char *key;
    json_t *value;
    int rc = 0;
    if (format == TABLE_TEXT) {
        json_object_foreach((json_t *)(uintptr_t)about, key, value)
        {
            if (rc == 0)
                rc = put_member(key, value, &text, err);
        }
        if (rc == 0)
            rc = buf_add(&text, "\n", 1, err);
    }
    if (rc == 0)
        rc = table_write(rows, about, format, &text, err);
    if (rc == 0)
        rc = cli_put(buf_text(&text), text.len, err);
    return rc;
}

int convert_add_planned(void *arg, const struct planned_tensor *tensor, struct err *err)
{
    struct planned_model *planned = arg;
    char name[DRAFT_NAME_SIZE], shape[96] = "";
    uint64_t weights = 1;
    snprintf(name, sizeof name, "%s%s", tensor->prefix, tensor->name);
    for (size_t i = 0, used = 0; i < tensor->n_dims; i++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", i ? "x" : "",
                                 tensor->shape[i]);
        weights *= tensor->shape[i];
    }
    planned->bytes += tensor->bytes;
    planned->weights += weights;
    planned->n[tensor->type]++;
    if (!planned->rows)
        return 0;
    return json_push(planned->rows,
                     json_pack("{s:s, s:s, s:s?, s:f, s:s, s:I}", "name", name, "type",
                               dtype_name(tensor->type), "source", tensor->source, "bits",
                               convert_bits_per_weight(tensor->bytes, weights), "shape", shape, "bytes",
                               (json_int_t)tensor->bytes),
                     err);
}

int convert_write_planned(const struct planned_model *planned, enum table_format format,
                          struct err *err)
{
    AUTO(json_auto)
    json_t *about = json_pack("{s:I, s:I, s:f}", "file_bytes", (json_int_t)planned->file_bytes,
                              "tensor_bytes", (json_int_t)planned->bytes, "bits_per_weight",
                              convert_bits_per_weight(planned->bytes, planned->weights));
    return about ? convert_write_info(about, planned->rows, format, err)
                 : err_no_memory(err, "a table");
}

void convert_say_written(const struct planned_model *planned, const char *program, const char *out)
{
    char bytes[32], types[512] = "";
    cli_format_bytes(planned->file_bytes, bytes);
    for (size_t i = 0, used = 0; i < DTYPE_COUNT && used < sizeof types; i++)
        if (planned->n[i])
            used += (size_t)snprintf(types + used, sizeof types - used, "%s%zu %s", used ? ", " : "",
                                     planned->n[i], dtype_name((enum dtype)i));
    cli_say(stderr, "%s: %s: %s of %s, %.6g bits per weight; tensors: %s\n", program, out,
            convert_makes_gguf(out) ? "a GGUF file" : "a .bmc model", bytes,
            convert_bits_per_weight(planned->bytes, planned->weights), types);
}
