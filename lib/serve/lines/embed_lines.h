/* Computes embeddings of texts, one per line, and writes each as a line of JSON. */
#ifndef BMC_EMBED_LINES_H
#define BMC_EMBED_LINES_H

#include "decode/embed.h"
#include "serve/lines/text_line.h"

struct embed_lines {
    struct text_lines texts;
    struct session *session;
    enum embed_pooling pooling;
    bool normalize;
};

/* Computes the embeddings of all lines of the input. If the run fails, lines in flight get a result with
 * the reason. */
int embed_lines(struct embed_lines *job, struct embed_stats *stats, struct err *err) MUST_USE;

#endif
