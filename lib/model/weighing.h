/* How much errors of inputs count while a model is made: by a file of importance, or all the same. */
#ifndef BMC_WEIGHING_H
#define BMC_WEIGHING_H

#include "format/importance.h"

struct weighing {
    struct importance file; /* its head says what it was made with; NULL: there is none */
    const char *path;
    float *weight; /* of all matrices */
};

/* NULL weighs nothing. */
int weighing_open(struct weighing *weighing, const char *path, struct err *err) MUST_USE;
void weighing_close(struct weighing *weighing);

/* weight[n] of a matrix that products read, or NULL where all count the same. A matrix that the file lacks, or has with
 * another number of inputs, is an error. */
int weighing_find(const struct weighing *weighing, const char *name, size_t n, const float **weight,
                  struct err *err) MUST_USE;

#endif
