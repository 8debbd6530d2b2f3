/* bmc-convert --info and --verify of model files. */
#include "convert/convert_cmd.h"

#include <inttypes.h>

#include "base/conf.h"
#include "base/number.h"
#include "format/gguf/block_types.h"
#include "model/model.h"
#include "model/weight_kinds.h"

static void write_shape(const struct bmc_tensor *tensor, const uint64_t *shape, char *text, size_t size)
{
    for (size_t i = 0, used = 0; i < tensor->n_dims && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, i ? "x" : "", shape[i]);
}

static uint64_t weights_of(const struct bmc_tensor *tensor)
{
    uint64_t weights = 1;
    for (size_t i = 0; i < BMC_MAX_DIMS; i++)
        weights *= tensor->shape[i];
    return weights;
}

/* The source's type name if the tensor was transcoded losslessly from it, else null. */
static json_t *source_type(const struct bmc_tensor *tensor)
{
    const struct block_type *type = tensor->source ? block_type_of_ggml(tensor->source) : NULL;
    return type ? json_text(type->name, strlen(type->name)) : json_null();
}

/* `prefix` precedes the name, and `base` is the place of the tensor's image in the file. */
static json_t *describe_tensor(const struct bmc_file *file, const struct bmc_name *name,
                               const char *prefix, size_t base)
{
    const struct bmc_tensor *tensor = &file->tensor[name->tensor];
    char shape[96], padded[96], hex[2 * HASH_BYTES + 1], text[512];
    const int len =
        snprintf(text, sizeof text, "%s%.*s", prefix, (int)name->len, file->text + name->text);
    write_shape(tensor, tensor->shape, shape, sizeof shape);
    write_shape(tensor, tensor->padded, padded, sizeof padded);
    hash_hex(&tensor->stored, HASH_BYTES, hex);
    return json_pack("{s:o, s:s, s:o, s:f, s:s, s:s, s:s, s:I, s:I, s:s}", "name",
                     json_text(text, size_min((size_t)len, sizeof text - 1)), "type",
                     dtype_name(tensor->dtype), "source", source_type(tensor), "bits",
                     convert_bits_per_weight(tensor->bytes, weights_of(tensor)), "layout",
                     layout_name(tensor->layout), "shape", shape, "padded", padded, "offset",
                     (json_int_t)(base + tensor->offset), "bytes", (json_int_t)tensor->bytes, "blake2b",
                     hex);
}

static bool is_whole(const char *text)
{
    const size_t sign = *text == '-', digits = strspn(text + sign, "0123456789");
    return digits && !text[sign + digits];
}

/* Converts the text of a configuration value to a JSON integer, real, boolean or string. Integers
 * beyond 64 bits stay strings, to keep all digits. */
static json_t *typed_value(const char *text)
{
    double number;
    int64_t whole;
    if (parse_int64(text, &whole))
        return json_integer(whole);
    if (!is_whole(text) && parse_double(text, &number))
        return json_real(number);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return json_boolean(*text == 't');
    return json_text(text, strlen(text));
}

/* Adds a configuration entry to `object`, as a member named by its key (made valid UTF-8). */
static int put_typed(json_t *object, const struct conf_entry *entry, struct err *err)
{
    AUTO(json_auto) json_t *key = json_text(entry->key, strlen(entry->key));
    return key ? json_put(object, json_string_value(key), typed_value(entry->value), err)
               : err_no_memory(err, "a key");
}

/* Adds all entries of the file's configuration to `about`, except those whose keys it already has.
 * EOS ids become one list. */
static int add_config(json_t *about, const struct bmc_file *file, const char *path, struct err *err)
{
    struct conf conf;
    if (conf_parse(&conf, file->config, file->config_bytes, path, err) < 0)
        return -1;
    json_t *eos = json_array(), *lines = json_object(), *value;
    const char *key;
    int rc = eos && lines ? 0 : err_no_memory(err, "%s: its configuration", path);
    for (size_t i = 0; i < conf.n_entries && rc == 0; i++)
        rc = strcmp(conf.entry[i].key, "eos") == 0
                 ? json_push(eos, typed_value(conf.entry[i].value), err)
                 : put_typed(lines, &conf.entry[i], err);
    /* json_object_update_missing() does not report failed allocations */
    json_object_foreach(lines, key, value)
    {
        if (rc == 0 && !json_object_get(about, key))
            rc = json_put(about, key, json_incref(value), err);
    }
    if (rc == 0)
        rc = json_put(about, "eos", json_incref(eos), err);
    json_decref(eos);
    json_decref(lines);
    conf_release(&conf);
    return rc;
}

/* The sampling defaults of chats as an object of numbers. */
static int put_sampling(json_t *about, const struct chat *chat, struct err *err)
{
    json_t *object = json_object();
    int rc = object ? 0 : err_no_memory(err, "sampling defaults");
    for (size_t i = 0; i < SAMPLING_COUNT_OF_PARAMS && rc == 0; i++)
        if (chat->sampling.given[i])
            rc = json_put(object, sampling_params[i].name, json_real(chat->sampling.value[i]), err);
    if (rc == 0)
        return json_put(about, "chat_sampling", object, err);
    json_decref(object);
    return -1;
}

/* The name of the chat format, or null, the names of the model's own Jinja templates, and its sampling
 * defaults. */
static int put_chat(json_t *about, const struct model *model, struct err *err)
{
    struct chat chat;
    json_t *names = json_array();
    int rc = model_chat(model, &chat, err);
    if (rc < 0)
        goto out;
    for (size_t i = 0; i < chat.n_jinja && rc == 0; i++)
        rc = json_push(names, json_text(chat.jinja[i].name, strlen(chat.jinja[i].name)), err);
    if (rc == 0)
        rc = json_put(about, "chat", chat.name ? json_text(chat.name, strlen(chat.name)) : json_null(),
                      err);
    if (rc == 0)
        rc = json_put(about, "chat_templates", json_incref(names), err);
    if (rc == 0)
        rc = put_sampling(about, &chat, err);
    if (rc == 0 && json_object_size(chat.prompts))
        rc = json_put(about, "prompts", json_incref(chat.prompts), err);
    chat_release(&chat);
out:
    json_decref(names);
    return rc;
}

/* The family, identity and size of the draft head in the file, or null. */
static int put_draft(json_t *about, const struct model *draft, struct err *err)
{
    char model_id[2 * HASH_BYTES + 1];
    if (!draft)
        return json_put(about, "draft", json_null(), err);
    hash_hex(&draft->file.model_id, HASH_BYTES, model_id);
    return json_put(about, "draft", json_text(draft->config.family, strlen(draft->config.family)),
                    err) < 0 ||
                   json_put(about, "draft_model_id", json_string(model_id), err) < 0 ||
                   json_put(about, "draft_parameters",
                            json_integer((json_int_t)model_parameters(draft)), err) < 0
               ? -1
               : 0;
}

static uint64_t tensor_bytes(const struct bmc_file *file)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < file->n_tensors; i++)
        bytes += file->tensor[i].bytes;
    return bytes;
}

static json_t *describe_model(const struct model *model, const struct model *draft, struct err *err)
{
    char model_id[2 * HASH_BYTES + 1], file_id[2 * HASH_BYTES + 1], types[MODEL_TYPES_SIZE];
    model_weight_types(model, types);
    hash_hex(&model->file.model_id, HASH_BYTES, model_id);
    hash_hex(&model->file.file_id, HASH_BYTES, file_id);
    json_t *about = json_pack(
        "{s:o, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:b}", "file",
        json_text(model->name, strlen(model->name)), "version", BMC_VERSION, "model_id", model_id,
        "file_id", file_id, "file_bytes", (json_int_t)model->file.size, "header_bytes",
        (json_int_t)model->file.header_bytes, "parameters", (json_int_t)model_parameters(model),
        "tokenizer_ids", (json_int_t)(model->tok ? tokenizer_vocab(model->tok) : 0), "weight_type",
        types, "bits_per_weight",
        convert_bits_per_weight(tensor_bytes(&model->file), model_parameters(model)), "start_token",
        (int)(model->tok && tokenizer_has_template(model->tok)));
    if (!about) {
        err_set(err, "%s: cannot be described in JSON", model->name);
    } else if (put_chat(about, model, err) < 0 || put_draft(about, draft, err) < 0 ||
               add_config(about, &model->file, model->name, err) < 0) {
        json_decref(about);
        about = NULL;
    }
    return about;
}

/* Opens a model file and, if it has one, the draft head in it. */
static int open_both(struct model **model, struct model **draft, const char *path, struct err *err)
{
    *draft = NULL;
    if (model_open_any(model, path, path, err) < 0)
        return -1;
    if (!(*model)->file.draft_offset || model_open_draft(draft, *model, err) == 0)
        return 0;
    model_close(*model);
    return -1;
}

static int push_tensors(json_t *rows, const struct bmc_file *file, const char *prefix, size_t base,
                        struct err *err)
{
    for (size_t i = 0; i < file->n_names; i++)
        if (json_push(rows, describe_tensor(file, &file->name[i], prefix, base), err) < 0)
            return -1;
    return 0;
}

int convert_model_info(const char *path, enum table_format format, struct err *err)
{
    struct model *model, *draft;
    if (open_both(&model, &draft, path, err) < 0)
        return -1;
    AUTO(json_auto) json_t *about = describe_model(model, draft, err), *rows = json_array();
    int rc = about ? push_tensors(rows, &model->file, "", 0, err) : -1;
    if (rc == 0 && draft)
        rc = push_tensors(rows, &draft->file, DRAFT_PREFIX, model->file.draft_offset, err);
    if (rc == 0)
        rc = convert_write_info(about, rows, format, err);
    model_close(draft);
    model_close(model);
    return rc;
}

int convert_model_verify(const char *path, struct cli_progress *progress, struct err *err)
{
    struct model *model, *draft;
    if (open_both(&model, &draft, path, err) < 0)
        return -1;
    model_close(draft);
    const int rc = bmc_file_verify(&model->file, path, cli_progress, progress, err);
    model_close(model);
    return rc;
}
