/* Prints what bmc-convert --dry-run would write. */
#include "convert/inspect.h"

int convert_list_planned(void *arg, const struct planned_tensor *tensor, struct err *err)
{
    struct convert_dry_run *run = arg;
    char name[DRAFT_NAME_SIZE], shape[96] = "";
    uint64_t weights = 1;
    snprintf(name, sizeof name, "%s%s", tensor->prefix, tensor->name);
    for (size_t i = 0, used = 0; i < tensor->n_dims; i++) {
        used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%zu", i ? "x" : "",
                                 tensor->shape[i]);
        weights *= tensor->shape[i];
    }
    run->bytes += tensor->bytes;
    run->weights += weights;
    return json_push(run->rows,
                     json_pack("{s:s, s:s, s:s?, s:f, s:s, s:I}", "name", name, "type",
                               dtype_name(tensor->type), "source", tensor->source, "bits",
                               convert_bits_per_weight(tensor->bytes, weights), "shape", shape, "bytes",
                               (json_int_t)tensor->bytes),
                     err);
}

int convert_write_planned(const struct convert_dry_run *run, enum table_format format, struct err *err)
{
    json_t *about = json_pack("{s:I, s:f}", "tensor_bytes", (json_int_t)run->bytes, "bits_per_weight",
                              convert_bits_per_weight(run->bytes, run->weights));
    const int rc =
        about ? convert_write_info(about, run->rows, format, err) : err_no_memory(err, "a table");
    json_decref(about);
    return rc;
}
