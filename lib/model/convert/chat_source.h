/* Chooses the chat format of a model during its conversion. */
#pragma once

#include "format/source.h"
#include "model/convert/convert.h"
#include "model/config.h"
#include "text/slice.h"

struct chat_choice {
    const char *models_dir; /* holds chat/ */
    /* format name, or path of a .chat file or a Jinja template; NULL: the source's template and the
     * format that is detected from it */
    const char *name;
    bool no_bos; /* omit BOS */
};

/* One of the source's tokenizer texts; {NULL, 0} if it has none. */
struct slice text_of_source(const struct weight_source *source, enum source_text which);

/* Appends the chat format, the source's templates and its special tokens to `text`, as chat_write()
 * writes them; nothing if it has none. `tokenizer` is the output of tokenizer_build(). */
int chat_of_source(const struct weight_source *source, const struct chat_choice *choice,
                   const struct config *config, const struct buf *tokenizer, struct buf *text,
                   struct chat_report *report, struct err *err) MUST_USE;
