/* Texts that are read as lines of JSON, for jobs other than generation: objects with one of the fields
 * text, prompt and ids, and optionally id and parse_special. */
#ifndef BMC_TEXT_LINE_H
#define BMC_TEXT_LINE_H

#include "base/json.h"
#include "model/model.h"
#include "text/ids.h"

struct text_line_options {
    const struct model *model;
    bool parse_special; /* parse special tokens spelled in texts, unless the line says otherwise */
    bool lenient;       /* ignore unknown fields */
};

/* Parses a line; appends the token ids of its text. `root` is the object, which the caller releases, also
 * after an error; NULL if the line is none. */
int text_line_parse(const struct text_line_options *options, const char *bytes, size_t len,
                    json_t **root, struct ids *ids, struct err *err) MUST_USE;

/* A line whose result is not written yet, in a list of such lines. */
struct text_line {
    struct text_line *next, **link;
    uint64_t number;
    json_t *root; /* NULL: plain text */
    struct ids ids;
    json_t *logprobs; /* of the tokens scored so far; NULL: not requested */
};

/* Adds an empty line to the list that begins at *first. NULL: out of memory. */
struct text_line *text_line_add(struct text_line **first, uint64_t number, struct err *err);

/* Removes the line from its list and frees it. */
void text_line_free(struct text_line *line);

/* Appends the members of `object`, after the id of the line if it has one, to `text` as a line of JSON. */
int text_line_format(const struct text_line *line, json_t *object, struct buf *text,
                     struct err *err) MUST_USE;

#endif
