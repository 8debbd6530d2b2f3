/* bmc-convert: make, inspect and verify model files, inspect and verify snapshots. */
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zip.h>

#include "base/threads.h"
#include "cli.h"
#include "convert_kv.h"
#include "convert_model.h"
#include "files.h"
#include "format/sniff.h"
#include "model/convert.h"
#include "opt_rows.h"

struct options {
    const char *out;
    int type;
    bool keep_head;
    struct opt_list keep;
    const char *importance;
    const char *family, *models_dir;
    bool no_bos;
    const char *chat;
    const char *synth, *tokenizer;
    int64_t seed;
    bool info, verify;
    int format;
    size_t threads;
    bool quiet;
};

#define AT(field) offsetof(struct options, field)

/* clang-format off */
static const struct opt opts[] = {
    HEADING("Converting"),
    OUTPUT("output", "o", OPT_WRITES_MODEL, out, "the model file to write; - is standard output"),
    CHOICE("type", "TYPE", type, TYPES_MADE, "type of the stored matrices: auto (what the source has), f32, bf16 or f16; or few bits: q8, q4 and q4s (a scale for 32 inputs, and q4 an offset) or q8c (one for all inputs of an output)"),
    FLAG("keep-head", NULL, keep_head, "the head, or the embedding that is the head, keeps the source's type"),
    LIST("keep", NULL, "PATTERN=TYPE", keep, "the type of the matrices whose names, as --info prints them, match PATTERN (with * and ?); may be given again, the last that matches counts"),
    PATH("importance", NULL, "FILE", importance, "rounding to few bits weighs inputs by this file, made by bmc-gen --score --save-importance"),
    PATH("family", NULL, "FILE", family, "read the tensors' names and traits from this family file instead of finding it by architecture"),
    NAMES("chat-format", "NAME", chat, NULL, "the chat format, by name (those in chat/) or as a .chat file by path (default: found by the model's chat template)"),
    FLAG("no-bos", NULL, no_bos, "leave out the start tokens that the tokenizer would put in front of texts"),
    PATH("models-dir", NULL, "FOLDER", models_dir, "folder with families/ and shapes/ (default: the one that came with the program)"),
    HEADING("Synthetic models"),
    NAMES("synth", "SHAPE", synth, CHOICES_SHAPES, "write random weights N(0, 0.02) of a known shape (a name from shapes/, or a path)"),
    INT("seed", "s", seed, 0, 1e19, "seed of the random weights (default 0)"),
    PATH("tokenizer", NULL, "SOURCE", tokenizer, "take the tokenizer, and the ids that end a text, of this folder or GGUF file, or of a tokenizer.json or tokenizer.model; without it, one token per byte"),
    HEADING("Looking"),
    FLAG("info", NULL, info, "show what is in a model file or a snapshot"),
    FLAG("verify", NULL, verify, "compare every byte of a model file or a snapshot with its hashes"),
    ROW_FORMAT("how --info prints: {}"),
    ROW_THREADS,
    FLAG("quiet", "q", quiet, "no notes and no progress on standard error"),
};
/* clang-format on */

static const char *const usage[] = {
    "FOLDER -o MODEL.bmc", "FILE.gguf -o MODEL.bmc", "--synth SHAPE -o MODEL.bmc",
    "--info FILE",         "--verify FILE",          NULL,
};

static const struct program program = {
    "bmc-convert", "make, inspect and verify model files", usage, opts, ARRAY_LEN(opts), NULL, NULL};

/* ---- jobs ---- */

static int show_info(const char *path, enum table_format format, struct err *err)
{
    return file_sniff(path) == KIND_SNAPSHOT ? convert_kv_info(path, format, err)
                                             : convert_model_info(path, format, err);
}

static int verify(const char *path, struct err *err)
{
    return file_sniff(path) == KIND_SNAPSHOT ? convert_kv_verify(path, err)
                                             : convert_model_verify(path, err);
}

static void spell_bytes(size_t bytes, char text[32])
{
    if (bytes < 1 << 20)
        snprintf(text, 32, "%zu bytes", bytes);
    else
        snprintf(text, 32, "%.1f MiB", (double)bytes / (1 << 20));
}

/* Says which quantised types of the source take more room in the model, where their values are kept in a type that holds them
 * exactly. Padding to whole tiles alone, which is less than this share of a real matrix, is no growth. */
static void say_growth(const char *source, const struct held_type *held)
{
    const double padding = 0.005;
    for (size_t i = 0; i < SOURCE_OTHER; i++) {
        const struct held_type *h = &held[i];
        const double before = (double)h->source_bytes, after = (double)h->stored_bytes;
        char source_bytes[32], stored_bytes[32];
        if (after <= before * (1 + padding))
            continue;
        spell_bytes(h->source_bytes, source_bytes);
        spell_bytes(h->stored_bytes, stored_bytes);
        cli_say(stderr,
                "%s: %s: %s grows from %.4g to %.4g bits per weight, stored as %s: %zu tensor%s, %s, "
                "%s before\n",
                program.name, source, block_types[i].name, 8 * before / (double)h->weights,
                8 * after / (double)h->weights, dtype_name(h->stored), h->tensors,
                h->tensors > 1 ? "s" : "", stored_bytes, source_bytes);
    }
}

static int convert(const struct options *o, const char *folder, const struct weighing *weighing,
                   struct err *err)
{
    struct cli_progress progress;
    struct hash model_id;
    char models_dir[8192];
    bool unknown = false;
    struct held_type held[SOURCE_OTHER] = {0};
    if (!o->models_dir && cli_models_dir(models_dir, sizeof models_dir, err) < 0)
        return -1;
    const struct convert_options options = {
        .models_dir = o->models_dir ? o->models_dir : models_dir,
        .family = o->family,
        .types = {types_made[o->type], o->keep_head, o->keep.text, o->keep.n},
        .weighing = weighing,
        .no_start = o->no_bos,
        .chat = o->chat,
        .template_unknown = &unknown,
        .held = held,
        .progress = cli_progress,
        .arg = &progress,
    };
    cli_progress_begin(&progress, o->synth ? "synth" : "convert");
    progress.hidden |= o->quiet;
    const int rc = o->synth ? convert_synth(o->synth, o->tokenizer, (uint64_t)o->seed, o->out, &options,
                                            &model_id, err)
                            : convert_folder(folder, o->out, &options, &model_id, err);
    cli_progress_end(&progress);
    if (rc == 0 && !o->quiet)
        say_growth(folder, held);
    if (rc == 0 && unknown && !o->quiet)
        cli_say(stderr,
                "%s: %s: its chat template is none of those known, so the model has no chat format; "
                "--chat-format NAME chooses one\n",
                program.name, folder);
    return rc;
}

/* The same by a file of importance; says what that was made with. */
static int convert_weighed(const struct options *o, const char *folder, struct err *err)
{
    struct weighing weighing;
    char model_id[2 * HASH_BYTES + 1];
    if (weighing_open(&weighing, o->importance, err) < 0)
        return -1;
    hash_hex(&weighing.file.head->model_id, HASH_BYTES, model_id);
    if (!o->quiet)
        cli_say(stderr, "%s: %s: made with model %s, %llu tokens\n", program.name, o->importance,
                model_id, (unsigned long long)weighing.file.head->tokens);
    const int rc = convert(o, folder, &weighing, err);
    weighing_close(&weighing);
    return rc;
}

static bool is_given(const struct operands *operands, const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(opts); i++)
        if (strcmp(opts[i].name, name) == 0)
            return operands->given[i];
    return false;
}

static void check_keep(const struct options *o)
{
    char pattern[ROLE_NAME_SIZE];
    enum dtype type;
    const bool writes = !o->info && !o->verify;
    if ((o->keep_head || o->keep.n) && !writes)
        opt_usage_error(&program, "--keep-head and --keep go with a model that is written");
    if (o->importance && (!writes || o->synth))
        opt_usage_error(&program, "--importance goes with a folder or file that is converted");
    for (size_t i = 0; i < o->keep.n; i++)
        if (!types_keep_parse(o->keep.text[i], pattern, &type))
            opt_usage_error(&program, "--keep \"%s\": PATTERN=TYPE is expected, TYPE one of %s",
                            o->keep.text[i], TYPES_MADE);
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
    if (is_given(operands, "seed") && !o->synth)
        opt_usage_error(&program, "--seed goes with --synth");
    if (o->family && (o->synth || o->info || o->verify))
        opt_usage_error(&program, "--family goes with a folder that is converted");
    if (o->chat && (o->synth || o->info || o->verify))
        opt_usage_error(&program, "--chat-format goes with a model that is converted");
    if (o->no_bos && (o->info || o->verify))
        opt_usage_error(&program, "--no-bos goes with a model that is written");
    if (is_given(operands, "type") && (o->info || o->verify))
        opt_usage_error(&program, "--type goes with a model that is written");
    check_keep(o);
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
    cli_uses("libzip", zip_libzip_version());
    cli_uses("protobuf-c", protobuf_c_version());
    opt_parse(&program, argc, argv, &o, &operands);
    check_usage(&o, &operands);
    threads_set(o.threads ? (int)o.threads : threads_allowed());
    int rc;
    if (operands.n)
        files_input("FOLDER", operands.text[0]);
    if (o.synth)
        files_input_shape("--synth", o.synth);
    if (files_check(&program, &o, &err) < 0)
        rc = -1;
    else if (o.info)
        rc = show_info(operands.text[0], (enum table_format)o.format, &err);
    else if (o.verify)
        rc = verify(operands.text[0], &err);
    else if (o.importance)
        rc = convert_weighed(&o, operands.text[0], &err);
    else
        rc = convert(&o, operands.n ? operands.text[0] : NULL, NULL, &err);
    free(o.keep.text);
    return cli_end(program.name, rc < 0 ? cli_fail(program.name, &err) : CLI_OK);
}
