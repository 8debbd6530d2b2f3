/* bmc-prof: measures cache policies and the limits of a machine, and compares measurements. */
#include "base/cores.h"
#include "base/text_util.h"
#include "cli.h"
#include "opt/opt_files.h"
#include "opt/opt.h"
#include "plot.h"
#include "kv/offload/kv_streaming.h"
#include "prof/prof.h"

/* Finds the subcommand, which is the first operand; only `compare` takes more, two files. */
static enum prof_command find_command(const struct prof_options *o, const struct operands *operands)
{
    char names[160];
    size_t i = 0;
    text_join_choices(prof_program.operands, ", ", " and ", names, sizeof names);
    if (!operands->n)
        opt_usage_error(&prof_program, "one of %s is expected", names);
    while (i < PROF_COMMANDS && strcmp(prof_command_names[i], operands->text[0]) != 0)
        i++;
    if (i == PROF_COMMANDS)
        opt_usage_error(&prof_program, "\"%s\" is none of %s", operands->text[0], names);
    if (i == PROF_COMPARE && !o->against && operands->n != 3)
        opt_usage_error(&prof_program, "compare takes two files, as compare A.json B.json, or "
                                       "--against and a subcommand to measure");
    if (i == PROF_PREFIX_CACHE && operands->n != 2)
        opt_usage_error(&prof_program,
                        "prefix-cache takes a folder, the DIR of bmc-gen --prefix-cache");
    if (i != PROF_COMPARE && i != PROF_PREFIX_CACHE && operands->n != 1)
        opt_usage_error(&prof_program, "one of %s is expected, found also \"%s\"", names,
                        operands->text[1]);
    return (enum prof_command)i;
}

static const char one[] = "1", none[] = "0"; /* defaults of --parallel and --depth */

static void check_usage(struct prof *prof, const struct operands *operands)
{
    struct prof_options *o = &prof->options;
    o->command = find_command(o, operands);
    for (size_t i = 0; o->command == PROF_COMPARE && !o->against && i < 2; i++)
        o->file[i] = operands->text[1 + i];
    if (o->command == PROF_PREFIX_CACHE)
        o->file[0] = operands->text[1];
    prof_check_used(operands, o->command);
    if (o->command == PROF_COMPARE && o->against) {
        o->measure = operands->text + 1;
        o->n_measure = operands->n - 1;
        against_check_usage(o);
    } else if (o->command == PROF_COMPARE && o->repeat) {
        opt_usage_error(&prof_program,
                        "--repeat goes with compare --against only: rounds of files are given");
    }
    plot_check_usage(&prof_program, o->plot);
    if (!prof_jobs[o->command].lists && strchr(o->batch, ','))
        opt_usage_error(&prof_program, "-np takes a list with bench, memory, ranks and predict only");
    o->memory_bytes = o->memory ? opt_bytes(&prof_program, "--memory", o->memory) : 0;
    if (o->command == PROF_LATENCY)
        prof_one(o->depth, "--depth", 0);
    if (o->model && o->shape)
        opt_usage_error(&prof_program, "-m and --shape exclude each other");
    if (o->load_kv && (o->shape || o->layers))
        opt_usage_error(&prof_program, "--load-kv excludes --shape and --layers");
    if (o->load_kv && strcmp(o->depth, none) != 0)
        opt_usage_error(&prof_program, "--load-kv determines the context depth: it excludes --depth");
    if (o->command == PROF_PREDICT && !o->shape)
        opt_usage_error(&prof_program, "predict: give the model's dimensions by --shape");
    opt_type_check(&prof_program, o->type, o->shape);
    if (o->context == 1 && o->command == PROF_LATENCY)
        opt_usage_error(&prof_program, "-N: latency needs at least 2 tokens");
    prof_check_columns(prof);
    if ((o->hugepages || o->numa) && (o->shape || o->experts))
        opt_usage_error(&prof_program,
                        "%s copies a model file: it excludes --shape, whose weights "
                        "are in memory, and --experts",
                        o->numa ? "--numa" : "--hugepages");
    opt_cores_check(&prof_program, o->cpu_mask, o->cores);
    opt_device_check(&prof_program, operands, o->backend);
    opt_names_check(&prof_program, NULL, o->attn, o->isa, o->precision);
}

/* Checks files, before anything is measured. */
static int check_files(const struct prof_options *o, struct err *err)
{
    if (o->shape)
        opt_files_input_shape("--shape", o->shape);
    for (size_t i = 0; i < ARRAY_LEN(o->file) && o->file[i]; i++)
        opt_files_input(o->command == PROF_PREFIX_CACHE ? "prefix-cache" : "compare", o->file[i]);
    if (opt_files_check(&prof_program, o, err) < 0)
        return -1;
    return o->output ? opt_files_output(&prof_program, "output", o->output,
                                        o->command == PROF_HEADS    ? OPT_WRITES_HEADS
                                        : o->command == PROF_SCALES ? OPT_WRITES_RANGES
                                                                    : OPT_WRITES_SENSITIVITY,
                                        err)
                     : 0;
}

static int run_job(struct prof *prof, struct err *err)
{
    const struct prof_job *job = prof->job = &prof_jobs[prof->options.command];
    const struct prof_options *o = &prof->options;
    prof->rows = json_array();
    if (check_files(o, err) < 0 || opt_cores_use(o->cpu_mask, o->cores, err) < 0 ||
        (job->list && job->list(prof, err) < 0) || (!job->bare && prof_open(prof, err) < 0) ||
        job->measure(prof, err) < 0 || prof_print(prof, err) < 0 ||
        (o->plot && job->plot(prof, err) < 0) || (job->conclude && job->conclude(prof, err) < 0))
        return -1;
    return prof_conclude(prof, err);
}

int main(int argc, char **argv)
{
    struct prof prof = {.options = {.warmup = SIZE_MAX,
                                    .type = -1,
                                    .save_top = LOGITS_SAVED_TOP,
                                    .batch = one,
                                    .prompt = "128",
                                    .gen = "32",
                                    .depth = none,
                                    .ranks = "2,4,8",
                                    .network = "10Gb,20us",
                                    .beams = "1",
                                    .megabytes = 512,
                                    .tolerance = 5,
                                    .sink = STREAMING_SINK,
                                    .recent = STREAMING_RECENT,
                                    .sparsity = 0.5}};
    struct prof_options *o = &prof.options;
    struct operands operands;
    struct err err;
    cli_begin(prof_program.name);
    prof_describe();
    opt_parse(&prof_program, argc, argv, o, &operands);
    check_usage(&prof, &operands);
    o->repeat = o->repeat ? o->repeat : prof_jobs[o->command].repeat;
    o->warmup = o->warmup == SIZE_MAX ? prof_jobs[o->command].warmup : o->warmup;
    const int rc = run_job(&prof, &err);
    prof_close(&prof);
    if (rc < 0 && cli_interrupted)
        return cli_end(prof_program.name, CLI_FAILED);
    return cli_end(prof_program.name, rc < 0 ? cli_fail(prof_program.name, &err) : CLI_OK);
}
