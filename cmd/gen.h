/* The parts of bmc-gen and bmc-spec: options, and one function per job. */
#ifndef BMC_GEN_H
#define BMC_GEN_H

#include "base/ranks.h"
#include "base/table.h"
#include "decode/generate.h"
#include "decode/score.h"
#include "decode/step_pipe.h"
#include "opt.h"
#include "tuned.h"

struct gen_options {
    const char *model;
    const char *prompt, *file, *prompt_ids;
    bool escape;
    int64_t n, context;
    size_t batch, chunk, threads, threads_batch;
    const char *kv; /* NULL: not given */
    const char *attn, *isa, *precision, *profile;
    int kv_type, rows, alloc;
    int shift;         /* 1: recompute */
    size_t keep;       /* tokens */
    const char *heads; /* NULL: not given */
    bool mlock;
    size_t beams, n_best;  /* 0: not given */
    double length_penalty; /* NAN: not given */
    int early_stopping;    /* -1: not given */
    size_t share_mb;       /* SIZE_MAX: not given */
    const char *memory;    /* NULL: not given */
    size_t memory_bytes;   /* that it says; 0: not given */
    struct sampler_options sampling;
    int64_t repeat_last_n; /* this, seed and what is NaN or SIZE_MAX in sampling were not given */
    int64_t seed;
    struct opt_list stop, logit_bias;
    bool ignore_eos;
    bool echo, ids, jsonl, unordered, lenient, score, tokenize, detokenize, quiet;
    size_t logprobs;
    int format; /* -1 until it is given */
    bool summary;
    size_t stride; /* 0: not given */
    const char *save_importance;
    const char *stats;
    const char *load_kv, *save_kv, *prompt_cache;
    bool chat, special;    /* special: parse special tokens in messages */
    bool no_parse_special; /* nor in prompts and texts */
    const char *system, *chat_format;
    int split;          /* -1: not given */
    const char *layers; /* of each rank */
    size_t in_flight;   /* 0: as many as there are ranks */
};

#define GEN_NOT_GIVEN INT64_MIN

/* What the ranks of a run have each: some of the requests, of every matrix, or of the layers. In the order of the option's
 * choices. */
enum split { SPLIT_REQUESTS, SPLIT_TENSOR, SPLIT_LAYERS };
#define SPLITS "requests|tensor|layers"
const char *gen_split_name(enum split split);

struct gen;
struct rank_counts;

/* What bmc-spec adds; NULL in bmc-gen. */
struct gen_hooks {
    /* Before the session is opened: more rows, another growth. */
    int (*session)(struct gen *gen, struct session_options *options, struct err *err);
    /* After: gen->strategy may be set. */
    int (*opened)(struct gen *gen, struct err *err);
    /* More lines of statistics for people, and more fields. */
    void (*print)(const struct gen *gen);
    int (*fields)(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                  struct err *err);
};

/* The chat format of a run; a name that is NULL: no chat. */
struct gen_chat {
    struct chat format;
    uint32_t end[CHAT_ENDS]; /* ids that end an answer */
    size_t n_ends;
    struct ids marks; /* tokens that the format writes, which nobody says */
    char **stop;      /* those of the options, then ends that are no tokens; the strings are theirs */
    size_t n_stops;
};

/* What all jobs work on. */
struct gen {
    const struct program *program;
    const struct gen_options *options;
    struct model *model;
    struct session session;
    struct tuned tuned;
    const char *policy_from;       /* option, profile or default */
    const struct kernels *kernels; /* NULL: not chosen yet, see gen_kernels() */
    const char *isa_from;          /* option, BMC_ISA, profile, measured or rank 0 */
    double load_ms;
    uint64_t seed; /* the one in use where no snapshot gives another: --seed -1 draws it */
    struct sampler_options sampling;
    enum dtype kv_type;
    struct snapshot *snapshot; /* of --load-kv or --prompt-cache, or NULL */
    struct kvwriter *save;     /* of --save-kv or --prompt-cache, or NULL */
    bool told_same;            /* that sequences of the same name are saved */
    double open_kv_ms, save_ms;
    const struct gen_hooks *hooks;
    struct step_beam *beam;               /* of --beams, or NULL */
    const struct step_strategy *strategy; /* NULL: one token a step */
    struct gen_chat chat;
    struct kv_sparse heads;        /* of --heads */
    struct score_stats score;      /* of --score */
    uint64_t n_requests, n_failed; /* of --jsonl; what a signal ended did not fail */
    struct ranks *ranks;           /* NULL: this process runs alone */
    enum split split;
    struct lead lead; /* where `leads`: to the ranks that have the other parts of the model */
    bool leads;
    struct step_pipe *pipe; /* NULL: steps come one after the other */
    struct lead_counts sent;
    const struct rank_counts *counts; /* of all ranks; NULL: this process's are all */
    bool over;                        /* the job has been done, whatever came out of its requests */
};

/* The prompt text: -p, -f or standard input; one trailing newline of a file is dropped unless `whole`.
 */
int gen_read_text(const struct gen_options *options, bool whole, struct buf *text,
                  struct err *err) MUST_USE;

/* Appends the ids of a text, special tokens in it parsed or taken as text. */
int gen_encode(const struct gen *gen, const char *text, size_t len, bool with_template,
               bool parse_special, struct ids *ids, struct err *err) MUST_USE;

/* The tokens of --load-kv, then those of --prompt-ids or of the prompt's text; `text` is all of them spelt, and `request`, which
 * has them then, what is to become of them. */
int gen_read_prompt(const struct gen *gen, struct ids *prompt, struct buf *text,
                    struct gen_request *request, struct err *err) MUST_USE;

/* The kernel set of the run, chosen once. */
const struct kernels *gen_kernels(struct gen *gen, struct err *err) MUST_USE;

enum { GEN_AS_FIT = 0 }; /* a batch: as many as --memory may hold */
/* The options of a session but for its sizes. */
int gen_session_options(struct gen *gen, struct session_options *options, struct err *err) MUST_USE;

/* Opens the session for `tokens` of prompt and what is to follow. */
int gen_open_session(struct gen *gen, size_t batch, size_t prompt_tokens, struct err *err) MUST_USE;

/* Options before parsing, what all programs refuse, and what is left to do with them. */
struct gen_options gen_defaults(void);
void gen_check_usage(const struct program *program, const struct gen_options *options,
                     const struct operands *operands);
void gen_finish_options(const struct program *program, struct gen_options *options);
void gen_release_options(struct gen_options *options);

int gen_choose_seed(struct gen *gen, struct err *err) MUST_USE;
int gen_open_model(struct gen *gen, struct err *err) MUST_USE;
void gen_close(struct gen *gen);

/* The jobs. */
int gen_text(struct gen *gen, struct err *err) MUST_USE;
int gen_jsonl(struct gen *gen, struct err *err) MUST_USE;
int gen_jsonl_verdict(struct gen *gen, struct err *err) MUST_USE; /* -1 when requests have failed */
int gen_score(struct gen *gen, struct err *err) MUST_USE;
int gen_score_jsonl(struct gen *gen, struct err *err) MUST_USE;
int gen_tokenize(struct gen *gen, struct err *err) MUST_USE;
int gen_detokenize(struct gen *gen, struct err *err) MUST_USE;

/* ---- beams ---- */

/* Opens beam search once the session is open, if the options ask for it; and closes it. */
int gen_open_beams(struct gen *gen, struct err *err) MUST_USE;
void gen_close_beams(struct gen *gen);

void gen_check_beams_usage(const struct program *program, const struct gen_options *options);

/* ---- sparse heads ---- */

/* Reads the list of --heads, for the model that is open. */
int gen_open_heads(struct gen *gen, struct err *err) MUST_USE;
void gen_check_heads_usage(const struct program *program, const struct gen_options *options);

/* ---- hints ---- */

/* Says that standard input is a terminal, if it is and `what` ("the prompt") is about to be read from it. */
void gen_hint_terminal(const struct gen *gen, const char *what);

/* Says that -b counts sequences where tokens seem to be meant. The run has at most `most` sequences; 0: as many as its input has
 * lines. */
void gen_hint_batch(const struct gen *gen, size_t most);

/* ---- chats ---- */

/* Opens the chat format, once: the model's, or the one that the options name. */
int gen_open_chat(struct gen *gen, struct err *err) MUST_USE;
void gen_close_chat(struct gen *gen);

/* The request's answer ends as the format says. */
void gen_chat_request(const struct gen *gen, struct gen_request *request);

/* How turns become a prompt: bits. */
enum { CHAT_GOES_ON = 1 /* they follow an answer */, CHAT_PARSES_SPECIAL = 2 /* in messages, too */ };

/* Appends the ids of turns, behind what the options let the system say where the turns do not, and their text unless that is
 * NULL. */
int gen_chat_prompt(const struct gen *gen, const struct chat_turn *turn, size_t n, unsigned how,
                    struct ids *ids, struct buf *text, struct err *err) MUST_USE;

/* The same of words of the user. */
int gen_chat_user(const struct gen *gen, const char *words, size_t len, unsigned how, struct ids *ids,
                  struct buf *text, struct err *err) MUST_USE;

/* ---- what the jobs print ---- */

/* Text to standard output, unless a write has failed before. What is left in the buffer, fflush() tells. */
int gen_put(const struct buf *text, struct err *err) MUST_USE;

/* A token's text as a JSON string, quoted once more where people read it. */
json_t *gen_piece(const struct gen *gen, uint32_t id, struct err *err) MUST_USE;

/* Puts tokens, mean_logprob and perplexity. JSON has no infinity: a perplexity beyond double is null there, and "inf" where
 * text is wanted. */
int gen_put_score(json_t *object, size_t tokens, double sum_logprob, bool as_text,
                  struct err *err) MUST_USE;

/* ---- snapshots ---- */

/* Opens the snapshot that the options name, and settles sampling, seed and the cache's type; says when rows are
 * converted. */
int gen_open_kv(struct gen *gen, struct err *err) MUST_USE;
void gen_close_kv(struct gen *gen);

/* Settings of a sequence of the snapshot, or of a new one: the options' where they were given. */
struct sampler_options gen_sampling(const struct gen *gen, size_t index);
uint64_t gen_seed(const struct gen *gen, size_t index);

/* The request continues a sequence of the snapshot, whose tokens are appended to its prompt. */
int gen_continue(const struct gen *gen, size_t index, struct gen_request *request,
                 struct err *err) MUST_USE;

/* The request takes the rows that its prompt shares with a prompt cache; says when there are none. */
void gen_reuse(const struct gen *gen, struct gen_request *request);

/* Saving: begun once the session is open, each sequence as it ends (`id` is JSON or NULL), and at the end. Without a
 * snapshot to write these do nothing. */
int gen_begin_save(struct gen *gen, struct err *err) MUST_USE;
int gen_save(struct gen *gen, size_t seq, const struct gen_result *result, const char *id,
             struct err *err) MUST_USE;
int gen_end_save(struct gen *gen, struct err *err) MUST_USE;

void gen_check_kv_usage(const struct program *program, const struct gen_options *options);

/* Statistics of a run: for people on stderr unless --quiet, as JSON to --stats FILE. */
int gen_report(struct gen *gen, const struct gen_stats *stats, struct err *err) MUST_USE;

/* Request options that all lines share; `ids` is for the prompt. */
struct gen_request gen_request_of(const struct gen *gen, struct ids *ids);

#endif
