/* Beam search for one sequence, from logits alone: it knows no model and no cache. Results, ties
 * included, are those of generate(num_beams=W) of Hugging Face transformers. */
#pragma once

#include "decode/sample/sampler.h"
#include "decode/sample/token_mask.h"
#include "text/ids.h"

/* When a search with W finished beams ends before the maximum length (transformers'
 * early_stopping): YES: at once; NO: if no unfinished path now scores better than the worst
 * finished beam; NEVER: if none can reach a better score at any length. */
enum beam_stopping { BEAM_STOP_YES, BEAM_STOP_NO, BEAM_STOP_NEVER };
#define BEAM_STOPPINGS "yes|no|never"

struct beam_options {
    size_t width;          /* W: number of beams */
    double length_penalty; /* score = sum of log-probabilities / length ^ length_penalty */
    enum beam_stopping stopping;
};

/* A finished beam. */
struct beam {
    struct ids ids; /* without the end token */
    double score;
    bool by_eos; /* ended by an end token, not by its length */
};

/* An unfinished beam: a path from the root of the tree of tokens. */
struct beam_path {
    size_t node; /* index in beam_search.node of the newest token */
    double sum;  /* of the log-probabilities of its tokens */
};

/* A node of the tree of tokens. */
struct beam_node {
    uint32_t id;
    size_t parent;
};

struct beam_search {
    struct beam_options options;
    size_t max_length; /* in tokens; step_beam.c uses 0 for "no search in this slot" */
    size_t length;
    struct beam_path *path, *next; /* [W]: unfinished beams, best first; those of the next step */
    size_t n_paths;
    size_t *parent;        /* [W]: index of the previous step's path that each path continues */
    uint32_t *id;          /* [W]: newest token of each path */
    struct beam *finished; /* [W + 1]: finished beams, best first */
    size_t n_finished;
    struct beam_node *node; /* the tree: paths share their prefixes */
    size_t n_nodes, nodes_cap;
    struct beam_choice *choice; /* scratch: candidates for the next step */
    struct candidate *best;
    struct candidate *list; /* scratch under a constraint: [W][vocab] */
    size_t choices_cap;
};

typedef bool beam_is_eos(const void *arg, uint32_t id);

int beam_open(struct beam_search *search, const struct beam_options *options, struct err *err) MUST_USE;
void beam_close(struct beam_search *search);

/* Starts a search for beams of at most `max_length` >= 1 tokens; its only path is the prompt. */
void beam_begin(struct beam_search *search, size_t max_length);

/* Extends the paths by a token each, given logits[n_paths][vocab] after their newest tokens, which
 * must be finite. n_ends is the number of ids for which ends() is true. allowed[n_paths] are masks of
 * tokens as in struct sampler, among which probabilities are normalised; NULL: all are allowed.
 * Afterwards the search is done if n_paths is 0. */
int beam_step(struct beam_search *search, const float *logits, size_t vocab,
              const struct token_mask *allowed, beam_is_eos *ends, const void *arg, size_t n_ends,
              struct err *err) MUST_USE;

/* Sets *ids to the tokens of an unfinished path. */
int beam_path_ids(const struct beam_search *search, size_t path, struct ids *ids,
                  struct err *err) MUST_USE;

/* Ends the search early: unfinished paths become finished beams until there are W. */
int beam_finalize(struct beam_search *search, struct err *err) MUST_USE;
