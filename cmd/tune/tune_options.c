/* The options of bmc-tune. */
#include "opt/opt_rows.h"
#include "tune/tune.h"

#define AT(field) offsetof(struct tune_options, field)

/* clang-format off */
static const struct opt opts[] = {
    HEADING("Workload"),
    PATH("model", "m", "FILE", model, "model file; without -m and --shape, the machine is calibrated and T predicted for a layer of 32 heads of 128"),
    NAMES("shape", "SHAPE", shape, CHOICES_SHAPES, "shape instead of a model file: a name from shapes/, or a path"),
    TEXT("ctx-size", "N", "LIST", context, "N, the context that a sequence grows to; a list as 512,2048 or 4K,8K (default: 128 to 16384; with a model or shape 2048, at most its context)"),
    TEXT("parallel", "np", "LIST", batch, "batch size in sequences, or a list (default 1)"),
    TEXT("spec", NULL, "k=K,m=M", spec, "speculative decoding with K draft tokens per step, of which M are accepted on average; auto finds T and the shape of drafts together, auto,p=P for acceptance rate P"),
    PATH("draft", "d", "FILE", draft, "with --spec auto, the draft model or draft head, as for bmc-spec (default: a drafter that takes no time)"),
    PATH("acceptance", NULL, "FILE", acceptance, "with --spec auto, measured acceptance rates (default: those that bmc-spec recorded for the two models, else typical ones)"),
    SIZE("layers", NULL, layers, 1, 1024, "layers of the model that are timed for the batch knee (default: of a model file all, of a shape 4)"),
    CHOICE("type", "TYPE", type, CHOICES_TYPES, "type of a shape's random weights: {} (default bf16)"),
    HEADING("KV cache and machine"),
    ROW_CACHE_TYPE("f32"),
    ROW_ALLOC,
    ROW_BACKEND,
    ROW_ATTN,
    ROW_ISA,
    ROW_PRECISION,
    ROW_THREADS,
    ROW_CPU_MASK,
    ROW_CORES,
    ROW_HUGEPAGES,
    ROW_NUMA,
    SEED(seed, 0, "seed of random KV entries, tokens and confidence intervals (default 0)"),
    HEADING("Measuring"),
    CHOICE("state", "STATE", state, "both|cold|hot", "measure with CPU caches cold (evicted between steps, as by the weights of a model), hot or both (default both); the profile has cold rates"),
    FLAG("exact", NULL, exact, "run every step, instead of every reallocation and a sample of the steps"),
    SIZE("rounds", "r", rounds, 3, FIT_MAX_ROUNDS, "rounds of each measurement, in which all T alternate (default 7)"),
    REAL("seconds", "N", seconds, 0.01, 1e6, "approximate time limit per context and batch, hot and cold together: fewer reallocations and sequences are run where it would be exceeded (default 60)"),
    SIZE("megabytes", NULL, megabytes, 1, 1 << 20, "largest K and V, and largest block, for which rates are measured (default 1024)"),
    SIZE("evict", NULL, evict, 0, 1 << 14, "megabytes read to evict CPU caches before a cold measurement; 0: the size of the largest cache, from 64 to 128 (default 0)"),
    PATH("constants", NULL, "FILE", constants, "take the rates from this profile instead of measuring them"),
    FLAG("no-sweep", NULL, no_sweep, "predict only"),
    FLAG("no-batch-knee", NULL, no_knee, "do not measure the batch knee"),
    HEADING("Profile and output"),
    ROW_PROFILE(""),
    FLAG("dry-run", NULL, dry_run, "do not write the profile"),
    FLAG("force", NULL, force, "write the profile even where prediction and measurement disagree"),
    FLAG("check", NULL, check, "calibrate again and compare; exit 1 when the profile no longer fits this machine"),
    FLAG("verbose", NULL, verbose, "print tables of all that was measured, as --format table"),
    ROW_FORMAT("tables or rows in place of the summary: {}"),
    FLAG("quiet", "q", quiet, "print nothing but errors"),
    OUTPUT("plot", NULL, OPT_WRITES_CHART, plot, "write an SVG chart of predicted and measured times over T, of the first context and batch"),
};
/* clang-format on */

static const char *const usage[] = {
    "[OPTION ...]",
    "-m MODEL | --shape SHAPE [-N LIST] [-np LIST] [OPTION ...]",
    "--check [--profile FILE]",
    NULL,
};

const struct program tune_program = {"bmc-tune",
                                     "tune the growth step of the KV cache for this machine",
                                     usage,
                                     opts,
                                     ARRAY_LEN(opts),
                                     NULL,
                                     NULL};
