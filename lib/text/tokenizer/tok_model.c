/* The table of tokenizer models. */
#include "text/tokenizer/tok_model.h"

const struct tok_model tok_models[KIND_COUNT] = {
    [KIND_BPE] = {"BPE", bpe_encode, bpe_release},
    [KIND_SPM] = {"SPM", spm_encode, spm_release},
    [KIND_UNIGRAM] = {"Unigram", unigram_encode, unigram_release},
};
