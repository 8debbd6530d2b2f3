/* One option table per program: the source of parsing, --help, the man page's OPTIONS and the shell
 * completions. A test fails if any of them differ.
 *
 * Files, lowest first: opt_table (access, choices, aliases); opt_hint (unknown options); optdoc (everything that is
 * printed); opt_config (the configuration file); opt_parse. */
#pragma once

#include "base/err.h"

enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_TEXT,   /* const char * */
    OPT_LIST,   /* struct opt_list: repeatable */
    OPT_SIZE,   /* size_t in [min, max] */
    OPT_INT,    /* int64_t in [min, max] */
    OPT_TOKENS, /* a number of tokens, which may have a suffix: "8K" */
    OPT_TOKENS_INT,
    OPT_SEED,   /* struct seed; min is -1 if one may be drawn */
    OPT_REAL,   /* double in [min, max] */
    OPT_CHOICE, /* int: index into `choices`, separated by '|' */
    OPT_HEADING /* not an option: starts a group in --help and the man page */
};

/* Markers in `choices`: the values come from a table of the library at run time. */
#define CHOICES_KV        "@kv"        /* lib/kv/kv_policies.c */
#define CHOICES_ISA       "@isa"       /* lib/kernel/kernels.c */
#define CHOICES_BACKEND   "@backend"   /* lib/backend/backends.c */
#define CHOICES_PRECISION "@precision" /* lib/kernel/gemm.c */
#define CHOICES_ATTN      "@attn"      /* lib/attn/attn.c */
#define CHOICES_TYPES     "@types"     /* lib/model/convert/tensor_types.c: types of random weights */
#define CHOICES_IMPORTS   "@imports"   /* lib/model/convert/tensor_types.c */
#define CHOICES_CACHES    "@caches"    /* lib/quant/cache_types.c */
#define CHOICES_SHAPES    "@shapes"    /* names of files, which completions ask the program for */

#define OPT_MANY 1e9 /* numbers with this maximum or more are "unlimited" in messages */
/* How a run uses the file that an option names; opt/opt_files.h checks outputs before anything is
 * computed. Rows of option tables write `true` for an input. */
enum opt_file {
    OPT_NO_FILE = false,
    OPT_READS = true,
    OPT_WRITES_STATS,
    OPT_WRITES_CHART,
    OPT_WRITES_HEADS,
    OPT_WRITES_RANGES,
    OPT_WRITES_SENSITIVITY,
    OPT_WRITES_LOGITS,
    OPT_WRITES_RECEIPT,
    OPT_WRITES_PRESSURE,
    OPT_UPDATES, /* these may also replace an input of their kind, as a snapshot that is resumed */
    OPT_WRITES_MODEL = OPT_UPDATES,
    OPT_WRITES_SNAPSHOT,
    OPT_WRITES_PROFILE,
    OPT_WRITES_ACCEPTANCE,
    OPT_WRITES_IMATRIX,
    OPT_FILE_ROLES
};

struct opt_list {
    char **text;
    size_t n, cap;
};

struct opt {
    enum opt_kind kind;
    const char *name;    /* long name without dashes */
    const char *letters; /* short name without its dash, such as "m" or "np"; NULL: none */
    const char *arg;     /* placeholder of the argument; NULL for flags */
    const char *help;    /* one phrase, no capital, no full stop; "{}" becomes the choices */
    size_t at;           /* offset of the value in the program's options struct */
    double min, max;     /* limits of a numeric value */
    /* Values that OPT_CHOICE accepts, separated by '|'. For other kinds only shell completion uses
     * them; if arg is LIST, for every item of a comma-separated list. */
    const char *choices;
    enum opt_file file;
};

struct program {
    const char *name;
    const char *summary;      /* one line */
    const char *const *usage; /* usage lines without the program's name; ends in NULL */
    const struct opt *opts;
    size_t n_opts;
    const char *operands; /* choices of the first operand, separated by '|'; NULL: a file */
    const unsigned
        /* [n_opts], a bit per operand choice whose subcommand uses the option; NULL: all do */
        *used_by;
};

enum { OPT_MAX = 192 }; /* maximum number of options of a program */

/* Operands of the command line, and which options were given. */
struct operands {
    char **text;
    size_t n;
    bool given[OPT_MAX], configured[OPT_MAX]; /* configured: by the configuration file only */
};

/* Parses the command line into `options`. Handles --help and --version; invalid usage prints one
 * line and exits with 2. */
void opt_parse(const struct program *program, int argc, char **argv, void *options,
               struct operands *operands);

/* Reads the value of a numeric option into *at; false: it is malformed or out of range, of which
 * opt_number_sentence() tells: "needs a number from 0 to 1; found "2"". */
bool opt_store_number(const struct opt *opt, const char *text, void *at);
void opt_number_sentence(const struct opt *opt, const char *text, char *sentence, size_t size);

/* All options: the program's own, followed by those common to all programs. */
size_t opt_count(const struct program *program);
const struct opt *opt_nth(const struct program *program, size_t i);

/* True if the subcommand that is the n-th choice of the first operand uses option i. */
bool opt_used_by(const struct program *program, size_t i, unsigned operand);

/* Finds a program's own option by long or short name without dashes, or by an alias; NULL: none. */
const struct opt *opt_find(const struct program *program, const char *name, size_t len, bool is_long);

/* opt_find() without aliases. */
const struct opt *opt_find_exact(const struct program *program, const char *name, size_t len,
                                 bool is_long);

static inline bool opt_counts_tokens(const struct opt *opt)
{
    return opt->kind == OPT_TOKENS || opt->kind == OPT_TOKENS_INT;
}

/* Limits of a list of whole numbers such as "1,8,32" or "4K,128K". */
struct opt_sizes {
    const char *option; /* option's name with dashes, for messages */
    size_t min, max;    /* limits of each number */
    size_t max_entries;
};
void opt_sizes(const struct program *program, const struct opt_sizes *sizes, const char *text,
               size_t *list, size_t *n);

/* Exits with a usage error if a comma-separated list has an empty entry. */
void opt_no_empty_entry(const struct program *program, const char *option, const char *list);

/* Parses a size of at least one byte, such as "4G", "1.5G", "512M", "64K" or "4096"; otherwise
 * exits with a usage error. */
size_t opt_bytes(const struct program *program, const char *option, const char *text);

/* cache_types_parse() of the value of an option, as "--cache-type"; NULL: f32. Exits with a usage error, also where shared scales are
 * given, but `scales` is NULL. */
struct cache_types opt_cache_types(const struct program *program, const char *option, const char *text,
                                   const char **scales);

/* Prints one line on stderr and exits with 2. */
void opt_usage_error(const struct program *program, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

/* Adds a note, which is borrowed, to the end of all further usage errors. */
void opt_add_to_usage_errors(const char *note);

/* Prints text with roff characters escaped and with ASCII dashes, which readers can copy. */
void opt_put_roff(const char *text, FILE *out);

/* ---- choices of options, from tables of the library or spelled in the option table ---- */

/* The option's choices, separated by '|'; NULL: it has none. */
const char *opt_choices(const struct opt *opt);

/* The option's help text, with "{}" replaced by its choices: "a, b or c". */
void opt_help_text(const struct opt *opt, char *text, size_t size);

/* The index of `text` in the choices, in any case; SIZE_MAX: it is none of them. */
size_t opt_choice_index(const char *choices, const char *text);

/* Copies the choice that is most similar to `text` to `near`; false: none is. */
bool opt_near_choice(const char *choices, const char *text, char *near, size_t size);

/* The value of --type that `text` is or is close to, NULL: there is none. */
const char *opt_find_type(const struct program *program, const char *text);

/* Exits with a usage error if the library has no policy, attention backend, kernel set or precision
 * of that name. NULL: option not given. */
void opt_names_check(const struct program *program, const char *kv, const char *attn, const char *isa,
                     const char *precision);

/* Exits with a usage error if the command line chooses kernels of the CPU, but another backend; a default of the configuration
 * file or the environment may. */
void opt_device_check(const struct program *program, const struct operands *operands, int backend);

/* Checks that --type (negative: not given) goes with --shape, whose random weights have that type. */
void opt_type_check(const struct program *program, int type, const char *shape);

/* Checks the values of --cpu-mask (NULL: not given) and --cores (1: performance). opt_cores_use() lets the
 * calling thread, and those that it creates later, run on these cores only. */
void opt_cores_check(const struct program *program, const char *mask, int cores);
int opt_cores_use(const char *mask, int cores, struct err *err) MUST_USE;

/* Prints the names of installed shapes, one per line. */
void opt_print_shapes(FILE *out);

/* ---- option names and values of earlier versions, names that the other programs have for an option, and type names
 * of other programs: accepted, but not listed by --help and completions ---- */

/* The n-th alias of any of the program's options: sets *old and *name, with dashes. False: no more. */
bool opt_alias_nth(const struct program *program, size_t n, const char **old, const char **name);

/* Translates an alias of a value into an entry of the option's choices; else returns `text`. */
const char *opt_alias_value(const struct opt *opt, const char *text);

/* The end of the error message for a value that users may expect but that does not exist, or NULL. */
const char *opt_alias_missing(const struct opt *opt, const char *text);
