/* Beam search over the logits of a text: which continuations are gone on with, and which have ended. It knows no model and no
 * cache. Semantics, ties included, are those of generate(num_beams=W) of Hugging Face transformers. */
#ifndef BMC_BEAM_H
#define BMC_BEAM_H

#include "decode/sampler.h"
#include "text/ids.h"

/* When a search ends before its texts are as long as they may be. With W of them ended: at once, when no text under way is
 * better now than the worst of them, or when none can become better. */
enum beam_stopping { BEAM_STOP_YES, BEAM_STOP_NO, BEAM_STOP_NEVER };
#define BEAM_STOPPINGS "yes|no|never"

struct beam_options {
    size_t width;          /* W */
    double length_penalty; /* a score is the sum of log-probabilities / length ^ this */
    enum beam_stopping stopping;
};

/* A text that has ended, by an end's id or by its length. */
struct beam {
    struct ids ids; /* without the end's */
    double score;
    bool by_end;
};

/* One that is under way. */
struct beam_path {
    size_t node; /* its newest token, in the search's list */
    double sum;  /* of log-probabilities */
};

/* A token and the one before it. */
struct beam_node {
    uint32_t id;
    size_t before;
};

struct beam_search {
    struct beam_options options;
    size_t most; /* tokens of a text */
    size_t length;
    struct beam_path *path, *next; /* [W], best first */
    size_t n_paths;
    size_t *parent;     /* [W]: which path of the step before each one continues */
    uint32_t *id;       /* [W]: with what */
    struct beam *ended; /* [W + 1], best first */
    size_t n_ended;
    struct beam_node *node; /* of all paths */
    size_t n_nodes, nodes_cap;
    struct beam_choice *choice; /* scratch */
    struct candidate *best;
    size_t choices_cap;
};

/* True for ids that end a text. */
typedef bool beam_ends(const void *arg, uint32_t id);

int beam_open(struct beam_search *search, const struct beam_options *options, struct err *err) MUST_USE;
void beam_close(struct beam_search *search);

/* A text begins that may become `most` tokens long, at least 1. One path is under way, the prompt. */
void beam_begin(struct beam_search *search, size_t most);

/* What the paths' logits say: logits[n_paths][vocab], finite, of which n_ends ids end a text. Afterwards there are other paths, or
 * none: the search is over. */
int beam_step(struct beam_search *search, const float *logits, size_t vocab, beam_ends *ends,
              const void *arg, size_t n_ends, struct err *err) MUST_USE;

/* The search is given up: paths under way become texts that have ended, where fewer than W have. */
int beam_give_up(struct beam_search *search, struct err *err) MUST_USE;

#endif
