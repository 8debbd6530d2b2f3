/* Chooses the chat format of a model during its conversion. */
#ifndef BMC_CHAT_SOURCE_H
#define BMC_CHAT_SOURCE_H

#include "format/source.h"
#include "model/config.h"
#include "text/slice.h"

struct chat_choice {
    const char *models_dir; /* holds chat/ */
    const char *name;       /* format name or path; NULL: detected from the chat template */
    bool no_bos;            /* omit BOS */
};

/* One of the source's tokenizer texts; {NULL, 0} if it has none. */
struct slice text_of_source(const struct weight_source *source, enum source_text which);

/* Appends the chat format to `text` as chat_write() writes it; nothing if the source has no
 * template and no name is given. *unknown is set if its template matches no format. `tokenizer` is
 * the output of tokenizer_build(). */
int chat_of_source(const struct weight_source *source, const struct chat_choice *choice,
                   const struct config *config, const struct buf *tokenizer, struct buf *text,
                   bool *unknown, struct err *err) MUST_USE;

#endif
