/* The parts of bmc-spec. What it shares with bmc-gen is in gen.h. */
#ifndef BMC_SPECCMD_H
#define BMC_SPECCMD_H

#include "decode/choose.h"
#include "decode/spec.h"
#include "gen.h"

enum ragged { RAGGED_ONE, RAGGED_PAD, RAGGED_SPLIT };

/* Rows of a draft model's window beside those of the candidates. */
enum { WINDOW_REST = 2 };

/* Candidates of the largest tree that --tree auto considers. */
enum { AUTO_TREE = 48 };

struct spec_cli {
    struct gen_options gen; /* first: the shared rows of the option table point into it */
    const char *draft;
    bool lookup, oldest, recycle;
    const char *most, *tree;
    size_t start, step, modulus, limit;
    size_t free_rows;
    const char *acceptance;
    bool record, always;
    const char *draft_kv;
    size_t draft_context;
    int ragged;
    double simulate;
    size_t samples;
    const char *budget;
    /* Parsed. */
    size_t k, tree_nodes;
    bool k_auto, tree_auto;
    double budget_ms; /* 0: none */
};

/* A run: `gen` is first, so that hooks find it. */
struct spec_run {
    struct gen gen;
    const struct spec_cli *cli;
    struct model *draft;
    struct session draft_session;
    struct drafter *drafter;
    struct spec_options options;
    struct spec *spec; /* NULL: nothing is drafted */
    char acceptance[8192];
    bool off;
};

extern const struct gen_hooks spec_hooks;

/* Opens the draft model and checks that its vocabulary is the target's. */
int spec_open_draft(struct spec_run *run, struct err *err) MUST_USE;
void spec_close_run(struct spec_run *run);

/* Rows that a step may have before it takes longer than a step of one, and where the number is from: option, profile
 * or default. `from` may be NULL. To be asked once the session is open. */
size_t spec_free_rows(const struct spec_run *run, const struct session_options *s, const char **from);

/* The most candidates that -k, --tree and --free-rows allow. */
int spec_set_length(struct spec_run *run, const struct session_options *s, struct err *err) MUST_USE;

/* Measured acceptance by rank: read into run->options when the file is there, else usual values; written after a
 * run with --record-acceptance. */
int spec_read_acceptance(struct spec_run *run, struct err *err) MUST_USE;
int spec_write_acceptance(struct spec_run *run, struct err *err) MUST_USE;

/* --samples: several answers to one prompt, the best first. */
int spec_samples(struct spec_run *run, struct err *err) MUST_USE;

/* Lines and fields of statistics. */
void spec_print_stats(const struct gen *gen);
int spec_stats_fields(const struct gen *gen, const struct gen_stats *stats, json_t *object,
                      struct err *err) MUST_USE;

#endif
