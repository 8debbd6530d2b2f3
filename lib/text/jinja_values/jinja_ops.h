/* Operators of template values that yield truth or items: truth, equality, order, membership,
 * iteration. */
#ifndef BMC_JINJA_OPS_H
#define BMC_JINJA_OPS_H

#include "text/jinja_values/jinja_value.h"

bool jv_truth(struct jv value);
bool jv_equal(struct jinja_state *j, struct jv a, struct jv b);
bool jv_same(struct jinja_state *j, struct jv a, struct jv b); /* Python's `is` */

/* Below 0, 0 or above 0; ends rendering if the values have no order. */
int jv_order(struct jinja_state *j, struct jv a, struct jv b);

/* Whether `container` holds `value`. */
bool jv_contains(struct jinja_state *j, struct jv container, struct jv value);

/* Whether a value can be iterated over. */
bool jv_is_iterable(struct jv value);

/* The items of a value: characters, keys of a dict, items of a list. Reads an iterator to its end.
 * Ends rendering for values that cannot be iterated over. */
const struct jv_list *jv_items_of(struct jinja_state *j, struct jv value);

/* Number of items; false if the value has no length. */
bool jv_length(struct jinja_state *j, struct jv value, size_t *length);

/* The number that a bool, int or float is; false for other values. */
bool jv_number(struct jv value, double *x);
bool jv_integer(struct jv value, int64_t *i); /* a bool or int */

/* An argument that must be an integer; `what` names it in the error. */
int64_t jv_int_arg(struct jinja_state *j, struct jv value, const char *what);

/* Sorts values by their order, stably; `key` are what is compared, or the values themselves. */
void jv_sort(struct jinja_state *j, struct jv *value, struct jv *key, size_t n, bool reverse);

#endif
