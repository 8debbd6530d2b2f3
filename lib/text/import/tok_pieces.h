/* Vocabularies with scores: Unigram models of tokenizer.json, and SentencePiece. */
#ifndef BMC_TOK_PIECES_H
#define BMC_TOK_PIECES_H

#include "base/json.h"
#include "text/import/tok_writer.h"

/* True if the vocabulary has SentencePiece's piece types. Then normalizer, decoder and
 * template are implied, and pieces_add_components() adds them. */
bool pieces_are_sentencepiece(const json_t *model);

/* Reads vocabulary and options of a model of kind writer->kind, which the caller has set. */
int pieces_read(struct tok_writer *writer, const json_t *model, struct err *err) MUST_USE;

/* Adds the normalizer, decoder and template that SentencePiece implies. `root` is the whole
 * tokenizer.json; `config`, tokenizer_config.json, may be NULL. */
int pieces_add_components(struct tok_writer *writer, const json_t *root, const json_t *config,
                          struct err *err) MUST_USE;

/* True for tokenizer classes whose add_bos_token, add_eos_token and add_prefix_space in
 * tokenizer_config.json decide. */
bool pieces_of_llama_class(const json_t *config);

#endif
