/* Rows of a role out of a tensor of a source: found in it, turned, put in order and converted, some rows at a time. */
#ifndef BMC_PICK_H
#define BMC_PICK_H

#include "format/source.h"
#include "model/recipe.h"

/* Elements of a source as those of a type. */
enum pick_worst {
    PICK_FINITE,
    PICK_TOO_LARGE, /* finite in the source, infinite in the type */
    PICK_BROKEN,    /* NaN or infinite in the source */
};

struct pick {
    const struct source_tensor *from; /* NULL: there is none */
    size_t columns;                   /* elements of a row of the role */
    size_t row_step, column_step;     /* elements from one to the next in the source */
    size_t group, group_from,
        first;                 /* so many rows of the role are in so many of the source, from there */
    size_t head_dim, rope_dim; /* of interleaved rows; 0: they are not */
    bool plus_one;             /* of a vector: 1 is added */
};

/* Checks that the tensor is what the recipe and the configuration mean. `name` is the source's, for errors. */
int pick_plan(struct pick *pick, const struct source_tensor *from, const struct recipe *recipe,
              const struct role *role, const struct config *config, const char *name,
              struct err *err) MUST_USE;

/* Converts rows [first_row, first_row + rows) of the role, one after the other; what the worst
 * of their elements is. A type of few bits must be the one that the source's is stored as: its rows are taken over. */
enum pick_worst pick_rows(const struct pick *pick, size_t first_row, size_t rows, enum dtype to,
                          void *out);

#endif
