/* bmc-prof: options, common setup, and one function per subcommand. */
#ifndef BMC_PROF_H
#define BMC_PROF_H

#include "base/number.h"
#include "report/table.h"
#include "opt/opt.h"
#include "prof/report.h"
#include "tuned.h"

enum prof_command {
    PROF_POLICIES,
    PROF_SWEEP,
    PROF_LATENCY,
    PROF_BENCH,
    PROF_USECASES,
    PROF_MEMORY,
    PROF_INSTANCES,
    PROF_RANKS,
    PROF_ROOF,
    PROF_HEADS,
    PROF_SCALES,
    PROF_PREFIX_CACHE,
    PROF_COMPARE,
    PROF_COMMANDS /* number of subcommands */
};

struct prof_options {
    enum prof_command command;
    const char *model, *shape, *models_dir;
    size_t layers;
    int type;
    size_t context;
    const char *batch, *prompt, *gen, *depth, *cases, *beams;
    const char *memory;  /* NULL: not given */
    size_t memory_bytes; /* parsed value of `memory`; 0: not given */
    size_t held_rows;    /* the single context depth of `latency` */
    const char *kv, *attn, *isa, *precision, *profile, *columns;
    int kv_type, rows, alloc;
    bool lockstep;
    size_t repeat, warmup, every, megabytes, threads;
    struct seed seed;
    int format;
    const char *plot, *load_kv, *launcher, *ranks, *network;
    double tolerance;    /* percent */
    const char *file[2]; /* files A and B of `compare`; the folder of `prefix-cache` */
    const char *against; /* compare --against: the other build; command: arguments that both run */
    char **measure;
    size_t n_measure;
    const char *text, *output; /* `heads`, `cache-scales`: input text, output file */
    const char *experts;       /* bench: NULL: not given */
    const char *cpu_mask;      /* NULL: not given */
    int cores;                 /* 1: performance */
    bool hugepages, numa;
    size_t sink, recent;
    double sparsity;
};

extern const struct program prof_program;
extern const char *const prof_command_names[PROF_COMMANDS];

/* Field names of each subcommand's rows, separated by blanks. */
extern const char *const prof_fields[PROF_COMMANDS];

/* Length of the first name in a list NAME,NAME.. if `names` contains it; else 0. */
size_t prof_known_field(const char *list, const char *names);

/* All policies; with --lockstep, the defaults are reduced to policies that support it. */
#define PROF_ALL_KV "iterative,upfront,bmc,paged:16,reserve,segment,shift,headwise"

/* Default of --kv, also shown in its help. */
extern const char *const prof_default_kv[PROF_COMMANDS];

/* Builds the option table with its usage lines; called first. */
void prof_describe(void);

/* Exits with a usage error if an option was given that the subcommand does not use. */
void prof_check_used(const struct operands *operands, enum prof_command command);

enum { PROF_MAX_LIST = 16, PROF_FIELD_BYTES = 256 };

/* State of a run. */
struct prof {
    const struct prof_options *options;
    struct report report;
    struct model *model; /* from a file, or synthetic; NULL: not needed */
    struct contender contender[PROF_MAX_LIST];
    size_t n_contenders;
    struct tuned tuned;
    char *texts; /* owns the policy names of --kv */
    struct snapshot *snapshot;
    json_t *rows; /* the results */
    size_t own_T; /* sweep: prof_own_T(), for the chart */
    const char *own_T_from;
};

/* Maximum tokens of a sequence: the model's context; SIZE_MAX with rolling policies. */
size_t prof_longest(const struct prof *prof);

/* Sets up prof->report and the policies of --kv; opens or generates the model if `with_model`. */
int prof_open(struct prof *prof, const struct prof_options *options, bool with_model,
              struct err *err) MUST_USE;
void prof_close(struct prof *prof);

/* Parses a list such as "1,8,32", of at most PROF_MAX_LIST numbers that are at least `min`; exits
 * with a usage error if it is anything else. */
void prof_list(const char *text, const char *option, size_t min, size_t *list, size_t *n);

/* prof_list() for a single number. */
size_t prof_one(const char *text, const char *option, size_t min);

/* Prints prof->rows; an error if all of them failed. Tables show the columns of --columns, else
 * those of `columns` (separated by blanks) that differ between rows, with the common setup
 * above. */
int prof_print(const struct prof *prof, const char *columns, struct err *err) MUST_USE;

/* Called last: prints why policies could not be measured, one line per reason on stderr, except the
 * last reason, which becomes the error. */
int prof_conclude(struct err *err) MUST_USE;

/* prof_print() for rows other than prof->rows; `prof` may be NULL. */
int prof_print_rows(const struct prof *prof, const struct prof_options *options, const json_t *rows,
                    const char *columns, struct err *err) MUST_USE;

/* Exits with a usage error if --columns names a field that the subcommand lacks. Fields named after
 * policies are checked only if `prof` is given: call again once policies are known. */
void prof_check_columns(const struct prof_options *options, const struct prof *prof);

/* Appends the columns of --columns, or the default ones, separated by blanks. `prof` may be
 * NULL. */
int prof_choose_columns(const struct prof *prof, const struct prof_options *options, const json_t *rows,
                        const char *usual, struct buf *text, struct err *err) MUST_USE;

/* Lists the fields of all subcommands without duplicates, separated by '|'. */
void prof_all_fields(char *text, size_t size);

/* True if the field `key` has the same value in all rows. */
bool prof_same_in_all(const json_t *rows, const char *key);

/* Reads the input text and tokenizes it, up to the number of tokens that are measured. */
int prof_read_ids(struct prof *prof, struct ids *ids, struct err *err) MUST_USE;

/* Write the charts of --plot. */
int prof_plot_policies(const struct prof *prof, struct err *err) MUST_USE;
int prof_plot_sweep(const struct prof *prof, struct err *err) MUST_USE;
int prof_plot_latency(const struct prof *prof, const struct latency_all *all, struct err *err) MUST_USE;

/* The T (number of cache allocations) that the first policy, bmc, uses by default; *from names its
 * origin. */
size_t prof_own_T(const struct prof *prof, const char **from);

int prof_policies(const struct prof_options *options, struct err *err) MUST_USE;
int prof_sweep(const struct prof_options *options, struct err *err) MUST_USE;
int prof_latency(const struct prof_options *options, struct err *err) MUST_USE;
int prof_bench(const struct prof_options *options, struct err *err) MUST_USE;
int prof_usecases(const struct prof_options *options, struct err *err) MUST_USE;
int prof_memory(const struct prof_options *options, struct err *err) MUST_USE;
int prof_instances(const struct prof_options *options, struct err *err) MUST_USE;
int prof_ranks(const struct prof_options *options, struct err *err) MUST_USE;
int prof_roof(const struct prof_options *options, struct err *err) MUST_USE;
int prof_heads(const struct prof_options *options, struct err *err) MUST_USE;
int prof_scales(const struct prof_options *options, struct err *err) MUST_USE;
int prof_prefix_cache(const struct prof_options *options, struct err *err) MUST_USE;
int prof_compare(const struct prof_options *options, struct err *err) MUST_USE;

#endif
