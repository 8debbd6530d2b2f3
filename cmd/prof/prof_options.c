/* The options of bmc-prof and the subcommands that use them; the others reject them. --help, man
 * page and completions come from this table. */
#include "kv/offload/kv_streaming.h"
#include "opt/opt_rows.h"
#include "prof/prof.h"

#define AT(field) offsetof(struct prof_options, field)

/* Bits of the subcommands that use an option; a row without them does not compile. */
enum {
    POLICIES = 1 << PROF_POLICIES,
    SWEEP = 1 << PROF_SWEEP,
    LATENCY = 1 << PROF_LATENCY,
    BENCH = 1 << PROF_BENCH,
    MEMORY = 1 << PROF_MEMORY,
    RANKS = 1 << PROF_RANKS,
    PREDICT = 1 << PROF_PREDICT,
    ROOF = 1 << PROF_ROOF,
    HEADS = 1 << PROF_HEADS,
    SCALES = 1 << PROF_SCALES,
    CACHE_TYPES = 1 << PROF_CACHE_TYPES,
    QUALITY = 1 << PROF_QUALITY,
    PREFIX_CACHE = 1 << PROF_PREFIX_CACHE,
    COMPARE = 1 << PROF_COMPARE,
    BLOCKS = POLICIES | SWEEP,                 /* subcommands that run the attention block */
    STEPS = LATENCY | BENCH | RANKS | PREDICT, /* subcommands that run whole forward passes */
    RUNS = BLOCKS | STEPS,
    CACHES = RUNS | MEMORY,               /* subcommands that use a KV cache */
    TEXTS = HEADS | SCALES | CACHE_TYPES, /* subcommands that run a text */
    MEASURING = CACHES | ROOF | TEXTS | QUALITY,
};

const char *const prof_default_kv[PROF_COMMANDS] = {
    [PROF_POLICIES] = PROF_ALL_KV,    [PROF_SWEEP] = "bmc",
    [PROF_LATENCY] = "iterative,bmc", [PROF_BENCH] = "bmc",
    [PROF_MEMORY] = PROF_ALL_KV,      [PROF_RANKS] = "bmc",
    [PROF_PREDICT] = "bmc",           [PROF_ROOF] = "bmc",
    [PROF_HEADS] = "upfront",         [PROF_SCALES] = "upfront",
    [PROF_CACHE_TYPES] = "upfront",   [PROF_QUALITY] = "upfront",
};

/* clang-format off */
static const struct {
    unsigned used_by;
    struct opt opt;
} table[] = {
    {0, HEADING("Workload")},
    {(CACHES & ~PREDICT) | TEXTS | QUALITY, PATH("model", "m", "FILE", model, "model: a .bmc file, GGUF file or Hugging Face folder (default: BMC_MODEL, else the bundled model)")},
    {CACHES, NAMES("shape", "SHAPE", shape, CHOICES_SHAPES, "model with random weights instead of a file; the shape is a name from shapes/, or a path")},
    {CACHES, SIZE("layers", NULL, layers, 1, 1024, "number of layers to run (default: all)")},
    {STEPS | MEMORY, CHOICE("type", "TYPE", type, CHOICES_TYPES, "type of the random weights: {} (default bf16); the last ones, and with predict all that model files have, are mixtures as in llama.cpp")},
    {BLOCKS | LATENCY | BENCH | MEMORY | TEXTS | QUALITY, TOKENS("ctx-size", "N", context, 1, MANY, "N, the context that a sequence grows to (default: 512, at most the model's; with --depth and --load-kv 512 beyond that depth); bench: the least context of a shape; memory: by default prompt and generated tokens together; quality: the length of windows that a longer text is cut into (default: the model's context)")},
    {CACHES, TEXT("parallel", "np", "LIST", batch, "batch size in sequences; bench, predict, memory and ranks take a list, as 1,8,32 (default 1)")},
    {BENCH | MEMORY | RANKS | PREDICT, TEXT("prompt", "p", "LIST", prompt, "prompt lengths; ranks takes one (default 128)")},
    {BENCH | MEMORY | RANKS | PREDICT, TEXT("gen", "n", "LIST", gen, "numbers of generated tokens; ranks takes one (default 32)")},
    {MEMORY, TEXT("beams", NULL, "LIST", beams, "beams per prompt, each with its own generated tokens (default 1)")},
    {MEMORY, TEXT("memory", NULL, "SIZE", memory, "memory for the KV cache, as 4G or 512M, of which it is reported how many sequences fit")},
    {BENCH | LATENCY | PREDICT, TEXT("depth", "d", "LIST", depth, "context depth, filled with synthetic KV entries, as 4096 or 4K; latency takes one number (default 0)")},
    {LATENCY, PATH("load-kv", NULL, "FILE", load_kv, "start from the sequences of this snapshot")},
    {TEXTS | QUALITY, PATH("file", "f", "FILE", text, "text that is run, for retrieval scores, ranges or divergence; - is standard input, the default except for heads, which makes a text")},
    {QUALITY, ROW_LORA},
    {QUALITY, PATH("reference", NULL, "FILE", reference, "model file to compare with, or logits that --save-logits saved (default: the file of --model)")},
    {QUALITY, NAMES("reference-precision", "P", reference_precision, CHOICES_PRECISION, "arithmetic of the reference: {} (default f32)")},
    {QUALITY, NAMES("reference-cache-type", "TYPE", reference_cache_type, CHOICES_CACHES, "element type of the reference's KV cache: {}, or k=TYPE,v=TYPE (default f32)")},
    {HEADS, {OPT_TOKENS, "sink", NULL, "ROWS", "attention sinks: initial tokens that every head sees (default " TEXT_OF(STREAMING_SINK) ")", AT(sink), 0, 1 << 30, NULL, false}},
    {HEADS, {OPT_TOKENS, "recent", NULL, "ROWS", "recent tokens that every head sees (default " TEXT_OF(STREAMING_RECENT) ")", AT(recent), 1, 1 << 30, NULL, false}},
    {HEADS, REAL("sparsity", "PART", sparsity, 0, 1, "share of streaming heads: those with the lowest retrieval scores (default 0.5)")},
    {0, HEADING("KV cache and machine")},
    {POLICIES | STEPS | MEMORY | QUALITY, NAMES("kv", "LIST", kv, CHOICES_KV, "cache policies to compare, separated by commas: {}, with parameters as of bmc-gen --kv (default: all for policies and memory; iterative,bmc for latency; bmc for bench, predict and ranks; ranks and quality take one)")},
    {CACHES | QUALITY, NAMES("cache-type", "TYPE", cache_type, CHOICES_CACHES, "element type of the KV cache: {}; k=TYPE,v=TYPE: of keys and of values (default f32, or that of the snapshot)")},
    {QUALITY, ROW_CACHE_KLD},
    {RUNS, ROW_ATTEND},
    {CACHES, ROW_ALLOC},
    {RUNS, FLAG("lockstep", NULL, lockstep, "grow a batch as one tensor (iterative, upfront and bmc)")},
    {QUALITY, ROW_HEADS},
    {BLOCKS | LATENCY | BENCH, ROW_BACKEND},
    {RUNS | QUALITY, ROW_ATTN},
    {RUNS | TEXTS | QUALITY, ROW_ISA},
    {STEPS | TEXTS | QUALITY, ROW_PRECISION},
    {POLICIES | STEPS | MEMORY, ROW_PROFILE(" made by bmc-tune, for T of bmc, or none")},
    {BENCH, ROW_EXPERTS},
    {MEASURING, ROW_THREADS},
    {MEASURING, ROW_CPU_MASK},
    {MEASURING, ROW_CORES},
    {STEPS, ROW_HUGEPAGES},
    {STEPS, ROW_NUMA},
    {RUNS, SEED(seed, 0, "seed of random weights, tokens and KV entries (default 0)")},
    {RANKS, TEXT("ranks", NULL, "LIST", ranks, "numbers of hosts like this one (default 2,4,8)")},
    {RANKS, TEXT("network", NULL, "RATE,LATENCY", network, "network between the hosts, as 100Gb,2us: bits per second, and latency between programs (default 10Gb,20us)")},
    {0, HEADING("Measuring")},
    {RUNS | ROOF | COMPARE, SIZE("repeat", "r", repeat, 1, 64, "rounds; configurations that are compared alternate in each (default 3; bench 5; latency 1; compare --against 8)")},
    {RUNS, SIZE("warmup", NULL, warmup, 0, 64, "unmeasured rounds before (default 0; bench 1)")},
    {LATENCY, TOKENS("every", NULL, every, 1, MANY, "tokens per row of output (default 1/32 of them)")},
    {BENCH | ROOF | MEMORY, SIZE("megabytes", NULL, megabytes, 1, 1 << 20, "size of the blocks that are read and copied; limit of the caches that memory grows (default 512)")},
    {COMPARE, PATH("against", NULL, "PROGRAM", against, "another build of bmc-prof to compare with: both run the subcommand and options after --, in turns")},
    {COMPARE, REAL("tolerance", "PERCENT", tolerance, 0, 1000, "slowdown of the second file, or of this build, up to which the exit status is 0 (default 5)")},
    {0, HEADING("Output")},
    {MEASURING | PREFIX_CACHE | COMPARE, ROW_FORMAT("{}; the first two show the main columns only, with units (default table)")},
    {MEASURING | PREFIX_CACHE | COMPARE, TEXT("columns", NULL, "LIST", columns, "columns of table, md and csv: names of fields separated by commas, or all (default: the main ones in table and md, all in csv)")},
    {TEXTS, PATH("output", "o", "FILE", output, "write the list of retrieval heads, for bmc-gen --retrieval-heads, or the ranges, for --cache-type q8:scales=FILE, or the costs of types, for --cache-kld (these by default to a file beside the tuned profile)")},
    {QUALITY, OUTPUT("save-logits", NULL, OPT_WRITES_LOGITS, save_logits, "save this configuration's next-token distributions, to be the --reference of others; without --reference nothing else is compared")},
    {QUALITY, SIZE("save-top", NULL, save_top, 0, 1 << 20, "most probable tokens that --save-logits saves at each position, with the probability of all others together; 0: all tokens (default " TEXT_OF(LOGITS_SAVED_TOP) ")")},
    {BLOCKS | LATENCY | QUALITY, OUTPUT("plot", NULL, OPT_WRITES_CHART, plot, "write an SVG chart")},
};
/* clang-format on */

enum { ROWS = ARRAY_LEN(table), TEXT_BYTES = 640, USAGE_BYTES = 1536 };

/* Built from the table above, for opt/opt.h. */
static struct opt opts[ROWS];
static const char *usage[PROF_COMMANDS + 1];
static char operands[192];
static unsigned takers[ROWS];

const struct program prof_program = {
    "bmc-prof", "measure cache policies and the machine's limits, and compare two measurements",
    usage,      opts,
    ROWS,       operands,
    takers};

/* Appends formatted text to a string of `size` bytes, which must fit. */
__attribute__((format(printf, 3, 4))) static void append_text(char *text, size_t size,
                                                              const char *format, ...)
{
    va_list args;
    const size_t len = strlen(text);
    va_start(args, format);
    const int n = vsnprintf(text + len, size - len, format, args);
    assert(n >= 0 && (size_t)n < size - len);
    (void)n;
    va_end(args);
}

/* Appends subcommand names: "policies, sweep and latency". */
static void append_names(char *text, size_t size, unsigned commands)
{
    for (unsigned i = 0, left = commands; i < PROF_COMMANDS; i++) {
        if (!(commands & 1u << i))
            continue;
        left &= ~(1u << i);
        append_text(text, size, "%s%s", prof_command_names[i],
                    !left                 ? ""
                    : (left & (left - 1)) ? ", "
                                          : " and ");
    }
}

/* Builds the help text of an option, which names subcommands: "bench: ..." if few use it, "... (not
 * with sweep)" if most do. Roof and compare are never named here: they run no model. */
static void describe_option(size_t row, char *text, size_t size)
{
    const unsigned used_by = table[row].used_by, others = RUNS & ~used_by;
    const bool quant = __builtin_popcount(used_by) <= 3;
    if (quant) {
        append_names(text, size, used_by);
        append_text(text, size, ": ");
    }
    append_text(text, size, "%s", table[row].opt.help);
    if (!quant && others) {
        append_text(text, size, " (not with ");
        append_names(text, size, others);
        append_text(text, size, ")");
    }
}

/* Builds a usage line: the subcommand and all of its options, wrapped. */
static void list_options(size_t command, char *text, size_t size)
{
    enum { WIDTH = 100, INDENT = 18 };
    const char *files = command == PROF_COMPARE        ? " A.json B.json|-- SUBCOMMAND ..."
                        : command == PROF_PREFIX_CACHE ? " DIR"
                                                       : "";
    size_t column = INDENT + strlen(prof_command_names[command]) + strlen(files);
    append_text(text, size, "%s%s", prof_command_names[command], files);
    for (size_t i = 0; i < ROWS; i++) {
        const struct opt *opt = &table[i].opt;
        char one[64] = "";
        if (!(table[i].used_by & 1u << command))
            continue;
        append_text(one, sizeof one, "[--%s%s%s]", opt->name, opt->arg ? " " : "",
                    opt->arg ? opt->arg : "");
        const bool wraps = column + 1 + strlen(one) > WIDTH;
        append_text(text, size, wraps ? "\n%*s%s" : "%*s%s", wraps ? INDENT : 1, "", one);
        column = (wraps ? INDENT : column + 1) + strlen(one);
    }
}

void prof_describe(void)
{
    static char text[ROWS][TEXT_BYTES], line[PROF_COMMANDS][USAGE_BYTES], all_fields[2048];
    prof_all_fields(all_fields, sizeof all_fields);
    for (size_t i = 0; i < ROWS; i++) {
        opts[i] = table[i].opt;
        takers[i] = table[i].used_by;
        if (opts[i].kind == OPT_HEADING)
            continue;
        describe_option(i, text[i], TEXT_BYTES);
        opts[i].help = text[i];
        if (strcmp(opts[i].name, "columns") == 0)
            opts[i].choices = all_fields;
    }
    for (size_t i = 0; i < PROF_COMMANDS; i++) {
        list_options(i, line[i], USAGE_BYTES);
        usage[i] = line[i];
        append_text(operands, sizeof operands, "%s%s", i ? "|" : "", prof_command_names[i]);
    }
}

void prof_check_used(const struct operands *given, enum prof_command command)
{
    for (size_t i = 0; i < ROWS; i++) {
        char users[192] = "";
        if (!given->given[i] || table[i].used_by & 1u << command)
            continue;
        append_names(users, sizeof users, table[i].used_by);
        opt_usage_error(&prof_program, "--%s goes with %s only, not with %s%s", table[i].opt.name,
                        users, prof_command_names[command],
                        command == PROF_COMPARE ? "; options of what --against runs follow \"--\""
                                                : "");
    }
}
