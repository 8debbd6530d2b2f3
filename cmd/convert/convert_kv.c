/* bmc-convert --info and --verify of snapshots. */
#include "quant/cache_types.h"
#include "convert/convert_cmd.h"

#include "format/kvfile/kvfile.h"

static bool same_sizes(const struct kvfile_sizes *a, const struct kvfile_sizes *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* Lists runs of layers of the same sizes. NULL: out of memory. */
static json_t *describe_sizes(const struct kvfile *file)
{
    const size_t layers = kvfile_layers(file->head);
    json_t *list = json_array();
    for (size_t l = 0, end; list && l < layers; l = end) {
        const struct kvfile_sizes sizes = kvfile_sizes_of(file, l);
        struct kvfile_sizes next = sizes;
        for (end = l + 1; end < layers; end++) {
            next = kvfile_sizes_of(file, end);
            if (!same_sizes(&next, &sizes))
                break;
        }
        if (json_array_append_new(
                list, json_pack("{s:I, s:I, s:I, s:I}", "layers", (json_int_t)(end - l), "kv_heads",
                                (json_int_t)sizes.kv_heads, "head_dim", (json_int_t)sizes.head_dim,
                                "v_dim", (json_int_t)(sizes.v_dim ? sizes.v_dim : sizes.head_dim))) <
            0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* Adds the fields that only some snapshots have. False: out of memory. */
static bool add_optional(json_t *about, const struct kvfile *file)
{
    static const struct hash none;
    const struct kvfile_head *head = file->head;
    char scales[2 * HASH_BYTES + 1];
    hash_hex(&head->scales, HASH_BYTES, scales);
    if (memcmp(&head->scales, &none, sizeof none) != 0 &&
        json_object_set_new(about, "kv_scales", json_string(scales)) < 0)
        return false;
    json_t *sizes = describe_sizes(file);
    if (json_array_size(sizes) > 1)
        return json_object_set_new(about, "layer_sizes", sizes) == 0;
    json_decref(sizes);
    return sizes != NULL;
}

static struct cache_types_text kv_type_of(const struct kvfile *file)
{
    const struct kvfile_sizes first = kvfile_sizes_of(file, 0);
    struct kv_types all = {(enum dtype)first.type[0], (enum dtype)first.type[1]};
    const struct cache_types types = {.all = all};
    struct cache_types_text text = cache_types_format(&types);
    for (size_t l = 0; l < kvfile_layers(file->head); l++) {
        const struct kvfile_sizes sizes = kvfile_sizes_of(file, l);
        if (sizes.type[0] != first.type[0] || sizes.type[1] != first.type[1])
            snprintf(text.text, sizeof text.text, "per layer");
    }
    return text;
}

static json_t *describe_file(const struct kvfile *file, const char *path)
{
    const struct kvfile_head *head = file->head;
    char model_id[2 * HASH_BYTES + 1], hash[2 * HASH_BYTES + 1];
    hash_hex(&head->model_id, HASH_BYTES, model_id);
    hash_hex(&head->hash, HASH_BYTES, hash);
    json_t *about = json_pack(
        "{s:o, s:s, s:i, s:s, s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "file",
        json_text(path, strlen(path)), "kind", "snapshot", "version", (int)head->version, "model_id",
        model_id, "hash", hash, "file_bytes", (json_int_t)head->file_bytes, "sequences",
        (json_int_t)head->n_sequences, "kv_type", kv_type_of(file).text, "layers",
        (json_int_t)kvfile_layers(head), "kv_heads", (json_int_t)head->kv_heads, "head_dim",
        (json_int_t)head->head_dim, "v_dim", (json_int_t)(head->v_dim ? head->v_dim : head->head_dim),
        "context", (json_int_t)head->context, "policy", json_text(head->policy, strlen(head->policy)),
        "isa", json_text(head->isa, strlen(head->isa)), "precision",
        json_text(head->precision, strlen(head->precision)));
    if (about && !add_optional(about, file)) {
        json_decref(about);
        return NULL;
    }
    return about;
}

/* The id of a sequence, stored as JSON; a string if it is not valid JSON. NULL: out of memory. */
static json_t *id_of(const struct kvfile *file, const struct kvfile_seq *seq)
{
    const char *text = file->text + seq->id;
    json_error_t why;
    if (!seq->id_bytes)
        return json_null();
    json_t *id = json_load(text, (size_t)seq->id_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &why);
    return id || json_error_code(&why) == json_error_out_of_memory
               ? id
               : json_text(text, (size_t)seq->id_bytes);
}

static int describe_seq(json_t *rows, const struct kvfile *file, size_t i, const char *path,
                        struct err *err)
{
    const struct kvfile_seq *seq = &file->seq[i];
    struct sampler_options options = sampling_defaults();
    if (kvfile_sampling(file, i, &options, path, err) < 0)
        return -1;
    json_t *sampling = sampling_json(&options, err);
    free((void *)(uintptr_t)options.dry_text);
    json_t *row = json_pack("{s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I}", "sequence",
                            (json_int_t)i, "id", id_of(file, seq), "tokens", (json_int_t)seq->n_tokens,
                            "rows", (json_int_t)seq->n_rows, "cap", (json_int_t)seq->cap, "prompt",
                            (json_int_t)seq->n_prompt, "seed", json_whole(seq->seed), "stream",
                            json_whole(seq->stream), "offset",
                            (json_int_t)kvfile_block_of(file, i, 0, false)->offset, "block_bytes",
                            (json_int_t)kvfile_block_of(file, i, 0, false)->bytes, "first",
                            (json_int_t)seq->first, "least", (json_int_t)seq->least);
    int rc = sampling ? 0 : -1;
    if (rc == 0 && (!row || json_object_update(row, sampling) < 0))
        rc = err_no_memory(err, "sequence %zu", i);
    json_decref(sampling);
    if (rc == 0)
        return json_push(rows, row, err);
    json_decref(row);
    return -1;
}

int convert_kv_info(const char *path, enum table_format format, struct err *err)
{
    struct kvfile file;
    if (kvfile_open(&file, path, err) < 0)
        return -1;
    AUTO(json_auto) json_t *about = describe_file(&file, path), *rows = json_array();
    int rc = about ? 0 : err_set(err, "%s: cannot be described in JSON", path);
    for (size_t i = 0; i < file.n_seqs && rc == 0; i++)
        rc = describe_seq(rows, &file, i, path, err);
    if (rc == 0)
        rc = convert_write_info(about, rows, format, err);
    kvfile_close(&file);
    return rc;
}

int convert_kv_verify(const char *path, struct cli_progress *progress, struct err *err)
{
    struct kvfile file;
    if (kvfile_open(&file, path, err) < 0)
        return -1;
    const int rc = kvfile_verify(&file, path, cli_progress, progress, err);
    kvfile_close(&file);
    return rc;
}
