/* The options of bmc-prof, each with the subcommands that use it: what a subcommand does not use it refuses. The texts of
 * --help, the man page and the completions say the same, from the same table. */
#include <assert.h>
#include <stdarg.h>
#include <string.h>

#include "opt_rows.h"
#include "prof.h"

#define AT(field) offsetof(struct prof_options, field)

/* Who uses an option. A row without such a mask does not compile. */
enum {
    POLICIES = 1 << PROF_POLICIES,
    SWEEP = 1 << PROF_SWEEP,
    LATENCY = 1 << PROF_LATENCY,
    BENCH = 1 << PROF_BENCH,
    USECASES = 1 << PROF_USECASES,
    MEMORY = 1 << PROF_MEMORY,
    INSTANCES = 1 << PROF_INSTANCES,
    RANKS = 1 << PROF_RANKS,
    ROOF = 1 << PROF_ROOF,
    HEADS = 1 << PROF_HEADS,
    COMPARE = 1 << PROF_COMPARE,
    BLOCKS = POLICIES | SWEEP,                  /* run the attention block */
    STEPS = LATENCY | BENCH | USECASES | RANKS, /* run whole steps of a model */
    RUNS = BLOCKS | STEPS,
    CACHES = RUNS | MEMORY, /* are about a cache */
    MEASURING = CACHES | INSTANCES | ROOF | HEADS,
};

/* What --kv is where it is not given; its help is made from this. */
static const char *const default_kv[PROF_COMMANDS] = {
    [PROF_POLICIES] = PROF_ALL_KV,
    [PROF_SWEEP] = "bmc",
    [PROF_LATENCY] = "iterative,bmc",
    [PROF_BENCH] = "bmc",
    [PROF_USECASES] = "paged:16,iterative,upfront,bmc,reserve", /* BMC paper, table II */
    [PROF_MEMORY] = PROF_ALL_KV,
    [PROF_INSTANCES] = "iterative,paged:16,bmc",
    [PROF_RANKS] = "bmc",
    [PROF_ROOF] = "bmc",
    [PROF_HEADS] = "upfront",
};

const char *prof_default_kv(enum prof_command command) { return default_kv[command]; }

/* clang-format off */
static const struct {
    unsigned used_by;
    struct opt opt;
} table[] = {
    {0, HEADING("What is run")},
    {CACHES | INSTANCES | HEADS, PATH("model", "m", "FILE", model, "a model file (default: the model that came with the program)")},
    {CACHES, NAMES("shape", "SHAPE", shape, CHOICES_SHAPES, "a known shape (a name from shapes/, or a path) with random weights in memory, in place of a model")},
    {CACHES, SIZE("layers", NULL, layers, 1, 1024, "run only so many layers of it (default: all)")},
    {STEPS, CHOICE("type", "TYPE", type, CHOICES_TYPES, "type of the random weights: {} (default bf16)")},
    {BLOCKS | LATENCY | BENCH | MEMORY | HEADS, TOKENS("ctx-size", "N", context, 1, MANY, "N, the rows that a sequence grows to (default: 512, at most the model's context; with --depth and --load-kv 512 beyond those rows); bench: the context that a shape has at least; memory: by default prompt and answer together")},
    {CACHES | INSTANCES, TEXT("batch", "b", "LIST", batch, "sequences at a time; bench, usecases, memory, instances and ranks take a list, as 1,8,32 (default 1)")},
    {BENCH | MEMORY | INSTANCES | RANKS, TEXT("prompt", "p", "LIST", prompt, "prompt lengths; instances and ranks take one (default 128)")},
    {BENCH | MEMORY | INSTANCES | RANKS, TEXT("gen", "n", "LIST", gen, "numbers of generated tokens; instances and ranks take one (default 32)")},
    {MEMORY, TEXT("beams", NULL, "LIST", beams, "texts that go on from a prompt, each with such an answer (default 1)")},
    {MEMORY | USECASES, TEXT("memory", NULL, "SIZE", memory, "so much memory for the cache, as 4G or 512M: usecases runs as many sequences at a time as it holds, memory says how many prompts with their answers those are")},
    {BENCH | LATENCY, TEXT("depth", "d", "LIST", depth, "rows that are in the cache already, written and not computed, as 4096 or 4K; latency takes one number (default 0)")},
    {USECASES, TEXT("cases", NULL, "LIST", cases, "prompt and generated lengths (default: of 128:128,128:1920,1920:128,1920:1920 those that the context holds)")},
    {LATENCY, PATH("load-kv", NULL, "FILE", load_kv, "begin with the sequences of this snapshot")},
    {HEADS, PATH("file", "f", "FILE", text, "the text on which heads are watched; - is standard input, which is also the default")},
    {HEADS, {OPT_TOKENS, "sink", NULL, "ROWS", "rows at the beginning that every head sees (default 4)", AT(sink), 0, 1 << 30, NULL, false}},
    {HEADS, {OPT_TOKENS, "recent", NULL, "ROWS", "and so many last ones (default 256)", AT(recent), 1, 1 << 30, NULL, false}},
    {HEADS, REAL("sparsity", "PART", sparsity, 0, 1, "of all heads, how many see no more than that: those that look beyond it least (default 0.5)")},
    {0, HEADING("Cache and machine")},
    {POLICIES | STEPS | MEMORY | INSTANCES, NAMES("kv", "LIST", kv, CHOICES_KV, "cache policies to compare, separated by commas: {}, with what bmc-gen --kv allows after a colon")},
    {CACHES, ROW_KV_TYPE("f32, or that of the snapshot")},
    {RUNS, ROW_ROWS},
    {CACHES, ROW_ALLOC},
    {RUNS, FLAG("lockstep", NULL, lockstep, "grow a batch as one tensor (iterative, upfront and bmc)")},
    {RUNS, ROW_ATTN},
    {RUNS | HEADS, ROW_ISA},
    {STEPS | HEADS, ROW_PRECISION},
    {POLICIES | STEPS | MEMORY, ROW_PROFILE(", made by bmc-tune, or none: T of bmc")},
    {MEASURING, ROW_THREADS},
    {RUNS, INT("seed", "s", seed, 0, 9e18, "seed of random weights, tokens and rows (default 0)")},
    {INSTANCES, TEXT("launcher", NULL, "COMMAND", launcher, "what starts several processes; %t in it becomes their threads, and -n with their number follows (default mpirun --bind-to core --map-by slot:PE=%t)")},
    {RANKS, TEXT("ranks", NULL, "LIST", ranks, "numbers of hosts like this one (default 2,4,8)")},
    {RANKS, TEXT("network", NULL, "RATE,LATENCY", network, "what is between them, as 100Gb,2us: bits a second, and the time from program to program (default 10Gb,20us)")},
    {0, HEADING("Measuring")},
    {RUNS | INSTANCES | ROOF | COMPARE, SIZE("repeat", "r", repeat, 1, 64, "rounds; the things that are compared take turns in each (default 3; bench 5; latency and usecases 1; compare --against 8)")},
    {RUNS, SIZE("warmup", NULL, warmup, 0, 64, "rounds before, which do not count (default 0; bench and usecases 1)")},
    {LATENCY, TOKENS("every", NULL, every, 1, MANY, "tokens that share a row (default 1/32 of them)")},
    {BENCH | ROOF | MEMORY, SIZE("megabytes", NULL, megabytes, 1, 1 << 20, "size of the blocks that are read and copied; of the caches that memory grows, at most (default 512)")},
    {COMPARE, PATH("against", NULL, "PROGRAM", against, "another build of bmc-prof, which runs in turns with this one what follows --: a subcommand and its options")},
    {COMPARE, REAL("tolerance", "PERCENT", tolerance, 0, 1000, "how much worse the second file, or this build, may be before the exit status is 1 (default 5)")},
    {0, HEADING("Output")},
    {MEASURING | COMPARE, ROW_FORMAT("{}; the first two show the main columns only, with units (default table)")},
    {MEASURING | COMPARE, TEXT("columns", NULL, "LIST", columns, "columns of table, md and csv: names of fields, separated by commas, or all (default: the main ones in table and md, all in csv)")},
    {HEADS, OUTPUT("output", "o", OPT_WRITES, output, "write the list of the heads that see all, for bmc-gen --heads")},
    {BLOCKS | LATENCY, OUTPUT("plot", NULL, OPT_WRITES, plot, "draw the result as SVG")},
};
/* clang-format on */

enum { ROWS = ARRAY_LEN(table), TEXT_BYTES = 640, USAGE_BYTES = 1536 };

/* What is made of the table for opt.h. */
static struct opt opts[ROWS];
static const char *usage[PROF_COMMANDS + 1];
static char operands[128];
static unsigned takers[ROWS];

const struct program prof_program = {
    "bmc-prof", "measure cache policies and the machine's limits, and compare two measurements",
    usage,      opts,
    ROWS,       operands,
    takers};

/* Appends to a text of `size` bytes; all texts are ours and fit. */
__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format, ...)
{
    va_list args;
    const size_t len = strlen(text);
    va_start(args, format);
    const int n = vsnprintf(text + len, size - len, format, args);
    assert(n >= 0 && (size_t)n < size - len);
    (void)n;
    va_end(args);
}

/* "policies, sweep and latency". */
static void add_names(char *text, size_t size, unsigned commands)
{
    for (unsigned i = 0, left = commands; i < PROF_COMMANDS; i++) {
        if (!(commands & 1u << i))
            continue;
        left &= ~(1u << i);
        add(text, size, "%s%s", prof_command_names[i],
            !left                 ? ""
            : (left & (left - 1)) ? ", "
                                  : " and ");
    }
}

/* " (default: bmc for bench and ranks; ...)", a subcommand that has the default of one before it beside that. */
static void add_default_kv(char *text, size_t size, unsigned used_by)
{
    const char *before = " (default: ";
    for (unsigned i = 0, left = used_by; left; i++) {
        unsigned same = 0;
        for (unsigned k = i; left & 1u << i && k < PROF_COMMANDS; k++)
            same |= left & 1u << k && strcmp(default_kv[k], default_kv[i]) == 0 ? 1u << k : 0;
        if (!same)
            continue;
        left &= ~same;
        add(text, size, "%s%s for ", before,
            strcmp(default_kv[i], PROF_ALL_KV) == 0 ? "all" : default_kv[i]);
        add_names(text, size, same);
        before = "; ";
    }
    add(text, size, "; ranks takes one)");
}

/* The help with who uses the option: "bench: ..." where those are few, "... (not with sweep)" where most do. That roof and
 * compare run no model goes without saying; the lines of usage have it all. */
static void describe(size_t row, char *text, size_t size)
{
    const unsigned used_by = table[row].used_by, others = RUNS & ~used_by;
    const bool few = __builtin_popcount(used_by) <= 3;
    if (few) {
        add_names(text, size, used_by);
        add(text, size, ": ");
    }
    add(text, size, "%s", table[row].opt.help);
    if (strcmp(table[row].opt.name, "kv") == 0)
        add_default_kv(text, size, used_by);
    if (!few && others) {
        add(text, size, " (not with ");
        add_names(text, size, others);
        add(text, size, ")");
    }
}

/* A line of usage: the subcommand and every option that it uses, wrapped. */
static void list_options(size_t command, char *text, size_t size)
{
    enum { WIDTH = 100, INDENT = 18 };
    const char *files = command == PROF_COMPARE ? " A.json B.json|-- SUBCOMMAND ..." : "";
    size_t column = INDENT + strlen(prof_command_names[command]) + strlen(files);
    add(text, size, "%s%s", prof_command_names[command], files);
    for (size_t i = 0; i < ROWS; i++) {
        const struct opt *opt = &table[i].opt;
        char one[64] = "";
        if (!(table[i].used_by & 1u << command))
            continue;
        add(one, sizeof one, "[--%s%s%s]", opt->name, opt->arg ? " " : "", opt->arg ? opt->arg : "");
        const bool wraps = column + 1 + strlen(one) > WIDTH;
        add(text, size, wraps ? "\n%*s%s" : "%*s%s", wraps ? INDENT : 1, "", one);
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
        describe(i, text[i], TEXT_BYTES);
        opts[i].help = text[i];
        if (strcmp(opts[i].name, "columns") == 0)
            opts[i].choices = all_fields;
    }
    for (size_t i = 0; i < PROF_COMMANDS; i++) {
        list_options(i, line[i], USAGE_BYTES);
        usage[i] = line[i];
        add(operands, sizeof operands, "%s%s", i ? "|" : "", prof_command_names[i]);
    }
}

void prof_check_used(const struct operands *given, enum prof_command command)
{
    for (size_t i = 0; i < ROWS; i++) {
        char users[128] = "";
        if (!given->given[i] || table[i].used_by & 1u << command)
            continue;
        add_names(users, sizeof users, table[i].used_by);
        opt_usage_error(&prof_program, "--%s goes with %s only, not with %s%s", table[i].opt.name,
                        users, prof_command_names[command],
                        command == PROF_COMPARE ? "; options of what --against runs follow \"--\""
                                                : "");
    }
}
