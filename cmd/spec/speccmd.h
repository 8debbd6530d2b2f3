/* Modules of bmc-spec; gen/gen.h has those shared with bmc-gen. */
#ifndef BMC_SPECCMD_H
#define BMC_SPECCMD_H

#include "decode/spec/draft_autotune.h"
#include "decode/spec/spec.h"
#include "gen/gen.h"
#include "model/draft_head.h"

enum ragged { RAGGED_ONE, RAGGED_PAD, RAGGED_SPLIT };

/* Largest tree, in draft tokens, that --tree auto considers. */
enum { AUTO_TREE = 48 };

struct spec_cli {
    struct gen_options gen; /* first, since shared rows of the option table refer to it */
    const char *draft;
    bool lookup, oldest, suffix, recycle;
    const char *corpus;
    size_t pool;
    const char *most, *tree;
    size_t start, step, modulus, limit;
    size_t batch_knee;
    const char *acceptance;
    bool record, always, dynamic;
    const char *draft_kv;
    size_t draft_context;
    int ragged;
    double simulate;
    size_t samples;
    const char *budget;
    /* Parsed values. */
    size_t k, tree_nodes;
    bool k_auto, tree_auto, bass;
    double budget_ms; /* 0: none */
};

/* State of a run. `gen` comes first, so that hooks can convert its address. */
struct spec_run {
    struct gen gen;
    const struct spec_cli *cli;
    struct model *draft;
    size_t tapped[MAX_FEATURES]; /* hidden states of the target that a draft head reads */
    struct session *draft_session;
    struct profile_tuner draft_tuner; /* T of the draft model's cache */
    struct drafter *drafter;
    struct spec_options options;
    struct spec *spec; /* NULL: no drafting */
    char acceptance[8192];
    bool off; /* --tree auto chose not to draft */
};

extern const struct gen_hooks spec_hooks;

/* True if a draft model is used: unless there is another drafter, or if one is given beside it. */
bool spec_uses_model(const struct spec_cli *o);

/* Appends the tokens of a text file. */
int spec_read_corpus(const struct model *model, const char *path, struct ids *ids,
                     struct err *err) MUST_USE;

/* Opens the draft model; fails unless its vocabulary equals the target model's. */
int spec_open_draft(struct spec_run *run, struct err *err) MUST_USE;
void spec_close_run(struct spec_run *run);

/* The batch knee: tokens that a forward pass verifies at no extra latency. *from (may be NULL)
 * names the origin: option, profile or default. The session must be open. */
size_t spec_batch_knee(const struct spec_run *run, const struct session_options *s, const char **from);

/* Context of the draft model, or of the target if there is none. */
size_t spec_draft_context(const struct spec_run *run, const struct session_options *s);

/* Sets the draft length or tree size from -k, --tree and --batch-knee. */
int spec_set_length(struct spec_run *run, const struct session_options *s, struct err *err) MUST_USE;

/* Measured acceptance rates of the drafter's first, second, .. choice of a token. Read into
 * run->options, typical ones if there is no file; written after a run with --record-acceptance. */
int spec_read_acceptance(struct spec_run *run, struct err *err) MUST_USE;
int spec_write_acceptance(struct spec_run *run, struct err *err) MUST_USE;

/* --samples: generates several completions of one prompt and prints the best first. */
int spec_samples(struct spec_run *run, struct err *err) MUST_USE;

/* Print lines and add fields of statistics. */
void spec_print_stats(const struct gen *gen);
int spec_stats_fields(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                      struct err *err) MUST_USE;

#endif
