/* JSON and template values. */
#ifndef BMC_JINJA_JSON_H
#define BMC_JINJA_JSON_H

#include "base/json.h"
#include "text/jinja_values/jinja_value.h"

/* A value from JSON; the texts are borrowed. Strings and names are content (jinja_string.h) if
 * `content`. */
struct jv jv_from_json(struct jinja_state *j, const json_t *json, bool content);

struct jinja_json_style {
    bool ascii, sort_keys;
    const struct js *indent;     /* for each level; NULL: all on one line */
    const struct js *item, *key; /* separators after an item and after a key */
};

/* The JSON text of a value, as json.dumps() of Python writes it. */
const struct js *jv_to_json(struct jinja_state *j, struct jv value,
                            const struct jinja_json_style *style);

#endif
