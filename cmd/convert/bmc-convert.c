/* bmc-convert: make, inspect and verify model files, inspect and verify snapshots. */
#include <protobuf-c/protobuf-c.h>

#include "base/text_util.h"
#include "base/threads.h"
#include "convert/convert_cmd.h"
#include "open_model.h"
#include "opt/opt.h"
#include "opt/opt_files.h"
#include "format/detect.h"
#include "format/tensorfile.h"
#include "opt/opt_rows.h"
#include "quant/quant_types.h"

struct options {
    const char *out;
    int type;
    bool pure, dry_run;
    bool leave_output;
    struct opt_list tensor_type;
    const char *imatrix;
    bool calibrate, no_calibrate;
    size_t target_bytes;
    double target_bpw, target_kld;
    const char *target_text;
    const char *family, *models_dir;
    bool no_bos;
    const char *chat;
    const char *synth, *tokenizer;
    struct seed seed;
    bool info, verify, cache;
    int format;
    size_t threads;
    bool quiet;
};

#define AT(field) offsetof(struct options, field)

/* clang-format off */
static const struct opt opts[] = {
    HEADING("Converting"),
    OUTPUT("output", "o", OPT_WRITES_MODEL, out, "model file to write, .bmc or .gguf by its name; - is standard output"),
    CHOICE("type", "TYPE", type, CHOICES_IMPORTS, "type of the weight matrices: {}; auto keeps the source's, q8_channel has one scale per output channel, quantised types are mixtures as in llama.cpp (default auto)"),
    FLAG("pure", NULL, pure, "give every matrix the base type of a mixture: no other types for the output head and sensitive matrices, nor for widths that are no multiple of 256"),
    FLAG("leave-output-tensor", NULL, leave_output, "keep the source's type of the output matrix (or of the embedding that is tied to it)"),
    LIST("tensor-type", NULL, "PATTERN=TYPE", tensor_type, "type of the matrices whose names, as --info prints them, match PATTERN (with * and ?); repeatable, the last match wins"),
    FLAG("dry-run", NULL, dry_run, "print the type and size of every tensor, and of the file, and write nothing"),
    PATH("imatrix", NULL, "FILE", imatrix, "importance matrix that weights quantisation errors, made by bmc-gen --score --save-imatrix"),
    FLAG("calibrate", NULL, calibrate, "weight quantisation errors by an importance matrix that is collected first, over 512 random tokens (default for mixtures below 5 bits of models with 100 million weights or more)"),
    FLAG("no-calibrate", NULL, no_calibrate, "weight all quantisation errors alike"),
    TOKENS("target-bytes", NULL, target_bytes, 1, MANY, "choose the type of every matrix so that the file has at most N bytes (95M is 95 times 1024 * 1024) and its output diverges least from the source's, by measurement on --target-text"),
    REAL("target-bpw", "X", target_bpw, 0.5, 32, "the same for at most X bits per weight"),
    REAL("target-kld", "X", target_kld, 1e-9, 100, "the same for a mean KL divergence of at most X on that text, in as few bytes as possible"),
    PATH("target-text", NULL, "FILE", target_text, "text for --target-bytes, --target-bpw and --target-kld; its first 128 tokens are used"),
    PATH("family", NULL, "FILE", family, "family file with tensor names and traits of the architecture (default: found by architecture)"),
    NAMES("chat-template", "NAME", chat, NULL, "chat format by name (those in chat/) or as a .chat file by path, or a Jinja template as FILE.jinja (default: the model's chat template)"),
    FLAG("no-bos", NULL, no_bos, "drop the BOS tokens that the tokenizer would add to texts"),
    PATH("models-dir", NULL, "FOLDER", models_dir, "folder with families/ and shapes/ (default: the one installed with the program)"),
    HEADING("Synthetic models"),
    NAMES("synth", "SHAPE", synth, CHOICES_SHAPES, "write a model with random weights N(0, 0.02); the shape is a name from shapes/, or a path"),
    SEED(seed, 0, "seed of the random weights (default 0)"),
    PATH("tokenizer", NULL, "SOURCE", tokenizer, "take the tokenizer and the EOS ids from this folder, GGUF file, tokenizer.json, tokenizer.model or tekken.json (default: one token per byte)"),
    HEADING("Inspecting"),
    FLAG("info", NULL, info, "print the contents of a model file, GGUF file or snapshot"),
    FLAG("verify", NULL, verify, "check every byte of a model file or snapshot against its hashes"),
    FLAG("cache", NULL, cache, "list the models that were converted when -m named a GGUF file or folder, the least recently used first; with the operand clear: remove those that are not in use"),
    ROW_FORMAT("output format of --info, --cache and --dry-run: {}"),
    ROW_THREADS,
    FLAG("quiet", "q", quiet, "print no notes, no progress and not what was written on standard error"),
};
/* clang-format on */

static const char *const usage[] = {
    "FOLDER -o MODEL.bmc",
    "FILE.gguf -o MODEL.bmc",
    "MODEL.bmc --type TYPE -o OTHER.bmc",
    "MODEL.bmc -o FILE.gguf",
    "--synth SHAPE -o MODEL.bmc",
    "--info FILE",
    "--verify FILE",
    "--cache [clear]",
    NULL,
};

static const struct program program = {
    "bmc-convert", "make, inspect and verify model files", usage, opts, ARRAY_LEN(opts), NULL, NULL};

static int show_info(const char *path, enum table_format format, struct err *err)
{
    const enum file_kind kind = file_detect(path);
    return kind == KIND_SNAPSHOT ? convert_kv_info(path, format, err)
           : kind == KIND_GGUF   ? convert_gguf_info(path, format, err)
                                 : convert_model_info(path, format, err);
}

static int verify(const char *path, struct err *err)
{
    struct cli_progress progress;
    if (file_detect(path) == KIND_GGUF)
        return err_set(err,
                       "%s: is a GGUF file, which has no hashes: only .bmc models and snapshots can be "
                       "verified",
                       path);
    cli_progress_begin(&progress, "verify");
    const int rc = file_detect(path) == KIND_SNAPSHOT ? convert_kv_verify(path, &progress, err)
                                                      : convert_model_verify(path, &progress, err);
    cli_progress_end(&progress);
    if (rc == 0)
        cli_say(stdout, "%s: ok\n", path);
    return rc;
}

/* The goal of --target-bytes, --target-bpw or --target-kld; false: none is given. */
static bool target_of(const struct options *o, struct target *target)
{
    const double value = o->target_bytes     ? (double)o->target_bytes
                         : o->target_bpw > 0 ? o->target_bpw
                                             : o->target_kld;
    *target = (struct target){.goal = o->target_bytes     ? GOAL_BYTES
                                      : o->target_bpw > 0 ? GOAL_BITS
                                                          : GOAL_KLD,
                              .value = value,
                              .text = o->target_text,
                              .threads = o->threads ? (int)o->threads : threads_allowed()};
    return value > 0;
}

/* Replaces the types of a conversion by chosen ones. */
static int choose_types(const struct options *o, const struct target *target, const char *source,
                        struct convert_options *options, struct chosen_types *chosen, struct err *err)
{
    struct convert_options plain = *options;
    plain.types = model_types(0);
    plain.notes = NULL;
    plain.transcoded = NULL;
    plain.chat_report = NULL;
    plain.planned = NULL;
    plain.size = NULL;
    plain.progress = NULL;
    if (o->dry_run && !o->quiet)
        cli_say(stderr,
                "%s: types for a target are searched by measurement, in a dry run, too: nothing "
                "is written, but it takes as long\n",
                program.name);
    if (convert_choose_types(chosen, target, source, o->out ? o->out : "", &plain, err) < 0)
        return -1;
    options->certificate = buf_text(&chosen->certificate);
    options->types = plain.types;
    options->types.tensor_type = chosen->text;
    options->types.n_tensor_types = chosen->n;
    char left[96] = "";
    if (target->goal == GOAL_BYTES && chosen->kld > 0 && (double)chosen->bytes < 0.99 * target->value)
        snprintf(left, sizeof left, "; no other types within %zu bytes are predicted to have less",
                 (size_t)target->value);
    if (!o->quiet)
        cli_say(stderr,
                "%s: types are chosen, for at most %zu bytes; mean KL divergence from the source on "
                "%zu tokens: %.4g%s\n",
                program.name, chosen->bytes, chosen->tokens, chosen->kld, left);
    return 0;
}

/* True for models of about the sizes for which it was measured: those of a few stories gain nothing. */
static bool calibrates_by_default(const struct options *o, const char *source,
                                  const struct convert_options *options)
{
    const size_t least = 100 * 1000 * 1000;
    const struct type_mixture *mixture = options->types.mixture;
    return mixture && (quant_has_grid(mixture->base) || quant_types[mixture->base].bits < 5) &&
           !o->synth && !o->imatrix && !o->no_calibrate &&
           convert_count_weights(source, options) >= least;
}

/* Collects an importance matrix over random tokens. By default a source that cannot be run is quantised without one. */
static int calibrate(const struct options *o, const char *source, struct convert_options *options,
                     struct imatrix_weights *collected, struct err *err)
{
    struct err why;
    options->calibrated = o->calibrate || calibrates_by_default(o, source, options);
    if (!options->calibrated || o->dry_run)
        return 0;
    if (!o->calibrate && !o->quiet)
        cli_say(stderr,
                "%s: %s: quantisation errors are weighted by inputs of 512 random tokens; "
                "--no-calibrate weights all alike\n",
                program.name, source);
    if (convert_calibrate(collected, source, o->out, options,
                          o->threads ? (int)o->threads : threads_allowed(),
                          o->calibrate ? err : &why) == 0) {
        options->imatrix_weights = collected;
        return 0;
    }
    if (o->calibrate)
        return -1;
    options->calibrated = false;
    cli_say(stderr, "%s: %s: is quantised without an importance matrix: %s\n", program.name, source,
            why.text);
    return 0;
}

static int convert(const struct options *o, const char *folder,
                   const struct imatrix_weights *imatrix_weights, struct err *err)
{
    struct cli_progress progress;
    struct hash model_id;
    char models_dir[8192];
    struct conversion_report report = {0};
    if (!o->models_dir && cli_models_dir(models_dir, sizeof models_dir, err) < 0)
        return -1;
    struct tensor_types types = model_types((size_t)o->type);
    if (o->pure)
        types.mixture = NULL;
    struct planned_model planned = {.rows = o->dry_run ? json_array() : NULL};
    types.leave_output_tensor = o->leave_output;
    types.tensor_type = o->tensor_type.text;
    types.n_tensor_types = o->tensor_type.n;
    struct imatrix_weights collected;
    struct convert_options options = {
        .models_dir = o->models_dir ? o->models_dir : models_dir,
        .family = o->family,
        .types = types,
        .imatrix_weights = imatrix_weights,
        .no_bos = o->no_bos,
        .chat = o->chat,
        .chat_report = &report.chat,
        .notes = &report.notes,
        .transcoded = report.held,
        .dry_run = o->dry_run,
        .planned = convert_add_planned,
        .planned_arg = &planned,
        .size = &planned.file_bytes,
        .progress = cli_progress,
        .arg = &progress,
    };
    struct target target;
    struct chosen_types chosen = {0};
    int rc = calibrate(o, folder, &options, &collected, err);
    cli_progress_begin(&progress, o->synth ? "synth" : "convert");
    if (rc == 0 && target_of(o, &target))
        rc = choose_types(o, &target, folder, &options, &chosen, err);
    if (rc == 0)
        rc = o->synth ? convert_synth(o->synth, o->tokenizer, o->seed.value, o->out, &options,
                                      &model_id, err)
                      : convert_folder(folder, o->out, &options, &model_id, err);
    if (options.imatrix_weights == &collected)
        imatrix_weights_close(&collected);
    cli_progress_end(&progress);
    chosen_types_release(&chosen);
    if (rc == 0 && o->dry_run)
        rc = convert_write_planned(&planned, (enum table_format)o->format, err);
    json_decref(planned.rows);
    if (rc == 0 && !o->quiet)
        cli_report_conversion(&program, folder, &report);
    if (rc == 0 && !o->quiet && !o->dry_run)
        convert_say_written(&planned, program.name, o->out);
    return rc;
}

/* Converts with an importance matrix; reports the model from which it was collected. */
static int convert_with_imatrix(const struct options *o, const char *folder, struct err *err)
{
    struct imatrix_weights imatrix_weights;
    char model_id[2 * HASH_BYTES + 1];
    if (imatrix_weights_open(&imatrix_weights, o->imatrix, err) < 0)
        return -1;
    hash_hex(&imatrix_weights.file.head->model_id, HASH_BYTES, model_id);
    if (!o->quiet)
        cli_say(stderr, "%s: %s: made with model %s, %llu tokens\n", program.name, o->imatrix, model_id,
                (unsigned long long)imatrix_weights.file.head->tokens);
    const int rc = convert(o, folder, &imatrix_weights, err);
    imatrix_weights_close(&imatrix_weights);
    return rc;
}

__attribute__((noreturn)) static void refuse_tensor_type(const char *text)
{
    char types[256] = "";
    for (size_t i = 0; importable_type_name(i); i++) {
        const size_t used = strlen(types);
        snprintf(types + used, sizeof types - used, "%s%s", i ? ", " : "", importable_type_name(i));
    }
    opt_usage_error(&program, "--tensor-type \"%s\": PATTERN=TYPE is expected, TYPE one of %s", text,
                    types);
}

static bool is_quantized(enum dtype type) { return type != DTYPE_COUNT && dtype_is_quantized(type); }

static int n_targets(const struct options *o)
{
    return (o->target_bytes > 0) + (o->target_bpw > 0) + (o->target_kld > 0);
}

/* True if the general type or that of a pattern is quantised, or types are chosen for a target. */
static bool quantizes(const struct options *o)
{
    char pattern[WEIGHT_NAME_SIZE];
    enum dtype type = model_types((size_t)o->type).type;
    bool quantizes = is_quantized(type) || n_targets(o);
    for (size_t i = 0; i < o->tensor_type.n; i++)
        quantizes |= tensor_types_parse(o->tensor_type.text[i], pattern, &type) && is_quantized(type);
    return quantizes;
}

static void check_tensor_types(const struct options *o)
{
    char pattern[WEIGHT_NAME_SIZE];
    enum dtype type;
    for (size_t i = 0; i < o->tensor_type.n; i++)
        if (!tensor_types_parse(o->tensor_type.text[i], pattern, &type))
            refuse_tensor_type(o->tensor_type.text[i]);
    if (o->calibrate && o->no_calibrate)
        opt_usage_error(&program, "--calibrate and --no-calibrate exclude each other");
    if (o->imatrix && o->calibrate)
        opt_usage_error(&program, "--calibrate collects what --imatrix reads: give one of them");
    if ((o->imatrix || o->calibrate) && !quantizes(o))
        opt_usage_error(&program,
                        "%s weights errors of quantisation, and nothing is quantised: give a "
                        "quantised type with --type or --tensor-type",
                        o->imatrix ? "--imatrix" : "--calibrate");
}

static void check_targets(const struct options *o)
{
    if (n_targets(o) > 1)
        opt_usage_error(&program, "--target-bytes, --target-bpw and --target-kld exclude each other");
    if (n_targets(o) && !o->target_text)
        opt_usage_error(&program, "a target needs --target-text FILE, on which divergence is measured");
    if (!n_targets(o) && o->target_text)
        opt_usage_error(&program,
                        "--target-text goes with --target-bytes, --target-bpw or --target-kld");
    if (n_targets(o) && (o->type || o->pure || o->leave_output || o->tensor_type.n))
        opt_usage_error(&program, "a target chooses all types: leave --type, --pure, --tensor-type and "
                                  "--leave-output-tensor out");
}

/* The source is the only operand. */
static void check_operands(const struct options *o, const struct operands *operands)
{
    const size_t n = operands->n;
    if (o->cache && (n > 1 || (n && strcmp(operands->text[0], "clear") != 0)))
        opt_usage_error(&program,
                        "--cache lists, and --cache clear removes converted models: found "
                        "\"%s\"",
                        operands->text[n - 1]);
    if (o->cache)
        return;
    if (o->synth && n)
        opt_usage_error(&program, "--synth takes no folder");
    if (n > 1 && opt_find_type(&program, operands->text[n - 1]))
        opt_usage_error(&program,
                        "exactly one folder or file is expected, found %zu; a type is given with "
                        "--type %s",
                        n, opt_find_type(&program, operands->text[n - 1]));
    if (!o->synth && n != 1)
        opt_usage_error(&program, "exactly one folder or file is expected, found %zu%s", n,
                        n > 1 && !o->out ? "; the file to write is given with -o" : "");
    if (n && !*operands->text[0])
        opt_usage_error(&program, "the name of the folder or file is empty");
}

/* Refuses names of files that other programs write. */
static void check_output(const char *path)
{
    static const char *const others[] = {".safetensors", ".bin",  ".pt",  ".pth",
                                         ".onnx",        ".ggml", ".json"};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (text_ends_like(path, others[i]))
            opt_usage_error(
                &program,
                "-o %s: a %s file cannot be written: models are .bmc, or GGUF in a .gguf file", path,
                others[i]);
}

/* What a run does. */
enum {
    CONVERTS = 1,
    MAKES_RANDOM = 2,
    WRITES = CONVERTS | MAKES_RANDOM,
    INFORMS = 4,
    VERIFIES = 8,
    CLEARS = 16
};

/* Options that only some runs use. */
static const struct {
    const char *option;
    unsigned runs;
    const char *with;
} limited[] = {
    {"format", INFORMS, "--info, --cache and --dry-run"},
    {"dry-run", WRITES, "a model that is converted"},
    {"tokenizer", MAKES_RANDOM, "--synth"},
    {"seed", MAKES_RANDOM, "--synth"},
    {"family", CONVERTS, "a folder that is converted"},
    {"chat-template", CONVERTS, "a model that is converted"},
    {"imatrix", CONVERTS, "a folder or file that is converted"},
    {"calibrate", CONVERTS, "a folder or file that is converted"},
    {"no-calibrate", CONVERTS, "a folder or file that is converted"},
    {"no-bos", WRITES, "a model that is written"},
    {"type", WRITES, "a model that is written"},
    {"tensor-type", WRITES, "a model that is written"},
    {"target-bytes", CONVERTS, "a model that is converted"},
    {"target-bpw", CONVERTS, "a model that is converted"},
    {"target-kld", CONVERTS, "a model that is converted"},
    {"target-text", CONVERTS, "a model that is converted"},
    {"pure", WRITES, "a model that is written"},
    {"leave-output-tensor", WRITES, "a model that is written"},
};

static void check_usage(const struct options *o, const struct operands *operands)
{
    const unsigned run = (o->cache    ? (operands->n ? CLEARS : INFORMS)
                          : o->info   ? INFORMS
                          : o->verify ? VERIFIES
                          : o->synth  ? MAKES_RANDOM
                                      : CONVERTS) |
                         (o->dry_run ? INFORMS : 0);
    if (o->info + o->verify + o->cache + (o->synth != NULL) > 1)
        opt_usage_error(&program, "--info, --verify, --cache and --synth exclude each other");
    check_operands(o, operands);
    for (size_t i = 0; i < ARRAY_LEN(limited); i++) {
        const char *name = limited[i].option;
        if (!(limited[i].runs & run) &&
            operands->given[opt_find_exact(&program, name, strlen(name), true) - opts])
            opt_usage_error(&program, "--%s goes with %s", name, limited[i].with);
    }
    check_tensor_types(o);
    check_targets(o);
    if (run & WRITES && !o->out && !o->dry_run)
        opt_usage_error(&program, "no output named: give -o MODEL.bmc");
    if (!(run & WRITES) && o->out)
        opt_usage_error(&program, "--info, --verify and --cache write no file: leave -o out");
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct operands operands;
    struct err err;
    cli_begin(program.name);
    cli_interrupt_ends(true);
    cli_uses("libzip", torchzip_library);
    cli_uses("protobuf-c", protobuf_c_version);
    opt_parse(&program, argc, argv, &o, &operands);
    check_usage(&o, &operands);
    threads_set(o.threads ? (int)o.threads : threads_allowed());
    int rc;
    if (operands.n && !o.cache)
        opt_files_input("the model to convert", operands.text[0]);
    if (o.synth)
        opt_files_input_shape("--synth", o.synth);
    const bool ready = opt_files_check(&program, &o, &err) == 0;
    if (ready && o.out)
        check_output(o.out);
    if (!ready)
        rc = -1;
    else if (o.cache)
        rc = operands.n ? convert_clear_cache(program.name, o.quiet, &err)
                        : convert_list_cache((enum table_format)o.format, &err);
    else if (o.info)
        rc = show_info(operands.text[0], (enum table_format)o.format, &err);
    else if (o.verify)
        rc = verify(operands.text[0], &err);
    else if (o.imatrix)
        rc = convert_with_imatrix(&o, operands.text[0], &err);
    else
        rc = convert(&o, operands.n ? operands.text[0] : NULL, NULL, &err);
    free(o.tensor_type.text);
    return cli_end(program.name, rc < 0 ? cli_fail(program.name, &err) : CLI_OK);
}
