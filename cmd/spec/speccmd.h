/* Modules of bmc-spec; gen/gen.h has those shared with bmc-gen. */
#pragma once

#include "decode/spec/draft_autotune.h"
#include "decode/spec/spec.h"
#include "gen/gen.h"
#include "model/draft_head.h"

enum spec_sampling { SPEC_COUPLED, SPEC_REJECTION };

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
    int ragged, sampling;
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
    char acceptance[8192];
};

extern const struct gen_hooks spec_hooks;

/* True if a draft model is used: unless a drafter without a model is chosen alone. */
bool spec_uses_model(const struct spec_cli *o);

/* Writes the measured acceptance rates of the drafter's first, second, .. choice of a token (--record-acceptance). */
int spec_write_acceptance(struct spec_run *run, struct err *err) MUST_USE;

/* --samples: generates several completions of one prompt and prints the best first. */
int spec_samples(struct spec_run *run, struct err *err) MUST_USE;
