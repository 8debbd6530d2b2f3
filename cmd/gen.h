/* The parts of bmc-gen and bmc-spec: options, and one function per job. */
#ifndef BMC_GEN_H
#define BMC_GEN_H

#include "base/table.h"
#include "decode/generate.h"
#include "opt.h"

struct gen_options {
    const char *model;
    const char *prompt, *file, *prompt_ids;
    bool escape;
    int64_t n, context;
    size_t batch, chunk, threads, threads_batch;
    const char *kv, *attn, *isa, *precision;
    int kv_type, rows, alloc;
    bool mlock;
    struct sampler_options sampling;
    int64_t repeat_last_n;
    int64_t seed;
    struct opt_list stop;
    bool ignore_eos;
    bool echo, ids, jsonl, unordered, score, tokenize, detokenize, quiet;
    size_t logprobs;
    int format; /* -1 until it is given */
    const char *stats;
};

struct gen;

/* What bmc-spec adds; NULL in bmc-gen. */
struct gen_hooks {
    /* Before the session is opened: more rows, another growth. */
    int (*session)(struct gen *gen, struct session_options *options, struct err *err);
    /* After: gen->spec may be set. */
    int (*opened)(struct gen *gen, struct err *err);
    /* More lines of statistics for people, and more fields. */
    void (*print)(const struct gen *gen);
    int (*fields)(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                  struct err *err);
};

/* What all jobs work on. */
struct gen {
    const struct gen_options *options;
    struct model *model;
    struct session session;
    const struct gen_hooks *hooks;
    double load_ms;
    struct spec *spec; /* bmc-spec: what proposes and verifies; NULL in bmc-gen */
    uint64_t seed;     /* the one in use: --seed -1 draws it */
};

/* The prompt text: -p, -f or standard input; one trailing newline of a file is dropped unless `whole`.
 */
int gen_read_text(const struct gen_options *options, bool whole, struct buf *text,
                  struct err *err) MUST_USE;

/* Ids from blank-separated numbers. */
int gen_parse_ids(const char *text, struct ids *ids, struct err *err) MUST_USE;

/* Opens the session for `tokens` of prompt and what is to follow. */
int gen_open_session(struct gen *gen, size_t batch, size_t prompt_tokens, struct err *err) MUST_USE;

/* Options before parsing, what all programs refuse, and what is left to do with them. */
struct gen_options gen_defaults(void);
void gen_check_usage(const struct program *program, const struct gen_options *options,
                     const struct operands *operands);
void gen_finish_options(struct gen_options *options);

int gen_choose_seed(struct gen *gen, struct err *err) MUST_USE;
int gen_open_model(struct gen *gen, struct err *err) MUST_USE;
void gen_close(struct gen *gen);

/* The jobs. */
int gen_text(struct gen *gen, struct err *err) MUST_USE;
int gen_jsonl(struct gen *gen, struct err *err) MUST_USE;
int gen_score(struct gen *gen, struct err *err) MUST_USE;
int gen_tokenize(struct gen *gen, struct err *err) MUST_USE;
int gen_detokenize(struct gen *gen, struct err *err) MUST_USE;

/* Statistics of a run: for people on stderr unless --quiet, as JSON to --stats FILE. */
int gen_report(const struct gen *gen, const struct gen_stats *stats, struct err *err) MUST_USE;

/* Fails early when --stats FILE could not be written. */
int gen_check_stats(const struct gen_options *options, struct err *err) MUST_USE;

/* Request options that all lines share. */
struct gen_request gen_request_of(const struct gen *gen);

#endif
