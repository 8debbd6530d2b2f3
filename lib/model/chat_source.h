/* The chat format of a model that is being made. */
#ifndef BMC_CHAT_SOURCE_H
#define BMC_CHAT_SOURCE_H

#include "format/source.h"
#include "model/config.h"
#include "text/slice.h"

struct chat_wish {
    const char *models_dir; /* holds chat/ */
    const char *name;       /* a format's, or a path; NULL: found by the source's template */
    bool no_start;          /* texts begin without start tokens */
};

/* One of the texts that a source has about its tokens; {NULL, 0}: it has none. */
struct slice text_of_source(const struct weight_source *source, enum source_text which);

/* Appends the format as chat_write() writes it: nothing where the source has no template and no name is given.
 * *unknown: it has one, and none of the formats is like it. `tokenizer` is the block that tokenizer_build() made. */
int chat_of_source(const struct weight_source *source, const struct chat_wish *wish,
                   const struct config *config, const struct buf *tokenizer, struct buf *text,
                   bool *unknown, struct err *err) MUST_USE;

#endif
