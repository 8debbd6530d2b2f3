/* bmc-prof: options, the subcommands, and what they share. */
#pragma once

#include "base/number.h"
#include "kv/kv_sensitivity.h"
#include "opt/opt.h"
#include "prof/prof_fields.h"
#include "report/table.h"
#include "text/tokenizer/tokenizer.h"
#include "tuned.h"

struct prof_options {
    enum prof_command command;
    const char *model, *shape;
    size_t layers;
    int type, backend;
    size_t context;
    const char *batch, *prompt, *gen, *depth, *beams;
    const char *memory;  /* NULL: not given */
    size_t memory_bytes; /* parsed value of `memory`; 0: not given */
    const char *kv, *attn, *isa, *precision, *profile, *columns, *cache_type, *cache_kld;
    int rows, alloc;
    bool lockstep;
    size_t repeat, warmup, every, megabytes, threads;
    struct seed seed;
    int format;
    const char *plot, *load_kv, *ranks, *network;
    double tolerance;    /* percent */
    const char *file[2]; /* files A and B of `compare`; the folder of `prefix-cache` */
    const char *against; /* compare --against: the other build; command: arguments that both run */
    char **measure;
    size_t n_measure;
    const char *text, *output; /* `heads`, `cache-scales`, `quality`: input text, output file */
    const char *reference, *reference_precision, *reference_cache_type; /* quality */
    struct opt_list lora;
    const char *heads; /* NULL: not given */
    const char *save_logits;
    size_t save_top;      /* 0: all */
    const char *experts;  /* bench: NULL: not given */
    const char *cpu_mask; /* NULL: not given */
    int cores;            /* 1: performance */
    bool hugepages, numa;
    size_t sink, recent;
    double sparsity;
};

enum { PROF_MAX_LIST = 16, PROF_FIELD_BYTES = 256 };

/* State of a run. */
struct prof {
    struct prof_options options;
    const struct prof_job *job;
    struct report report;
    struct model *model; /* from a file, or synthetic; NULL: not needed */
    struct contender contender[PROF_MAX_LIST + MEMORY_EQUATIONS];
    size_t n_contenders;
    struct tuned tuned;
    const char *kv_scales; /* quality: file of the shared scales of --cache-type; NULL: none */
    char *texts;           /* owns the policy names of --kv */
    struct snapshot *snapshot;
    struct kv_chosen_types kv_chosen; /* those of --cache-kld */
    struct test *test;                /* what to measure, under every policy */
    size_t n_tests, tests_cap;
    struct measurements all;
    json_t *rows; /* the results */
};

/* A subcommand. */
struct prof_job {
    size_t repeat, warmup; /* defaults of the options */
    bool lists;            /* accepts a list of batch sizes */
    bool bare;             /* needs neither model nor policies: prof_open() is not called */
    bool weights;          /* needs a model with weights */
    /* Lists the tests, before the model is opened: usage errors come first; NULL: one test of a batch */
    int (*list)(struct prof *prof, struct err *err);
    int (*measure)(struct prof *prof, struct err *err); /* fills prof->rows */
    int (*plot)(const struct prof *prof, struct err *err);
    int (*conclude)(struct prof *prof,
                    struct err *err); /* called after the rows are printed; may be NULL */
};

extern const struct prof_job prof_jobs[PROF_COMMANDS];
extern const struct program prof_program;

/* All policies; with --lockstep, the defaults are reduced to policies that support it. */
#define PROF_ALL_KV "iterative,upfront,bmc,paged:16,reserve,segment,shift,headwise"

/* Default of --kv, also shown in its help. */
extern const char *const prof_default_kv[PROF_COMMANDS];

/* Builds the option table with its usage lines; called first. */
void prof_describe(void);

/* Exits with a usage error if an option was given that the subcommand does not use. */
void prof_check_used(const struct operands *operands, enum prof_command command);

/* ---- running ---- */

/* Sets up prof->report and the policies of --kv; opens or generates the model. */
int prof_open(struct prof *prof, struct err *err) MUST_USE;
void prof_close(struct prof *prof);

/* Maximum tokens of a sequence: the model's context; SIZE_MAX with rolling policies. */
size_t prof_longest(const struct prof *prof);

/* The most tokens of a sequence in any test. */
size_t prof_longest_test(const struct prof *prof);

/* Parses a list such as "1,8,32", of at most PROF_MAX_LIST numbers; exits with a usage error if it is anything else. */
void prof_list(const char *text, const char *option, size_t min, size_t max, size_t *list, size_t *n);

/* prof_list() for a single number. */
size_t prof_one(const char *text, const char *option, size_t min);

/* Prints prof->rows; an error if all of them failed. Tables show the columns of --columns, else the main ones, with the
 * common setup above. */
int prof_print(const struct prof *prof, struct err *err) MUST_USE;

/* Exits with a usage error if --columns names a field that the subcommand lacks. Fields named after policies are
 * checked only once those are known. */
void prof_check_columns(const struct prof *prof);

/* Prints why measurements failed, one line per reason on stderr, except the last reason, which becomes the error. */
int prof_conclude(const struct prof *prof, struct err *err) MUST_USE;

/* The T (number of cache allocations) that the policy bmc uses by default; *from names its origin. */
size_t prof_own_T(const struct prof *prof, const char **from);

/* Exits with a usage error on subcommands and options that compare --against cannot run. */
void against_check_usage(const struct prof_options *options);

/* Reads the input text and tokenizes it. The caller releases *ids, after an error, too. */
int prof_read_text(const struct prof *prof, struct ids *ids, struct err *err) MUST_USE;

/* Adds a row of one record, with the settings of rows of the subcommand. */
int prof_add_record(const struct prof *prof, const void *record, struct err *err) MUST_USE;

/* Parts of prof_jobs. */
int prof_measure_quality(struct prof *prof, struct err *err) MUST_USE;
int prof_measure_compare(struct prof *prof, struct err *err) MUST_USE;
int prof_conclude_compare(struct prof *prof, struct err *err) MUST_USE;
int prof_plot_policies(const struct prof *prof, struct err *err) MUST_USE;
int prof_plot_sweep(const struct prof *prof, struct err *err) MUST_USE;
int prof_plot_quality(const struct prof *prof, struct err *err) MUST_USE;
int prof_plot_latency(const struct prof *prof, struct err *err) MUST_USE;
