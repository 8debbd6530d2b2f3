/* What is done to a tensor of a source to make that of a role: the words behind the name in a `tensor` line of
 * bmc-family(5). */
#ifndef BMC_RECIPE_H
#define BMC_RECIPE_H

#include "model/roles.h"

enum { RECIPE_PARTS = 4 };

struct recipe {
    bool transposed;                        /* rows of the source are our columns */
    const struct role *parts[RECIPE_PARTS]; /* whose rows lie in it, in this order; */
    size_t n_parts;                         /* none: those of the role alone */
    bool by_head;                           /* they take turns, for each KV head, */
    size_t turns;                           /* or so often; 0: they do not */
    bool interleaved; /* elements that turn together lie side by side, not half a head apart */
    bool plus_one;    /* a gain is stored as what is beyond 1 */
};

/* "[transposed] [part NAME of NAME,.. [by_head | turns N]] [interleaved] [plus_one]"; false when that is not what the words
 * say, or nothing that can be done with this role. */
bool recipe_parse(struct recipe *recipe, const struct role *role, char *const *word, size_t n);

#endif
