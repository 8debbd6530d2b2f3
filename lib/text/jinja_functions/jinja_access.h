/* Attributes, items and slices of values. */
#ifndef BMC_JINJA_ACCESS_H
#define BMC_JINJA_ACCESS_H

#include "text/jinja_values/jinja_value.h"

/* value.name: a method or attribute, else the item of a dict, else undefined. */
struct jv jv_attribute(struct jinja_state *j, struct jv value, const struct js *name);

/* value[key]: an item, else an attribute, else undefined. */
struct jv jv_item(struct jinja_state *j, struct jv value, struct jv key);

/* value[start:stop:step]; bounds that are not given are none. */
struct jv jv_slice(struct jinja_state *j, struct jv value, struct jv start, struct jv stop,
                   struct jv step);

/* The attribute that a filter's argument names: "a.b", "0", or an integer. `otherwise`: the value of
 * an undefined one, unless absent. */
struct jv jv_path(struct jinja_state *j, struct jv value, struct jv path, struct jv otherwise);

#endif
