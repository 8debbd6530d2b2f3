/* One table of options per program: the source of parsing, --help, the man page's OPTIONS and the shell
 * completions. A test fails when any of them differ.
 *
 * The files, the lowest first: opt_table, opt_choices, opt_roff; opt_hint, opt_complete; optdoc (what is printed);
 * opt_parse. */
#ifndef BMC_OPT_H
#define BMC_OPT_H

#include <stdio.h>

#include "base/base.h"

enum opt_kind {
    OPT_FLAG,   /* bool */
    OPT_TEXT,   /* const char * */
    OPT_LIST,   /* struct opt_list: may be given again */
    OPT_SIZE,   /* size_t in [min, max] */
    OPT_INT,    /* int64_t in [min, max] */
    OPT_TOKENS, /* a size of tokens or rows, which "8K" says, too */
    OPT_TOKENS_INT,
    OPT_REAL,   /* double in [min, max] */
    OPT_CHOICE, /* int: index into `choices`, separated by '|' */
    OPT_HEADING /* no option: begins a group in --help and in the man page */
};

/* In place of the spelled values of struct opt: they are read from the table at run time. */
#define CHOICES_KV        "@kv"        /* lib/kv/kv_policies.c */
#define CHOICES_ISA       "@isa"       /* lib/kernel/kernels.c */
#define CHOICES_PRECISION "@precision" /* lib/kernel/gemm.c */
#define CHOICES_ATTN      "@attn"      /* lib/attn/attn.c */
#define CHOICES_TYPES     "@types"     /* lib/base/dtype.c: those that weights can be made in */
#define CHOICES_CACHES    "@caches"    /* lib/base/cache_types.c */
#define CHOICES_SHAPES    "@shapes"    /* files: not here, completions ask the program for them */

#define OPT_MANY 1e9 /* an upper bound of numbers from here on is none that a user meets */
/* What a run does to the file that an option names: the source of files.h, of which every output is checked before
 * anything is computed, and of completion. `true` is an input, as most are. */
enum opt_file {
    OPT_NO_FILE = false,
    OPT_READS = true,
    OPT_WRITES, /* statistics, pictures: text */
    OPT_WRITES_MODEL,
    OPT_WRITES_SNAPSHOT,
    OPT_WRITES_PROFILE,
    OPT_WRITES_ACCEPTANCE,
    OPT_WRITES_IMPORTANCE,
    OPT_FILE_ROLES
};

struct opt_list {
    char **text;
    size_t n, cap;
};

struct opt {
    enum opt_kind kind;
    const char *name;    /* long name, without dashes */
    const char *letters; /* short name without the dash, "m" or "tb"; NULL: none */
    const char *arg;     /* name of the argument; NULL for flags */
    const char *help;    /* one sentence, no capital, no full stop; "{}" stands for the choices */
    size_t at;           /* offset in the program's options */
    double min, max;     /* of numbers */
    /* Of OPT_CHOICE; for completion also of other kinds, lists of them where arg is LIST. */
    const char *choices;
    enum opt_file file;
};

struct program {
    const char *name;
    const char *summary;      /* one line */
    const char *const *usage; /* lines after the name, ended by NULL */
    const struct opt *opts;
    size_t n_opts;
    const char *operands; /* choices of the first operand; NULL: a file, as the others are */
    const unsigned
        *used_by; /* of each option, a bit for each of these choices that takes it; NULL: all do */
};

enum { OPT_MAX = 128 }; /* options of a program */

/* What is left after the options, and which of the table's options were there. */
struct operands {
    char **text;
    size_t n;
    bool given[OPT_MAX];
};

/* Parses the command line into `options`. --help and --version are answered here; wrong usage prints
 * one line and exits 2. */
void opt_parse(const struct program *program, int argc, char **argv, void *options,
               struct operands *operands);

/* The program's options, then those that every program has. */
size_t opt_count(const struct program *program);
const struct opt *opt_nth(const struct program *program, size_t i);

/* The n-th choice of the first operand takes that option. */
bool opt_used_by(const struct program *program, size_t i, unsigned operand);

/* The program's own option of that long or short name, without dashes; NULL when there is none. */
const struct opt *opt_find(const struct program *program, const char *name, size_t len, bool is_long);

static inline bool opt_counts_tokens(const struct opt *opt)
{
    return opt->kind == OPT_TOKENS || opt->kind == OPT_TOKENS_INT;
}

/* A list of whole numbers, as "1,8,32" or "4K,128K", that an option has as its text. `most` of them fit; another text is wrong
 * usage. */
struct opt_sizes {
    const char *option; /* with its dashes */
    size_t min, max;    /* of each number */
    size_t most;
};
void opt_sizes(const struct program *program, const struct opt_sizes *what, const char *text,
               size_t *list, size_t *n);

/* An option's list with nothing before, between or after its commas is wrong usage. */
void opt_no_empty_entry(const struct program *program, const char *option, const char *list);

/* A size as "4G", "1.5G", "512M", "64K" or a number of bytes; another text, and one below 1, is wrong usage. */
size_t opt_bytes(const struct program *program, const char *option, const char *text);

/* One line on stderr, and exit 2. */
void opt_usage_error(const struct program *program, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));

#endif
