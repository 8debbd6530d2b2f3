/* bmc-tune: find T, the number of allocations, for a machine: by formula and by clock. */
#include <stdlib.h>
#include <string.h>

#include "base/pages.h"
#include "cli.h"
#include "files.h"
#include "names.h"
#include "plot.h"
#include "tune.h"
#include "tuned.h"
#include "userdir.h"

#define AT(field) offsetof(struct tune_options, field)

/* clang-format off */
#define HEADING(text) {OPT_HEADING, text, NULL, NULL, NULL, 0, 0, 0, NULL, false}
#define FLAG(name, field, help) {OPT_FLAG, name, NULL, NULL, help, AT(field), 0, 0, NULL, false}
#define TEXT(name, letters, arg, field, help) {OPT_TEXT, name, letters, arg, help, AT(field), 0, 0, NULL, false}
#define PATH(name, letters, field, help) {OPT_TEXT, name, letters, "FILE", help, AT(field), 0, 0, NULL, true}
#define SIZE(name, letters, field, min, max, help) {OPT_SIZE, name, letters, "N", help, AT(field), min, max, NULL, false}
#define CHOICE(name, arg, field, choices, help) {OPT_CHOICE, name, NULL, arg, help, AT(field), 0, 0, choices, false}
static const struct opt opts[] = {
    HEADING("What is tuned"),
    PATH("model", "m", model, "a model file; without -m and --shape only the machine is calibrated, and T is predicted for a layer of 32 heads of 128"),
    {OPT_TEXT, "shape", NULL, "SHAPE", "a known shape (a name from shapes/, or a path) in place of a model", AT(shape), 0, 0, CHOICES_SHAPES, false},
    TEXT("ctx-size", "N", "LIST", context, "N, the rows that a sequence grows to; a list as 512,2048 (default: 128 to 16384; with a model or shape 2048, at most its context)"),
    TEXT("batch", "b", "LIST", batch, "sequences at a time, or a list (default 1)"),
    TEXT("spec", NULL, "k=K,m=M", spec, "with speculation: K candidates a step, of which M are accepted on average"),
    SIZE("layers", NULL, layers, 1, 1024, "layers of the model whose steps are timed for the free rows (default: of a model file all; of a shape 4)"),
    CHOICE("type", "TYPE", type, "bf16|f32", "type of a shape's random weights: {} (default bf16)"),
    HEADING("Cache and machine"),
    CHOICE("kv-type", "TYPE", kv_type, "f32|bf16", "type of the cached rows: f32 or bf16 (default f32)"),
    CHOICE("alloc", "HOW", alloc, PAGES_ALLOCS, "how the cache's memory is had: malloc, mmap (4 KiB pages) or thp (huge pages) (default malloc)"),
    {OPT_TEXT, "attn", NULL, "BACKEND", "attention backend: {} (default fused)", AT(attn), 0, 0, CHOICES_ATTN, false},
    {OPT_TEXT, "isa", NULL, "SET", "instruction set: {} (default: BMC_ISA, else the last of these that the machine has)", AT(isa), 0, 0, CHOICES_ISA, false},
    {OPT_TEXT, "precision", NULL, "P", "how activations meet bf16 weights: f32 (weights are widened), bf16 (activations are rounded once), bf16x2 (each is the sum of two bf16 terms) (default bf16x2 on bf16 and amx, else f32)", AT(precision), 0, 0, CHOICES_PRECISION, false},
    SIZE("threads", "t", threads, 1, 4096, "threads (default: all cores that the process may use)"),
    {OPT_INT, "seed", "s", "N", "seed of random rows, tokens and intervals (default 0)", AT(seed), 0, 9e18, NULL, false},
    HEADING("Measuring"),
    CHOICE("state", "STATE", state, "both|cold|hot", "measure cells cold (with the caches swept between steps, as a model's weights do), hot (without) or both (default both); the profile has cold"),
    FLAG("exact", exact, "run every step of every cell, in place of every growth and a sample of the steps"),
    SIZE("rounds", "r", rounds, 3, FIT_MAX_ROUNDS, "rounds of a cell, in which all T take turns (default 7)"),
    SIZE("seconds", NULL, seconds, 1, 1e6, "about how long a cell may take, hot and cold together: fewer growths are timed, and fewer sequences of a batch are run, where it would take longer (default 60)"),
    SIZE("megabytes", NULL, megabytes, 1, 1 << 20, "largest K and V that constants are measured at (default 1024)"),
    SIZE("evict", NULL, evict, 0, 1 << 14, "megabytes that are read before everything that is timed cold; 0: as large as the largest cache, from 64 to 128 (default 0)"),
    PATH("constants", NULL, constants, "take the constants from this profile in place of measuring them"),
    FLAG("no-sweep", no_sweep, "predict only"),
    FLAG("no-rows", no_rows, "do not time model steps for the free rows"),
    HEADING("Profile and output"),
    PATH("profile", NULL, profile, "the tuned profile (default: bmc/profile in $XDG_CONFIG_HOME, else in ~/.config)"),
    FLAG("dry-run", dry_run, "do not write the profile"),
    FLAG("force", force, "write the profile even where fit and clock disagree"),
    FLAG("check", check, "calibrate again and compare: exit 1 when the profile no longer fits this machine"),
    CHOICE("format", "FORMAT", format, TABLE_FORMATS, "table, md, csv, json or jsonl (default table)"),
    {OPT_FLAG, "quiet", "q", NULL, "print nothing but errors", AT(quiet), 0, 0, NULL, false},
    {OPT_TEXT, "plot", NULL, "FILE", "draw predicted and measured times of the first cell over T as SVG", AT(plot), 0, 0, NULL, OPT_WRITES},
};
/* clang-format on */

static const char *const usage[] = {
    "[OPTION ...]",
    "-m MODEL.bmc | --shape SHAPE [-N LIST] [-b LIST] [OPTION ...]",
    "--check [--profile FILE]",
    NULL,
};

const struct program tune_program = {
    "bmc-tune",      "find out how often the cache should grow on this machine",
    usage,           opts,
    ARRAY_LEN(opts), NULL};

static int run_tune(struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    if (tune_calibrate(tune, err) < 0 || tune_cells(tune, err) < 0 ||
        (!o->no_rows && tune_rows(tune, err) < 0) || tune_print(tune, err) < 0)
        return -1;
    if (o->plot && tune_plot(tune, &tune->cell[0], err) < 0)
        return -1;
    if (tune_doubts(tune, err) < 0)
        return -1;
    return o->dry_run ? 0 : tune_save(tune, err);
}

/* The profile is an output unless the run only looks at it; what is wrong with it is said before anything is measured. */
static int check_outputs(const struct tune *tune, struct err *err)
{
    const struct tune_options *o = tune->options;
    static char path[8192];
    if (files_check(&tune_program, o, err) < 0)
        return -1;
    if (o->check || o->dry_run)
        return 0;
    if (!tuned_path(o->profile, path, sizeof path))
        return err_set(err, "there is no place for the profile: neither XDG_CONFIG_HOME nor HOME is "
                            "set; give --profile FILE, or --dry-run");
    if (!o->profile)
        userdir_make(path);
    return files_output(&tune_program, "profile", path, OPT_WRITES_PROFILE, err) < 0
               ? -1
               : tune_check_room(tune, path, err);
}

int main(int argc, char **argv)
{
    struct tune_options o = {.batch = "1", .rounds = 7, .seconds = 60, .megabytes = 1024};
    struct operands operands;
    struct tune tune;
    struct err err;
    cli_begin(tune_program.name);
    opt_parse(&tune_program, argc, argv, &o, &operands);
    if (operands.n)
        opt_usage_error(&tune_program, "unexpected \"%s\": a model is given with -m", operands.text[0]);
    if (o.model && o.shape)
        opt_usage_error(&tune_program, "-m and --shape exclude each other");
    plot_check_usage(&tune_program, o.plot);
    if (o.check && (o.dry_run || o.constants || o.plot || o.spec || o.context))
        opt_usage_error(&tune_program,
                        "--check takes none of --dry-run, --constants, --plot, --spec and -N");
    if (o.profile && strcmp(o.profile, "none") == 0 && !o.dry_run)
        opt_usage_error(&tune_program,
                        "--profile: none is no profile everywhere, and one is %s here: give another "
                        "name (./none for a file of that name)%s",
                        o.check ? "checked" : "written", o.check ? "" : ", or --dry-run");
    names_check(&tune_program, NULL, o.attn, o.isa, o.precision);
    if (o.shape)
        files_input_shape("--shape", o.shape);
    int rc = tune_open(&tune, &o, &err);
    if (rc == 0)
        rc = check_outputs(&tune, &err);
    if (rc == 0)
        rc = o.check ? tune_check(&tune, &err) : run_tune(&tune, &err);
    tune_close(&tune);
    if (rc < 0 && cli_interrupted)
        return cli_end(tune_program.name, CLI_FAILED);
    return cli_end(tune_program.name, rc < 0 ? cli_fail(tune_program.name, &err)
                                      : rc   ? CLI_FAILED
                                             : CLI_OK);
}
