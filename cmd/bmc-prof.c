/* bmc-prof: measure what cache policies cost, and how far a run is from this machine's limits. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "plot.h"
#include "prof.h"

#define AT(field) offsetof(struct prof_options, field)
#define MANY      1e15

/* clang-format off */
#define HEADING(text) {OPT_HEADING, text, NULL, NULL, NULL, 0, 0, 0, NULL, false}
#define FLAG(name, field, help) {OPT_FLAG, name, NULL, NULL, help, AT(field), 0, 0, NULL, false}
#define TEXT(name, letters, arg, field, help) {OPT_TEXT, name, letters, arg, help, AT(field), 0, 0, NULL, false}
#define PATH(name, letters, arg, field, help) {OPT_TEXT, name, letters, arg, help, AT(field), 0, 0, NULL, true}
#define SIZE(name, letters, field, min, max, help) {OPT_SIZE, name, letters, "N", help, AT(field), min, max, NULL, false}
#define CHOICE(name, arg, field, choices, help) {OPT_CHOICE, name, NULL, arg, help, AT(field), 0, 0, choices, false}
static const struct opt opts[] = {
    HEADING("What is run"),
    PATH("model", "m", "FILE", model, "a model file (default: the model that came with the program)"),
    TEXT("shape", NULL, "SHAPE", shape, "a known shape (a name from shapes/, or a path) with random weights in memory, in place of a model"),
    SIZE("layers", NULL, layers, 1, 1024, "run only so many layers of it (default: all)"),
    CHOICE("type", "TYPE", type, "bf16|f32", "type of the random weights (default bf16)"),
    SIZE("ctx-size", "N", context, 1, MANY, "N, the rows that a sequence grows to (default: 512, at most the model's context; with --load-kv 512 beyond its rows)"),
    TEXT("batch", "b", "LIST", batch, "sequences at a time; bench and usecases take a list, as 1,8,32 (default 1)"),
    TEXT("prompt", "p", "LIST", prompt, "bench: prompt lengths to measure (default 128)"),
    TEXT("gen", "n", "LIST", gen, "bench: numbers of generated tokens to measure (default 32)"),
    TEXT("depth", "d", "LIST", depth, "bench: rows that are in the cache already (default 0)"),
    TEXT("cases", NULL, "LIST", cases, "usecases: prompt and generated lengths (default: of 128:128,128:1920,1920:128,1920:1920 those that the context holds)"),
    PATH("load-kv", NULL, "FILE", load_kv, "latency: begin with the sequences of this snapshot"),
    HEADING("Cache and machine"),
    {OPT_TEXT, "kv", NULL, "LIST", "cache policies to compare, separated by commas, as bmc-gen --kv spells them (default: all; bench: bmc; latency: iterative,bmc)", AT(kv), 0, 0, "bmc|iterative|upfront|paged|reserve", false},
    CHOICE("kv-type", "TYPE", kv_type, "f32|bf16", "type of the cached rows (default f32, or that of the snapshot)"),
    CHOICE("rows", "WHICH", rows, "policy|valid", "rows that attention multiplies: those the policy asks for, or only those that hold tokens (default policy)"),
    CHOICE("alloc", "HOW", alloc, PAGES_ALLOCS, "how the cache's memory is had: malloc, mmap (4 KiB pages) or thp (huge pages) (default malloc)"),
    FLAG("lockstep", lockstep, "grow a batch as one tensor (iterative, upfront and bmc)"),
    {OPT_TEXT, "attn", NULL, "BACKEND", "attention backend: fused or blas (default fused)", AT(attn), 0, 0, "fused|blas", false},
    {OPT_TEXT, "isa", NULL, "SET", "instruction set: blas, ref, avx2, avx512, bf16 or amx (default: BMC_ISA, else the last of these that the machine has)", AT(isa), 0, 0, "blas|ref|avx2|avx512|bf16|amx", false},
    {OPT_TEXT, "precision", NULL, "P", "how activations meet bf16 weights: f32 (weights are widened), bf16 (activations are rounded once), bf16x2 (each is the sum of two bf16 terms) (default bf16x2 on bf16 and amx, else f32)", AT(precision), 0, 0, "f32|bf16|bf16x2", false},
    PATH("profile", NULL, "FILE", profile, "the tuned profile, made by bmc-tune, or none: T of bmc (default: bmc/profile in $XDG_CONFIG_HOME, else in ~/.config)"),
    SIZE("threads", "t", threads, 1, 4096, "threads (default: all cores that the process may use)"),
    {OPT_INT, "seed", "s", "N", "seed of random weights, tokens and rows (default 0)", AT(seed), 0, 9e18, NULL, false},
    HEADING("Measuring"),
    SIZE("repeat", "r", repeat, 1, 64, "rounds; the things that are compared take turns in each (default 3; bench 5; latency and usecases 1)"),
    SIZE("warmup", NULL, warmup, 0, 64, "rounds before, which do not count (default 0; bench and usecases 1)"),
    SIZE("every", NULL, every, 1, MANY, "latency: tokens that share a row (default N/32)"),
    SIZE("megabytes", NULL, megabytes, 1, 1 << 20, "roof and bench: size of the blocks that are read and copied (default 512)"),
    HEADING("Output"),
    CHOICE("format", "FORMAT", format, TABLE_FORMATS, "table, md, csv, json or jsonl; the first two show the main columns only (default table)"),
    PATH("plot", NULL, "FILE", plot, "draw the result as SVG (policies, sweep, latency)"),
};
/* clang-format on */

static const char *const usage[] = {
    "policies | sweep | latency | bench | usecases | roof [OPTION ...]",
    NULL,
};

const struct program prof_program = {"bmc-prof", "measure cache policies and the machine's limits",
                                     usage, opts, ARRAY_LEN(opts)};

static const struct {
    const char *name;
    int (*run)(const struct prof_options *options, struct err *err);
    size_t repeat, warmup; /* defaults */
    bool plots, lists;     /* takes --plot, and a list of batches */
} jobs[] = {
    {"policies", prof_policies, 3, 0, true, false}, {"sweep", prof_sweep, 3, 0, true, false},
    {"latency", prof_latency, 1, 0, true, false},   {"bench", prof_bench, 5, 1, false, true},
    {"usecases", prof_usecases, 1, 1, false, true}, {"roof", prof_roof, 3, 0, false, false},
};

int main(int argc, char **argv)
{
    struct prof_options o = {.repeat = 0,
                             .warmup = SIZE_MAX,
                             .kv_type = -1,
                             .batch = "1",
                             .prompt = "128",
                             .gen = "32",
                             .depth = "0",
                             .megabytes = 512};
    struct operands operands;
    struct err err;
    size_t job = 0;
    cli_begin(prof_program.name);
    opt_parse(&prof_program, argc, argv, &o, &operands);
    if (operands.n != 1)
        opt_usage_error(&prof_program,
                        "one of policies, sweep, latency, bench, usecases and roof is expected");
    while (job < ARRAY_LEN(jobs) && strcmp(jobs[job].name, operands.text[0]) != 0)
        job++;
    if (job == ARRAY_LEN(jobs))
        opt_usage_error(&prof_program,
                        "\"%s\" is none of policies, sweep, latency, bench, usecases, roof",
                        operands.text[0]);
    if (o.plot && !jobs[job].plots)
        opt_usage_error(&prof_program, "--plot goes with policies, sweep and latency only");
    plot_check_usage(&prof_program, o.plot);
    if (!jobs[job].lists && strchr(o.batch, ','))
        opt_usage_error(&prof_program, "-b takes a list with bench and usecases only");
    if (o.model && o.shape)
        opt_usage_error(&prof_program, "-m and --shape exclude each other");
    if (o.load_kv && jobs[job].run != prof_latency)
        opt_usage_error(&prof_program, "--load-kv goes with latency only");
    if (o.load_kv && (o.shape || o.layers))
        opt_usage_error(&prof_program, "--load-kv excludes --shape and --layers");
    o.repeat = o.repeat ? o.repeat : jobs[job].repeat;
    o.warmup = o.warmup == SIZE_MAX ? jobs[job].warmup : o.warmup;
    const int rc = jobs[job].run(&o, &err);
    if (rc < 0 && cli_interrupted)
        return cli_end(prof_program.name, CLI_FAILED);
    return cli_end(prof_program.name, rc < 0 ? cli_fail(prof_program.name, &err) : CLI_OK);
}
