/* Modules of bmc-gen and bmc-spec: options, setup, and a function per job. */
#pragma once

#include <time.h>

#include "base/number.h"
#include "cli.h"
#include "decode/pressure.h"
#include "decode/rerank.h"
#include "decode/score.h"
#include "decode/spec/spec.h"
#include "decode/step_pipe.h"
#include "kv/kv_scales.h"
#include "kv/kv_sensitivity.h"
#include "kv/offload/kv_streaming.h"
#include "opt/opt.h"
#include "ranks/ranks.h"
#include "report/table.h"
#include "serve/lines.h"
#include "serve/serve.h"
#include "text/tools/tool_answer.h"
#include "prof/roofline.h"
#include "tuned.h"

/* Defaults of options that depend on the job. */
#define JSONL_BATCH      8
#define PIPELINE_CHUNK   64  /* stages work on different chunks of a prompt at once */
#define PREFIX_MB        256 /* of --jsonl; a conversation keeps all of its entries: */
#define INTERACTIVE_MB   (1 << 24)
#define UNLIMITED_TOKENS 2048 /* for which a context without -c has room if n is -1 */

struct gen_options {
    const char *model;
    const char *prompt, *file, *prompt_ids;
    bool escape;
    struct gen_request request; /* n, ignore_eos, keep_special and logprobs */
    int64_t context;
    size_t batch, chunk, threads, threads_batch;
    const char *kv;    /* NULL: not given */
    int backend;       /* index in `backends` */
    size_t gpu_layers; /* SIZE_MAX: not given */
    int fallback;      /* 1: cpu */
    const char *attn, *isa, *precision, *profile;
    const char *cache_kld;       /* NULL: not given */
    const char *cache_type;      /* NULL: not given */
    struct cache_types kv_types; /* those of cache_type */
    const char *kv_scales;       /* file of shared scales; NULL: none */
    int rows, alloc;
    int shift;         /* 1: recompute (context shift) */
    size_t keep;       /* tokens that a context shift keeps */
    const char *heads; /* NULL: not given */
    bool mlock, hugepages, numa;
    const char *cpu_mask;     /* NULL: not given */
    int cores;                /* 1: performance */
    const char *experts;      /* NULL: not given */
    size_t beams, n_best;     /* 0: not given */
    double length_penalty;    /* NAN: not given */
    int early_stopping;       /* -1: not given */
    size_t prefix_cache_mb;   /* SIZE_MAX: not given */
    const char *prefix_cache; /* NULL: not given */
    const char *memory;       /* NULL: not given */
    size_t memory_bytes;      /* memory, parsed; 0: not given */
    struct pressure_options pressure;
    struct sampler_options sampling; /* sampling_not_given() but for those that options set */
    struct seed seed;
    struct opt_list stop, logit_bias, lora;
    const char *samplers; /* NULL: not given */
    int mirostat;         /* -1: not given, 1: version 2 */
    struct opt_list dry_breaker;
    const char *json_schema, *grammar, *regex, *choice;
    bool echo, ids, jsonl, openai, unordered, lenient, score, tokenize, detokenize, quiet;
    bool embed, rerank, normalize, no_normalize;
    int pooling;              /* -1: not given */
    const char *embed_prompt; /* NULL: not given */
    int format;               /* -1: not given */
    bool summary;
    size_t stride; /* 0: not given */
    const char *save_imatrix;
    const char *stats, *check_hash;
    bool roofline;
    const char *load_kv, *save_kv, *prompt_cache;
    const char *session, *remove_session; /* conversations that are kept under a name */
    bool list_sessions;
    const char *receipt, *receipt_key, *verify_receipt;
    bool chat, interactive;
    bool parse_special;    /* parse special tokens in chat messages */
    bool no_parse_special; /* do not parse special tokens in prompts and texts */
    const char *system, *chat_format;
    const char *template_kwargs; /* JSON object; NULL: not given */
    const char *tools;           /* path */
    bool run_tools;
    struct answer_options answer; /* budget, last_words and choice.single */
    int reasoning;                /* -1: not given */
    const char *tool_choice;      /* NULL: not given */
    bool render_chat;
    bool no_spec;
    int parallelism;      /* -1: not given */
    const char *layers;   /* number of layers of each rank */
    size_t micro_batches; /* 0: as many as there are ranks */
};

/* How ranks share the work; in the order of the option's choices. */
enum parallelism { DATA_PARALLEL, TENSOR_PARALLEL, PIPELINE_PARALLEL, EXPERT_PARALLEL };
#define PARALLELISMS "data|tensor|pipeline|expert"
const char *gen_parallelism_name(enum parallelism parallelism);

struct gen;
struct rank_counts;

/* Callbacks with which bmc-spec extends bmc-gen; NULL in bmc-gen. */
struct gen_hooks {
    /* Called when the model is open; may set gen->draft. */
    int (*model)(struct gen *gen, struct err *err);
    /* Called before the session is opened; sets gen->drafting, may change the session's options. */
    int (*session)(struct gen *gen, struct session_options *options, struct err *err);
    /* Called when the session is open: opens gen->drafter, or sets gen->drafting_off. */
    int (*opened)(struct gen *gen, struct err *err);
    /* Print additional lines of statistics, and add fields to the JSON object. */
    void (*print)(const struct gen *gen);
    int (*fields)(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                  struct err *err);
    void (*close)(struct gen *gen);
};

/* State of a run. */
struct gen {
    const struct program *program;
    const struct gen_options *options;
    struct model *model;
    bool embeds_only;          /* the model has no LM head, and needs none */
    const struct model *draft; /* NULL: none */
    struct session *session;
    struct tuned tuned;
    const char *policy_from;       /* origin: option, profile or default */
    const struct kernels *kernels; /* NULL: not selected yet, see gen_kernels() */
    const char *isa_from;          /* origin: option, BMC_ISA, profile, measured or rank 0 */
    double load_ms;
    time_t now; /* of SOURCE_DATE_EPOCH, if set */
    /* default seed of requests; a snapshot may give a request another; random with --seed -1 */
    uint64_t seed;
    struct cache_types kv_types;
    struct kv_chosen_types kv_chosen;    /* those of --cache-kld */
    struct chat_sampling model_sampling; /* defaults that the model brings for chats */
    /* True: temperature and repetition penalty are those of --chat, as model, options and snapshot have no temperature. */
    bool chat_temp;
    struct snapshot *snapshot;     /* opened for --load-kv or --prompt-cache, or NULL */
    struct gen_receipts *receipts; /* of --receipt, or NULL */
    struct kvwriter *save;         /* output of --save-kv or --prompt-cache, or NULL */
    bool warned_same_id;           /* has warned that saved sequences share an id */
    double open_kv_ms, save_ms;
    const struct gen_hooks *hooks;
    struct prefix_store *prefix_store; /* of --prefix-cache, or NULL */
    struct pressure *pressure;         /* of --kv-pressure, or NULL */
    size_t stored_every;               /* its states=, 0: not given */
    struct step_beam *beam;            /* state of --beams, or NULL */
    struct spec_options drafting;
    struct drafter *drafter;              /* NULL: nothing is drafted */
    struct spec *spec;                    /* the same */
    const char *drafting_off;             /* the reason, or NULL */
    const struct step_strategy *strategy; /* NULL: plain decoding */
    char *const *stored_breakers;         /* texts of sequence breakers in a snapshot, owned; or NULL */
    json_t *template_variables;           /* of --chat-template-kwargs, or NULL */
    json_t *tools;                        /* of --tools, or NULL */
    struct serve serve;                   /* common to all requests */
    struct kv_streaming heads;            /* list of --retrieval-heads */
    struct kv_scales kv_scales;           /* shared scales of --cache-type */
    struct score_stats score;             /* result of --score */
    uint64_t n_requests, n_failed; /* counts of --jsonl; interrupted requests are not failed ones */
    foreign_members ignored;       /* those of requests that have no effect */
    struct ranks *ranks;           /* NULL: a single process */
    enum parallelism parallelism;
    struct leader leader;   /* rank 0, unless ranks are data parallel */
    bool leads;             /* the leader is open */
    struct step_pipe *pipe; /* pipeline parallelism, or NULL */
    struct leader_stats sent;
    struct roof roof;                 /* limits of this machine; zeros: not measured */
    const char *roof_from;            /* NULL: not measured */
    const struct rank_counts *counts; /* sums over all ranks; NULL: this process only */
    json_t *turns;                    /* statistics of the turns of a conversation, or NULL */
    bool over;                        /* the job has ended, even if requests failed */
};

/* ---- options ---- */

/* A rule for options, by their names: those of `options` exclude all of `others`, or need one of them; EXCLUSIVE ones also
 * exclude each other. IGNORES: they have no use for those of `others`, which only the configuration file may set all the same.
 * An option may have a value, as kv=headwise, and a word with @ is a condition of the program. `sentence` is the error message;
 * NULL: it follows from the rest. */
struct usage_rule {
    const char *options;
    enum { EXCLUDES, EXCLUSIVE, NEEDS, IGNORES } relation;
    const char *others;
    const char *sentence;
};

struct usage_condition {
    const char *word;
    bool holds;
};

/* A command line, and the conditions that hold on it; a NULL word ends them. */
struct usage {
    const struct program *program;
    const void *options;
    const struct operands *operands;
    const struct usage_condition *conditions;
};

/* Ends the program with the message of the first rule that the given options violate. */
void usage_check(const struct usage *usage, const struct usage_rule *rules, size_t n);

struct gen_options gen_defaults(void);

/* Begins a program and parses its command line. */
void gen_begin(const struct program *program, int argc, char **argv, void *options,
               struct operands *operands);

/* Ends the program on invalid use of the options that bmc-gen and bmc-spec share. */
void gen_check_usage(const struct program *program, const struct gen_options *options,
                     const struct operands *operands);

/* Parses the options' values; free with gen_release_options(). */
void gen_finish_options(const struct program *program, struct gen_options *options);
void gen_release_options(struct gen_options *options);

/* The bytes of --memory, but at most three quarters of what control groups leave: the rest is for activations. 0: not
 * given. */
size_t gen_memory(const struct program *program, const struct gen_options *options);

/* ---- input and output ---- */

/* Appends the text of -p, -f or standard input, or of -p and standard input with a blank line between them; drops
 * a file's final newline unless `whole`. */
int gen_read_text(const struct gen_options *options, bool whole, struct buf *text,
                  struct err *err) MUST_USE;

/* Opens the input lines of -p, -f or standard input; *total_bytes is 0 if the length is unknown. */
int gen_open_lines(const struct gen *gen, struct lines *lines, size_t *total_bytes,
                   struct err *err) MUST_USE;
void gen_close_lines(struct lines *lines);

/* A job whose input and output are lines; it must not move. gen_end_lines(): `rc` is the result of the job. */
struct lines_run {
    struct gen *gen;
    struct lines in;
    size_t total_bytes; /* of the input; 0: unknown */
    struct results out;
    struct serve_io io; /* reads and writes them, and counts requests and failures */
};
int gen_begin_lines(struct gen *gen, struct lines_run *run, struct err *err) MUST_USE;
void gen_end_lines(struct lines_run *run, int rc);

/* Write to standard output. gen_put() leaves the text buffered (fflush() reports its errors);
 * gen_put_line() flushes. */
int gen_put(const struct buf *text, struct err *err) MUST_USE;
int gen_put_line(const struct buf *text, struct err *err) MUST_USE;

/* Sets why a request ended, which is a failure of the program, not of an option's value. Returns -1. */
int gen_request_failure(const struct gen_result *result, struct err *err) MUST_USE;

/* A token's text as a JSON string. In tables it is quoted once more, to show white space. */
json_t *gen_piece(const struct gen *gen, uint32_t id, struct err *err);

/* Print hints on stderr unless --quiet. gen_hint_terminal(): `what`, such as "the prompt", is read
 * from a terminal. gen_hint_batch(): -b looks like a number of tokens but counts sequences, of
 * which the run has at most `most` (0: unknown). gen_hint_threads(): more threads than cores.
 * gen_hint_greedy(): options of sampling are given, but the temperature is 0.
 * gen_hint_window(): a snapshot of a rolling cache is continued in another cache, or the context cuts numbers of --kv. */
void gen_hint_terminal(const struct gen *gen, const char *what);
void gen_hint_batch(const struct gen *gen, size_t most);
void gen_hint_threads(const struct gen *gen);
void gen_hint_greedy(const struct gen *gen);
void gen_hint_window(const struct gen *gen);

/* True if nothing but errors and results is printed: with --quiet, and by ranks other than the first. */
bool gen_is_silent(const struct gen *gen);

/* Prints the sampling settings of the run where some are defaults of the model or of chats. */
void gen_print_sampling(const struct gen *gen);

/* Says which members of requests or lines have no effect, if there were any, also with --quiet. */
void gen_note_ignored(const struct gen *gen, foreign_members ignored);

/* Reads the prompt: the tokens of --load-kv, then --prompt-ids or the prompt's text. Sets `prompt`
 * to all tokens, `text` to their text, and `request` to a request for them. */
int gen_read_prompt(const struct gen *gen, struct ids *prompt, struct buf *text,
                    struct gen_request *request, struct err *err) MUST_USE;

/* An answer as it is printed. With --tools or --reasoning it is divided: reasoning and text, each complete call as a line of JSON. {0}:
 * nothing to release. */
struct gen_answer {
    bool divides;
    struct answer_plan plan; /* limits of reasoning, constraints on calls */
    struct tool_answer parts;
    size_t reasoning, content, calls; /* printed of the parts */
    bool line_start, after_call;
};

/* Begins the answer to a prompt that ends with this text; a former one is released. */
int gen_answer_begin(struct gen *gen, struct gen_answer *answer, struct gen_request *request,
                     const struct buf *prompt, struct err *err) MUST_USE;
/* Append what is to be printed: of the next text, and at the end. */
int gen_answer_add(struct gen_answer *answer, const char *text, size_t len, struct buf *out,
                   struct err *err) MUST_USE;
int gen_answer_end(struct gen_answer *answer, const struct gen_result *result, struct buf *out,
                   struct err *err) MUST_USE;
void gen_answer_release(struct gen_answer *answer);

/* Prints statistics to stderr unless --quiet, and writes --stats FILE; fails if the logits' hash is not that of
 * --check-hash. */
int gen_report(struct gen *gen, const struct gen_stats *stats, struct err *err) MUST_USE;

/* The machine's limits, of --roofline or the tuned profile; statistics of passes beside them: lines, and fields of
 * --stats. */
int gen_roofline_find(struct gen *gen, struct err *err) MUST_USE;
void gen_roofline_print(const struct gen *gen, const struct gen_stats *stats);
int gen_roofline_fields(json_t *object, const struct gen *gen, const struct gen_stats *stats,
                        struct err *err) MUST_USE;

/* ---- the session of a run that gen_main() has opened ---- */

/* Copies a model, if --hugepages or --numa is given. */
int gen_use_pages(const struct gen *gen, const struct model *model, struct err *err) MUST_USE;

/* Says a sentence on standard error; `gen` is a struct gen. */
void gen_say_note(void *gen, const char *sentence);

/* The backend of the run, made ready. */
const struct backend *gen_backend(const struct gen *gen, struct err *err) MUST_USE;

/* The kernel set of the run; the first call selects it. */
const struct kernels *gen_kernels(struct gen *gen, struct err *err) MUST_USE;

/* The precision of --precision, or the default with these kernels, of an open model and its cache types. */
int gen_precision(const struct gen *gen, const struct kernels *kernels, enum precision *precision,
                  struct err *err) MUST_USE;

/* ---- speculative decoding ---- */

/* Suffix decoding, which needs no draft model, unless the run excludes it or has hooks of its own: gen_spec_session()
 * sizes forward passes, gen_spec_open() sets gen->strategy, when the session is open. */
int gen_spec_session(struct gen *gen, struct session_options *options, struct err *err) MUST_USE;
int gen_spec_open(struct gen *gen, struct err *err) MUST_USE;
void gen_spec_close(struct gen *gen);

/* Statistics of drafts: a line, and fields of --stats. */
void gen_spec_print(const struct gen *gen);
int gen_spec_fields(json_t *object, const struct gen *gen, struct err *err) MUST_USE;

/* Sets all session options except sizes. */
int gen_session_options(struct gen *gen, struct session_options *options, struct err *err) MUST_USE;

enum { GEN_AS_FIT = 0 }; /* batch size: as many sequences as --memory admits */

/* Opens the session for `batch` prompts of at most `prompt_tokens`, and the decoding strategy. */
int gen_open_session(struct gen *gen, size_t batch, size_t prompt_tokens, struct err *err) MUST_USE;

/* Says that scores of a language model, which nothing but its name tells to be a reranker, may mean nothing. */
void gen_warn_of_reranker(const struct gen *gen, const struct reranker *reranker);

/* Prompt caching: lets the request reuse KV entries of --prompt-cache; warns if none match. */
void gen_reuse(const struct gen *gen, struct gen_request *request);

/* Save sequences to --save-kv or --prompt-cache; no effect without those options. gen_begin_save()
 * is called once the session is open, gen_save() as each sequence ends (`id` is JSON or NULL, `arg`
 * the struct gen). */
int gen_begin_save(struct gen *gen, struct err *err) MUST_USE;
int gen_save(void *arg, size_t seq, const struct gen_result *result, const char *id,
             struct err *err) MUST_USE;
int gen_end_save(struct gen *gen, struct err *err) MUST_USE;

/* The receipts of --receipt; no effect without it. gen_begin_receipts() is called by gen_open_session(),
 * gen_end_receipts() when all answers have ended. */
int gen_begin_receipts(struct gen *gen, struct err *err) MUST_USE;
int gen_end_receipts(struct gen *gen, struct err *err) MUST_USE;
void gen_close_receipts(struct gen *gen);

/* With --verify-receipt, sets the options that the first receipt names; ends the program if it cannot be read. */
void gen_adopt_receipt(const struct program *program, struct gen_options *options);

/* ---- jobs ---- */

int gen_text(struct gen *gen, struct err *err) MUST_USE;
int gen_render_chat(struct gen *gen, struct err *err) MUST_USE;
int gen_jsonl(struct gen *gen, struct err *err) MUST_USE;
/* -1 if lines failed; `what`: "requests". */
int gen_verdict(struct gen *gen, const char *what, struct err *err) MUST_USE;
int gen_score(struct gen *gen, struct err *err) MUST_USE;
int gen_text_lines(struct gen *gen, struct err *err) MUST_USE; /* --score --jsonl, --embed */
int gen_tokenize(struct gen *gen, struct err *err) MUST_USE;
int gen_detokenize(struct gen *gen, struct err *err) MUST_USE;
int gen_verify_receipts(struct gen *gen, struct err *err) MUST_USE;

/* The rest of main() after the options have been parsed: opens a run, does `job` unless this rank replicates rank 0's session,
 * closes it, and returns the exit status. */
int gen_main(struct gen *gen, struct gen_options *options,
             int (*job)(struct gen *gen, struct err *err));
