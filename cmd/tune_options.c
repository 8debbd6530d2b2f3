/* The options of bmc-tune. */
#include "opt_rows.h"
#include "tune.h"

#define AT(field) offsetof(struct tune_options, field)

/* clang-format off */
static const struct opt opts[] = {
    HEADING("What is tuned"),
    PATH("model", "m", "FILE", model, "a model file; without -m and --shape only the machine is calibrated, and T is predicted for a layer of 32 heads of 128"),
    NAMES("shape", "SHAPE", shape, CHOICES_SHAPES, "a known shape (a name from shapes/, or a path) in place of a model"),
    TEXT("ctx-size", "N", "LIST", context, "N, the rows that a sequence grows to; a list as 512,2048 or 4K,8K (default: 128 to 16384; with a model or shape 2048, at most its context)"),
    TEXT("batch", "b", "LIST", batch, "sequences at a time, or a list (default 1)"),
    TEXT("spec", NULL, "k=K,m=M", spec, "with speculation: K candidates a step, of which M are accepted on average"),
    SIZE("layers", NULL, layers, 1, 1024, "layers of the model whose steps are timed for the free rows (default: of a model file all; of a shape 4)"),
    CHOICE("type", "TYPE", type, CHOICES_TYPES, "type of a shape's random weights: {} (default bf16)"),
    HEADING("Cache and machine"),
    ROW_KV_TYPE("f32"),
    ROW_ALLOC,
    ROW_ATTN,
    ROW_ISA,
    ROW_PRECISION,
    ROW_THREADS,
    INT("seed", "s", seed, 0, 9e18, "seed of random rows, tokens and intervals (default 0)"),
    HEADING("Measuring"),
    CHOICE("state", "STATE", state, "both|cold|hot", "measure cells cold (with the caches swept between steps, as a model's weights do), hot (without) or both (default both); the profile has cold"),
    FLAG("exact", NULL, exact, "run every step of every cell, in place of every growth and a sample of the steps"),
    SIZE("rounds", "r", rounds, 3, FIT_MAX_ROUNDS, "rounds of a cell, in which all T take turns (default 7)"),
    SIZE("seconds", NULL, seconds, 1, 1e6, "about how long a cell may take, hot and cold together: fewer growths are timed, and fewer sequences of a batch are run, where it would take longer (default 60)"),
    SIZE("megabytes", NULL, megabytes, 1, 1 << 20, "largest K and V that constants are measured at (default 1024)"),
    SIZE("evict", NULL, evict, 0, 1 << 14, "megabytes that are read before everything that is timed cold; 0: as large as the largest cache, from 64 to 128 (default 0)"),
    PATH("constants", NULL, "FILE", constants, "take the constants from this profile in place of measuring them"),
    FLAG("no-sweep", NULL, no_sweep, "predict only"),
    FLAG("no-rows", NULL, no_rows, "do not time model steps for the free rows"),
    HEADING("Profile and output"),
    ROW_PROFILE(""),
    FLAG("dry-run", NULL, dry_run, "do not write the profile"),
    FLAG("force", NULL, force, "write the profile even where fit and clock disagree"),
    FLAG("check", NULL, check, "calibrate again and compare: exit 1 when the profile no longer fits this machine"),
    ROW_FORMAT("{} (default table)"),
    FLAG("quiet", "q", quiet, "print nothing but errors"),
    OUTPUT("plot", NULL, OPT_WRITES, plot, "draw predicted and measured times of the first cell over T as SVG"),
};
/* clang-format on */

static const char *const usage[] = {
    "[OPTION ...]",
    "-m MODEL.bmc | --shape SHAPE [-N LIST] [-b LIST] [OPTION ...]",
    "--check [--profile FILE]",
    NULL,
};

const struct program tune_program = {"bmc-tune",
                                     "find out how often the cache should grow on this machine",
                                     usage,
                                     opts,
                                     ARRAY_LEN(opts),
                                     NULL,
                                     NULL};
