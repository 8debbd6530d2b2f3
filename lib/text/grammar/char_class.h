/* Sets of characters, while a grammar is read. */
#ifndef BMC_CHAR_CLASS_H
#define BMC_CHAR_CLASS_H

#include "text/grammar/expr.h"

/* Ranges in any order until char_class_sort(). Errors are kept in the grammar. */
struct char_class {
    struct code_range *range;
    size_t n, cap;
};

void char_class_add(struct grammar *grammar, struct char_class *set, uint32_t first, uint32_t last);
void char_class_sort(struct char_class *set); /* ascending, disjoint */
void char_class_negate(struct grammar *grammar, struct char_class *set);
bool char_class_has(const struct char_class *set, uint32_t code); /* of a sorted set */
void char_class_release(struct char_class *set);

/* Adds what \d, \w or \s stand for: ASCII only; or, if `wide`, all that any common dialect of regular
 * expressions takes them for, so that a negation holds in all of them. */
void char_class_add_shorthand(struct grammar *grammar, struct char_class *set, char letter, bool wide);

#endif
