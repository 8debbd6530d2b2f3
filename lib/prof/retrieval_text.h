/* Texts that tell retrieval heads from others. Retrieval heads copy: when a text repeats what it said before, they
 * attend to the earlier place, at the token that comes next (induction heads; Olsson et al., 2022, and Wu et al.,
 * "Retrieval Head Mechanistically Explains Long-Context Factuality", 2024). */
#pragma once

#include "attn/retrieval_score.h"
#include "text/ids.h"
#include "text/tokenizer/tokenizer.h"

enum {
    REPEATS_MATCH = 3,    /* tokens that must agree before the one that is to be retrieved */
    REPEATS_LEAST = 32,   /* retrieved tokens from which heads can be told apart */
    REPEATS_TAIL = 512,   /* only the text's last tokens are searched for repeats */
    RETRIEVAL_TEXT = 2048 /* tokens of a text that is made, by default */
};

/* Appends a text of `n` tokens: words of the vocabulary in random order, in which needles, sequences of words at
 * depths from 0 to 100 %, are followed by a window of `recent` tokens, and then repeated. The first `sink` tokens are
 * in no needle. Needles are fewer in shorter texts; an error where there is no room for three. */
int retrieval_text_make(struct ids *ids, const struct tokenizer *tok, size_t n, size_t sink,
                        size_t recent, struct err *err) MUST_USE;

/* Sets range[i] of each token i of a text to the position of what it should retrieve: the token behind the earlier
 * occurrence of the tokens up to i, if that is the token behind i, is neither among the first `sink` tokens nor the
 * `recent` last ones, and REPEATS_MATCH tokens agree or more. Other ranges become empty. Returns how many are not. */
size_t retrieval_text_repeats(struct position_range *range, const uint32_t *id, size_t n, size_t sink,
                              size_t recent);
