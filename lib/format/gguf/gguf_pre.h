/* BPE pre-tokenizers by their GGUF name (tokenizer.ggml.pre). */
#pragma once

#include "base/err.h"

enum { GGUF_PRE_REGEXES = 6 };

enum gguf_pre_flag {
    PRE_NFC = 1,           /* normalise to NFC */
    PRE_IGNORE_MERGES = 2, /* a pre-token in the vocabulary is one token, whatever the merges */
    PRE_ADD_BOS = 4,       /* default of tokenizer.ggml.add_bos_token */
    PRE_MERGES_BY_ID =
        8, /* all pairs whose union is a token are merged, in order of its id (tiktoken) */
};

struct gguf_pre {
    const char *names; /* values of tokenizer.ggml.pre, blank-separated */
    /* split regexes in tokenizer.json's dialect, applied in order; NULL: end */
    const char *regex[GGUF_PRE_REGEXES];
    unsigned flags; /* enum gguf_pre_flag */
};

/* Finds a pre-tokenizer by name; unknown names are an error. `path` is used in errors. */
int gguf_pre_find(const struct gguf_pre **pre, const char *name, size_t len, const char *path,
                  struct err *err) MUST_USE;

/* The pre-tokenizer of that number; NULL: there are no more. */
const struct gguf_pre *gguf_pre_nth(size_t nth);
