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

#endif
