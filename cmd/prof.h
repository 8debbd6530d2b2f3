/* The parts of bmc-prof: options, and one function per subcommand. */
#ifndef BMC_PROF_H
#define BMC_PROF_H

#include "base/table.h"
#include "opt.h"
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
    PROF_COMPARE,
    PROF_COMMANDS /* how many */
};

struct prof_options {
    enum prof_command command;
    const char *model, *shape, *models_dir;
    size_t layers;
    int type;
    size_t context;
    const char *batch, *prompt, *gen, *depth, *cases, *beams;
    const char *memory;  /* NULL: not given */
    size_t memory_bytes; /* that it says; 0: not given */
    size_t held_rows;    /* that depth says to latency */
    const char *kv, *attn, *isa, *precision, *profile, *columns;
    int kv_type, rows, alloc;
    bool lockstep;
    size_t repeat, warmup, every, megabytes, threads;
    int64_t seed;
    int format;
    const char *plot, *load_kv, *launcher, *ranks, *network;
    double tolerance;    /* percent */
    const char *file[2]; /* that compare takes */
    const char *against; /* or the other build, and what it and this one measure */
    char **measure;
    size_t n_measure;
    const char *text, *output; /* of heads */
    size_t sink, recent;
    double sparsity;
};

extern const struct program prof_program;
extern const char *const prof_command_names[PROF_COMMANDS];

/* The fields of the rows of a subcommand, separated by blanks. */
extern const char *const prof_fields[PROF_COMMANDS];

/* The length of the field that a list (NAME,NAME..) begins with, if it is one of `names`; else 0. */
size_t prof_known_field(const char *list, const char *names);

/* All policies; with --lockstep those of any default that can grow so. */
#define PROF_ALL_KV "iterative,upfront,bmc,paged:16,reserve,segment,shift,headwise"

/* What --kv is where it is not given. */
const char *prof_default_kv(enum prof_command command);

/* First thing: makes the option table and the lines of usage, with who uses what. */
void prof_describe(void);

/* Refuses, as wrong usage, options that were given and that the subcommand does not use. */
void prof_check_used(const struct operands *operands, enum prof_command command);

enum { PROF_MAX_LIST = 16, PROF_FIELD_BYTES = 256 };

/* What a subcommand works on. */
struct prof {
    const struct prof_options *options;
    struct report report;
    struct model *model; /* a file, or synthetic; NULL for subcommands that need none */
    struct contender contender[PROF_MAX_LIST];
    size_t n_contenders;
    struct tuned tuned;
    char *texts; /* the contenders' texts */
    struct snapshot *snapshot;
    size_t own_T; /* sweep: of prof_own_T(), for the picture */
    const char *own_T_from;
};

/* Tokens that a sequence of a model file can have under some contender: its context; any number where a policy's window
 * slides on. */
size_t prof_longest(const struct prof *prof);

/* Fills the report and the contenders, those of --kv or else of the subcommand's default; opens or makes the model when
 * `with_model`. */
int prof_open(struct prof *prof, const struct prof_options *options, bool with_model,
              struct err *err) MUST_USE;
void prof_close(struct prof *prof);

/* "1,8,32" -> numbers; at most PROF_MAX_LIST. Another text is wrong usage. */
void prof_list(const char *text, const char *option, size_t *list, size_t *n);

/* The same of a list that holds one number. */
size_t prof_one(const char *text, const char *option, size_t min);

/* The same of --batch, whose numbers are at least 1. */
void prof_batches(const struct prof_options *options, size_t *list, size_t *n);

/* Prints rows, unless all are errors, which is one. Tables show those of --columns, else of `columns` (separated by blanks)
 * those that rows differ in, and the setup once above them. */
int prof_print(const struct prof *prof, const json_t *rows, const char *columns,
               struct err *err) MUST_USE;

/* Last thing: says which contenders could not be measured, if any: one line on standard error for each reason, the last
 * of which is the error. */
int prof_conclude(struct err *err) MUST_USE;

/* The same for rows of any origin; `prof` may be NULL. */
int prof_print_rows(const struct prof *prof, const struct prof_options *options, const json_t *rows,
                    const char *columns, struct err *err) MUST_USE;

/* Refuses, as wrong usage, --columns with a name that is no field of the subcommand's rows. Without `prof` names that
 * stand for policies pass: to be called again once those are known. */
void prof_check_columns(const struct prof_options *options, const struct prof *prof);

/* Appends the columns of --columns, with blanks between them, or the usual ones. `prof` may be NULL. */
int prof_choose_columns(const struct prof *prof, const struct prof_options *options, const json_t *rows,
                        const char *usual, struct buf *text, struct err *err) MUST_USE;

/* The fields of all subcommands, each once, with bars between them. */
void prof_all_fields(char *text, size_t size);

/* Every row has the first one's value of this member. */
bool prof_same_in_all(const json_t *rows, const char *key);

/* Pictures of the rows, as --plot asks for them. */
int prof_plot_policies(const struct prof *prof, const json_t *rows, struct err *err) MUST_USE;
int prof_plot_sweep(const struct prof *prof, const json_t *rows, struct err *err) MUST_USE;
int prof_plot_latency(const struct prof *prof, const json_t *rows, const struct latency_all *all,
                      struct err *err) MUST_USE;

/* The T that the first contender, bmc, takes when nobody gives it one, and where it comes from. */
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
int prof_compare(const struct prof_options *options, struct err *err) MUST_USE;

#endif
