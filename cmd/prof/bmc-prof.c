/* bmc-prof: measures cache policies and the limits of a machine, and compares measurements. */
#include <stdlib.h>
#include <string.h>

#include "base/cores.h"
#include "base/text_util.h"
#include "cli.h"
#include "opt/opt_files.h"
#include "opt/opt.h"
#include "plot.h"
#include "kv/offload/kv_streaming.h"
#include "prof/prof.h"
#include "prof/prof_against.h"

static const struct {
    int (*run)(const struct prof_options *options, struct err *err);
    size_t repeat, warmup; /* defaults of the options */
    bool lists;            /* accepts a list of batch sizes */
} jobs[PROF_COMMANDS] = {
    [PROF_POLICIES] = {prof_policies, 3, 0, false},
    [PROF_SWEEP] = {prof_sweep, 3, 0, false},
    [PROF_LATENCY] = {prof_latency, 1, 0, false},
    [PROF_BENCH] = {prof_bench, 5, 1, true},
    [PROF_USECASES] = {prof_usecases, 1, 1, true},
    [PROF_MEMORY] = {prof_memory, 1, 0, true},
    [PROF_ROOF] = {prof_roof, 3, 0, false},
    [PROF_INSTANCES] = {prof_instances, 3, 0, true},
    [PROF_HEADS] = {prof_heads, 1, 0, false},
    [PROF_SCALES] = {prof_scales, 1, 0, false},
    [PROF_RANKS] = {prof_ranks, 3, 1, true},
    [PROF_COMPARE] = {prof_compare, 8, 0, false},
    [PROF_PREFIX_CACHE] = {prof_prefix_cache, 1, 0, false},
};

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

static void check_usage(struct prof_options *o, const struct operands *operands)
{
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
    if (!jobs[o->command].lists && strchr(o->batch, ','))
        opt_usage_error(&prof_program,
                        "-np takes a list with bench, usecases, memory, instances and ranks only");
    o->memory_bytes = o->memory ? opt_bytes(&prof_program, "--memory", o->memory) : 0;
    o->held_rows = o->command == PROF_LATENCY ? prof_one(o->depth, "--depth", 0) : 0;
    if (o->model && o->shape)
        opt_usage_error(&prof_program, "-m and --shape exclude each other");
    if (o->memory && o->command == PROF_USECASES && o->batch != one)
        opt_usage_error(&prof_program, "--memory determines the number of sequences: it excludes -np");
    if (o->load_kv && (o->shape || o->layers))
        opt_usage_error(&prof_program, "--load-kv excludes --shape and --layers");
    if (o->load_kv && strcmp(o->depth, none) != 0)
        opt_usage_error(&prof_program, "--load-kv determines the context depth: it excludes --depth");
    opt_type_check(&prof_program, o->type, o->shape);
    if (o->context == 1 && o->command == PROF_LATENCY)
        opt_usage_error(&prof_program, "-N: latency needs at least 2 tokens");
    prof_check_columns(o, NULL);
    if ((o->hugepages || o->numa) && (o->shape || o->experts))
        opt_usage_error(&prof_program,
                        "%s copies a model file: it excludes --shape, whose weights "
                        "are in memory, and --experts",
                        o->numa ? "--numa" : "--hugepages");
    opt_cores_check(&prof_program, o->cpu_mask, o->cores);
    opt_names_check(&prof_program, NULL, o->attn, o->isa, o->precision);
}

int main(int argc, char **argv)
{
    struct prof_options o = {.repeat = 0,
                             .warmup = SIZE_MAX,
                             .type = -1,
                             .kv_type = -1,
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
                             .sparsity = 0.5};
    struct operands operands;
    struct err err;
    cli_begin(prof_program.name);
    prof_describe();
    opt_parse(&prof_program, argc, argv, &o, &operands);
    check_usage(&o, &operands);
    o.repeat = o.repeat ? o.repeat : jobs[o.command].repeat;
    o.warmup = o.warmup == SIZE_MAX ? jobs[o.command].warmup : o.warmup;
    if (o.shape)
        opt_files_input_shape("--shape", o.shape);
    for (size_t i = 0; i < ARRAY_LEN(o.file) && o.file[i]; i++)
        opt_files_input(o.command == PROF_PREFIX_CACHE ? "prefix-cache" : "compare", o.file[i]);
    int rc = opt_files_check(&prof_program, &o, &err);
    if (rc == 0 && o.output)
        rc = opt_files_output(&prof_program, "output", o.output,
                              o.command == PROF_HEADS ? OPT_WRITES_HEADS : OPT_WRITES_RANGES, &err);
    if (rc == 0)
        rc = opt_cores_use(o.cpu_mask, o.cores, &err);
    if (rc == 0)
        rc = jobs[o.command].run(&o, &err);
    if (rc == 0)
        rc = prof_conclude(&err);
    if (rc < 0 && cli_interrupted)
        return cli_end(prof_program.name, CLI_FAILED);
    return cli_end(prof_program.name, rc < 0 ? cli_fail(prof_program.name, &err) : CLI_OK);
}
