/* DRY, a sampler that penalises tokens which would continue a repetition ("don't repeat yourself"): a token
 * that followed an earlier occurrence of the last n tokens loses multiplier * base^(n - allowed_length),
 * if n reaches allowed_length. Sequence breakers, such as line feeds, end repetitions. */
#pragma once

#include "decode/sample/sampler.h"
#include "text/tokenizer/tokenizer.h"

/* Repetitions are counted up to allowed_length and this many tokens more. */
enum { DRY_LONGEST = 64 };

/* True if DRY is on and among the samplers. */
bool dry_is_on(const struct sampler_options *options);

/* True if nothing that is on precedes DRY in the order: it then applies to all logits. */
bool dry_leads(const struct sampler_options *options);

/* Subtracts the penalties from logits[vocab], or from the logits of candidates. `history` is all tokens so
 * far; count[vocab] must be 0, and is afterwards. */
void dry_penalize(const struct sampler_options *options, const uint32_t *history, size_t n_history,
                  uint32_t *count, float *logits);
void dry_penalize_candidates(const struct sampler_options *options, const uint32_t *history,
                             size_t n_history, uint32_t *count, struct candidate *candidate, size_t n);

/* Sequence breakers: the texts of a run, and the tokens that contain one of them, which are looked for when
 * they are needed first. */
struct dry_breakers {
    const struct tokenizer *tok;
    size_t vocab;
    char *const *text;
    size_t n_texts;
    uint64_t *token; /* bits by token id; NULL: not known yet */
};

/* The default: line feed, colon, quotation mark and asterisk. */
extern char *const dry_default_breakers[4];

/* If DRY is on, sets options->dry_breaker to the tokens, which are looked for unless they are known; freed by
 * dry_breakers_release(). */
int dry_breakers_find(struct dry_breakers *breakers, struct sampler_options *options,
                      struct err *err) MUST_USE;
void dry_breakers_release(struct dry_breakers *breakers);
