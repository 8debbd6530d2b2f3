/* How texts are cut before pairs are merged, by the name that a GGUF file gives (tokenizer.ggml.pre). */
#ifndef BMC_GGUF_PRE_H
#define BMC_GGUF_PRE_H

#include "base/err.h"

enum { GGUF_PRE_CUTS = 6 };

struct gguf_pre {
    const char *names; /* with blanks between them */
    const char *cut
        [GGUF_PRE_CUTS]; /* regular expressions in tokenizer.json's dialect, one after the other; NULL: no more */
    bool nfc;            /* texts are normalized so */
    bool whole_words; /* a piece that is a token is not made of merges */
    bool start;       /* the start token is put in front unless the file says otherwise */
};

/* That of a name; an unknown one is an error, not a guess. `path` names the file. */
int gguf_pre_find(const struct gguf_pre **pre, const char *name, size_t len, const char *path,
                  struct err *err) MUST_USE;

#endif
