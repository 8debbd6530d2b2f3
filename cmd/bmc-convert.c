/* bmc-convert: make, inspect and verify model files, inspect and verify snapshots. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/threads.h"
#include "cli.h"
#include "convert_kv.h"
#include "files.h"
#include "format/sniff.h"
#include "model/convert.h"
#include "model/model.h"
#include "opt.h"

struct options {
    const char *out;
    int type;
    const char *family, *models_dir;
    const char *synth, *tokenizer;
    int64_t seed;
    bool info, verify;
    int format;
    size_t threads;
};

#define AT(field) offsetof(struct options, field)

static const struct opt opts[] = {
    {OPT_HEADING, "Converting", NULL, NULL, NULL, 0, 0, 0, NULL, false},
    {OPT_TEXT, "output", "o", "FILE", "the model file to write; - is standard output", AT(out), 0, 0,
     NULL, OPT_WRITES_MODEL},
    {OPT_CHOICE, "type", NULL, "TYPE",
     "type of the stored matrices: auto (what the source has, f16 becoming f32), f32 or bf16", AT(type),
     0, 0, "auto|f32|bf16", false},
    {OPT_TEXT, "family", NULL, "FILE",
     "read the tensors' names and traits from this family file instead of finding it by architecture",
     AT(family), 0, 0, NULL, true},
    {OPT_TEXT, "models-dir", NULL, "FOLDER",
     "folder with families/ and shapes/ (default: the one that came with the program)", AT(models_dir),
     0, 0, NULL, true},
    {OPT_HEADING, "Synthetic models", NULL, NULL, NULL, 0, 0, 0, NULL, false},
    {OPT_TEXT, "synth", NULL, "SHAPE",
     "write random weights N(0, 0.02) of a known shape (a name from shapes/, or a path)", AT(synth), 0,
     0, CHOICES_SHAPES, false},
    {OPT_INT, "seed", "s", "N", "seed of the random weights (default 0)", AT(seed), 0, 1e19, NULL,
     false},
    {OPT_TEXT, "tokenizer", NULL, "FOLDER",
     "take the tokenizer of this folder; without it, one token per byte", AT(tokenizer), 0, 0, NULL,
     true},
    {OPT_HEADING, "Looking", NULL, NULL, NULL, 0, 0, 0, NULL, false},
    {OPT_FLAG, "info", NULL, NULL, "show what is in a model file or a snapshot", AT(info), 0, 0, NULL,
     false},
    {OPT_FLAG, "verify", NULL, NULL, "compare every byte of a model file or a snapshot with its hashes",
     AT(verify), 0, 0, NULL, false},
    {OPT_CHOICE, "format", NULL, "FORMAT", "how --info prints: table, md, csv, json or jsonl",
     AT(format), 0, 0, TABLE_FORMATS, false},
    {OPT_SIZE, "threads", "t", "N", "threads (default: all cores that the process may use)",
     AT(threads), 1, 4096, NULL, false},
};

static const char *const usage[] = {
    "FOLDER -o MODEL.bmc", "--synth SHAPE -o MODEL.bmc", "--info FILE", "--verify FILE", NULL,
};

static const struct program program = {
    "bmc-convert", "make, inspect and verify model files", usage, opts, ARRAY_LEN(opts), NULL};

/* ---- --info ---- */

static void write_shape(const struct bmc_tensor *tensor, const uint64_t *shape, char *text, size_t size)
{
    if (tensor->n_dims == 1)
        snprintf(text, size, "%" PRIu64, shape[0]);
    else
        snprintf(text, size, "%" PRIu64 "x%" PRIu64, shape[0], shape[1]);
}

static json_t *describe_tensor(const struct bmc_file *file, const struct bmc_name *name)
{
    const struct bmc_tensor *tensor = &file->tensor[name->tensor];
    char shape[64], padded[64], hex[2 * HASH_BYTES + 1];
    write_shape(tensor, tensor->shape, shape, sizeof shape);
    write_shape(tensor, tensor->padded, padded, sizeof padded);
    hash_hex(&tensor->stored, HASH_BYTES, hex);
    return json_pack("{s:o, s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "name",
                     json_text(file->text + name->text, name->len), "type", dtype_name(tensor->dtype),
                     "layout", layout_name(tensor->layout), "shape", shape, "padded", padded, "offset",
                     (json_int_t)tensor->offset, "bytes", (json_int_t)tensor->bytes, "blake2b", hex);
}

static json_t *typed(const char *text)
{
    double number;
    size_t whole;
    if (parse_size(text, &whole))
        return json_integer((json_int_t)whole);
    if (parse_double(text, &number))
        return json_real(number);
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return json_boolean(*text == 't');
    return json_text(text, strlen(text));
}

/* A key of a configuration, as a member's name: valid UTF-8, whatever the file says. */
static int put_typed(json_t *object, const struct conf_entry *entry, struct err *err)
{
    json_t *key = json_text(entry->key, strlen(entry->key));
    const int rc = key ? json_put(object, json_string_value(key), typed(entry->value), err)
                       : err_set(err, "out of memory for a key");
    json_decref(key);
    return rc;
}

/* json_object_update_missing() leaves members out when memory is short, and says nothing. */
static int put_missing(json_t *object, json_t *more, struct err *err)
{
    const char *key;
    json_t *value;
    int rc = 0;
    json_object_foreach(more, key, value)
    {
        if (rc == 0 && !json_object_get(object, key))
            rc = json_put(object, key, json_incref(value), err);
    }
    return rc;
}

/* Configuration lines become members with their types; eos ids a list. What the file calls like a member that is there
 * already does not replace it. */
static int add_config(json_t *about, const struct bmc_file *file, const char *path, struct err *err)
{
    struct conf conf;
    if (conf_parse(&conf, file->config, file->config_bytes, path, err) < 0)
        return -1;
    json_t *eos = json_array(), *lines = json_object();
    int rc = eos && lines ? 0 : err_set(err, "%s: out of memory for its configuration", path);
    for (size_t i = 0; i < conf.n_entries && rc == 0; i++)
        rc = strcmp(conf.entry[i].key, "eos") == 0 ? json_push(eos, typed(conf.entry[i].value), err)
                                                   : put_typed(lines, &conf.entry[i], err);
    if (rc == 0)
        rc = put_missing(about, lines, err);
    if (rc == 0)
        rc = json_put(about, "eos", json_incref(eos), err);
    json_decref(eos);
    json_decref(lines);
    conf_release(&conf);
    return rc;
}

static json_t *describe(const struct model *model, struct err *err)
{
    char model_id[2 * HASH_BYTES + 1], file_id[2 * HASH_BYTES + 1];
    hash_hex(&model->file.model_id, HASH_BYTES, model_id);
    hash_hex(&model->file.file_id, HASH_BYTES, file_id);
    json_t *about = json_pack(
        "{s:o, s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:b}", "file",
        json_text(model->path, strlen(model->path)), "version", BMC_VERSION, "model_id", model_id,
        "file_id", file_id, "file_bytes", (json_int_t)model->file.map.size, "header_bytes",
        (json_int_t)model->file.header_bytes, "parameters", (json_int_t)model_parameters(model),
        "tokenizer_ids", (json_int_t)tokenizer_vocab(model->tok), "weight_type",
        dtype_name(model_weight_type(model)), "start_token", (int)tokenizer_has_template(model->tok));
    if (!about) {
        err_set(err, "%s: cannot be described in JSON", model->path);
    } else if (add_config(about, &model->file, model->path, err) < 0) {
        json_decref(about);
        about = NULL;
    }
    return about;
}

/* "key              value", of anything that a file may hold. */
static int put_member(const char *key, const json_t *value, struct buf *out, struct err *err)
{
    const size_t from = out->len;
    int rc = buf_addf(out, err, "%-16s ", key);
    if (rc == 0)
        rc = json_is_string(value)
                 ? buf_add(out, json_string_value(value), json_string_length(value), err)
                 : json_spell(value, JSON_REAL_PRECISION(9), out, err);
    if (rc < 0)
        return -1;
    text_make_printable(out->data + from, out->len - from, "");
    return buf_add(out, "\n", 1, err);
}

int convert_write_info(const json_t *about, const json_t *rows, enum table_format format,
                       struct err *err)
{
    struct buf text = {0};
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
        fwrite(text.data, 1, text.len, stdout);
    buf_release(&text);
    return rc;
}

static int show_info(const char *path, enum table_format format, struct err *err)
{
    struct model *model;
    if (file_sniff(path) == KIND_SNAPSHOT)
        return convert_kv_info(path, format, err);
    if (model_open(&model, path, err) < 0)
        return -1;
    json_t *about = describe(model, err), *rows = json_array();
    int rc = about ? 0 : -1;
    for (size_t i = 0; i < model->file.n_names && rc == 0; i++)
        rc = json_push(rows, describe_tensor(&model->file, &model->file.name[i]), err);
    if (rc == 0)
        rc = convert_write_info(about, rows, format, err);
    json_decref(about);
    json_decref(rows);
    model_close(model);
    return rc;
}

/* ---- the other jobs ---- */

static int verify(const char *path, struct err *err)
{
    struct cli_progress progress;
    struct model *model;
    if (file_sniff(path) == KIND_SNAPSHOT)
        return convert_kv_verify(path, err);
    if (model_open(&model, path, err) < 0)
        return -1;
    cli_progress_begin(&progress, "verify");
    const int rc = bmc_file_verify(&model->file, path, cli_progress, &progress, err);
    cli_progress_end(&progress);
    model_close(model);
    if (rc == 0)
        cli_say(stdout, "%s: ok\n", path);
    return rc;
}

static int convert(const struct options *o, const char *folder, struct err *err)
{
    static const enum dtype types[] = {DTYPE_COUNT, DTYPE_F32, DTYPE_BF16};
    struct cli_progress progress;
    struct hash model_id;
    char models_dir[8192];
    if (!o->models_dir && cli_models_dir(models_dir, sizeof models_dir, err) < 0)
        return -1;
    const struct convert_options options = {
        .models_dir = o->models_dir ? o->models_dir : models_dir,
        .family = o->family,
        .type = types[o->type],
        .progress = cli_progress,
        .arg = &progress,
    };
    cli_progress_begin(&progress, o->synth ? "synth" : "convert");
    const int rc = o->synth ? convert_synth(o->synth, o->tokenizer, (uint64_t)o->seed, o->out, &options,
                                            &model_id, err)
                            : convert_folder(folder, o->out, &options, &model_id, err);
    cli_progress_end(&progress);
    return rc;
}

/* Which one of the jobs is asked for; wrong combinations are usage errors. */
static void check_usage(const struct options *o, const struct operands *operands)
{
    if (o->info + o->verify + (o->synth != NULL) > 1)
        opt_usage_error(&program, "--info, --verify and --synth exclude each other");
    if (operands->n != (o->synth ? 0 : 1))
        opt_usage_error(&program,
                        o->synth ? "--synth takes no folder"
                                 : "exactly one folder or file is expected, found %zu",
                        operands->n);
    if (o->tokenizer && !o->synth)
        opt_usage_error(&program, "--tokenizer goes with --synth");
    if (o->family && (o->synth || o->info || o->verify))
        opt_usage_error(&program, "--family goes with a folder that is converted");
    if (!o->info && !o->verify && !o->out)
        opt_usage_error(&program, "no output named: give -o MODEL.bmc");
    if ((o->info || o->verify) && o->out)
        opt_usage_error(&program, "--info and --verify write no file: leave -o out");
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct operands operands;
    struct err err;
    cli_begin(program.name);
    cli_interrupt_ends();
    opt_parse(&program, argc, argv, &o, &operands);
    check_usage(&o, &operands);
    threads_set(o.threads ? (int)o.threads : threads_allowed());
    int rc;
    if (operands.n)
        files_input("FOLDER", operands.text[0]);
    if (o.synth)
        files_input("--synth", o.synth);
    if (files_check(&program, &o, &err) < 0)
        rc = -1;
    else if (o.info)
        rc = show_info(operands.text[0], (enum table_format)o.format, &err);
    else if (o.verify)
        rc = verify(operands.text[0], &err);
    else
        rc = convert(&o, operands.n ? operands.text[0] : NULL, &err);
    return cli_end(program.name, rc < 0 ? cli_fail(program.name, &err) : CLI_OK);
}
