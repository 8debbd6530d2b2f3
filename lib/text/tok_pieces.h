/* Vocabularies with scores: of unigram models, and of SentencePiece. */
#ifndef BMC_TOK_PIECES_H
#define BMC_TOK_PIECES_H

#include "base/json.h"
#include "text/tok_draft.h"

/* Whether a model's vocabulary is SentencePiece's: each entry says its type, too. What is left to say
 * then, pieces_follow() adds, and there are no components. */
bool pieces_are_sentencepiece(const json_t *model);

/* Fills the draft with the vocabulary and the options of a model of the draft's kind. */
int pieces_read(struct tok_draft *draft, const json_t *model, struct err *err) MUST_USE;

/* Adds the normalizer, the decoder and the template that SentencePiece's data imply. `root` is the whole
 * tokenizer.json; `config`, tokenizer_config.json, may be NULL. */
int pieces_follow(struct tok_draft *draft, const json_t *root, const json_t *config,
                  struct err *err) MUST_USE;

#endif
